//! A request for predictions: its tensors, from JSON and from the binary part behind it.

use super::binary;
use super::datum::Elements;
use super::tensor::Tensor;
use crate::depth::check_depth;
use crate::error::RequestError;
use serde::Deserialize;
use std::collections::HashMap;

/// The JSON of a request.
#[derive(Debug, Deserialize)]
struct Message {
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<RequestedOutput>,
}

/// Parameters of a request, an input or an output. Those that are not known have no effect.
#[derive(Debug, Default, Deserialize)]
pub struct Parameters {
    /// Bytes of this input behind the JSON.
    binary_data_size: Option<usize>,
    /// Whether this output is wanted behind the JSON.
    binary_data: Option<bool>,
    /// Whether all outputs are.
    binary_data_output: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Input {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Elements>,
}

#[derive(Debug, Deserialize)]
struct RequestedOutput {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// A request for predictions.
#[derive(Debug)]
pub struct InferRequest {
    /// What the client calls the request.
    pub id: Option<String>,
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The outputs that are wanted, and whether each is wanted as binary data. Empty: all, as JSON or binary data.
    pub outputs: HashMap<String, bool>,
    /// Whether outputs are binary data unless the request says otherwise.
    pub is_binary: bool,
}

impl InferRequest {
    /// Reads the body of a request. `json_bytes`: where its JSON ends and binary data begins, if there is such data.
    ///
    /// # Errors
    /// The JSON is not a request, or an input has another number of elements than its shape says.
    pub fn read(body: &[u8], json_bytes: Option<usize>) -> Result<InferRequest, RequestError> {
        let end = json_bytes.unwrap_or(body.len());
        let Some((json, mut binary)) = body.split_at_checked(end) else {
            return Err(RequestError::Bad(format!(
                "Inference-Header-Content-Length is {end}, and the body has {} bytes",
                body.len()
            )));
        };
        check_depth(json)?;
        let message: Message = sonic_rs::from_slice(json).map_err(|error| {
            // The first line: the others draw the place of the error.
            let what = error.to_string();
            let what = what.lines().next().unwrap_or_default().to_owned();
            RequestError::Bad(format!("the body is no request of the Open Inference Protocol: {what}"))
        })?;
        let mut inputs = Vec::with_capacity(message.inputs.len());
        for Input { name, shape, datatype, parameters, data } in message.inputs {
            let tensor = match (parameters.binary_data_size, data) {
                (Some(bytes), None) => {
                    let Some((own, rest)) = binary.split_at_checked(bytes) else {
                        return Err(RequestError::Bad(format!(
                            "input {name:?}: binary_data_size is {bytes}, and {} bytes are left",
                            binary.len()
                        )));
                    };
                    binary = rest;
                    let elements = binary::elements(&name, &datatype, own)?;
                    Tensor::new(name, datatype, shape, elements)?
                }
                (None, Some(Elements(elements))) => Tensor::of_json(name, datatype, shape, elements)?,
                (Some(_), Some(_)) => {
                    return Err(RequestError::Bad(format!("input {name:?} has both data and binary data")));
                }
                (None, None) => return Err(RequestError::Bad(format!("input {name:?} has no data"))),
            };
            inputs.push(tensor);
        }
        if !binary.is_empty() {
            let left = binary.len();
            return Err(RequestError::Bad(format!("{left} bytes behind the JSON are of no input")));
        }
        let is_binary = message.parameters.binary_data_output.unwrap_or(false);
        let of = |output: RequestedOutput| (output.name, output.parameters.binary_data.unwrap_or(is_binary));
        let outputs = message.outputs.into_iter().map(of).collect();
        Ok(InferRequest { id: message.id, inputs, outputs, is_binary })
    }
}
