//! The answer to a request for predictions.

use super::metadata::{TensorMetadata, outputs};
use super::request::InferRequest;
use crate::error::RequestError;
use crate::scores::Scores;
use gannet::train::models::Forecast;
use serde_json::{Map, Value, json};

/// The body of an answer.
pub struct Answer {
    /// The JSON, and the binary outputs behind it.
    pub body: Vec<u8>,
    /// Bytes of the JSON, if there is something behind it.
    pub json_bytes: Option<usize>,
}

/// The outputs that a request wants, with the number of examples in their shapes.
///
/// # Errors
/// It wants one that the model does not have.
pub fn wanted(request: &InferRequest, scores: &Scores) -> Result<Vec<TensorMetadata>, RequestError> {
    let mut all = outputs(scores.task);
    if let Some(other) = request.outputs.keys().find(|name| !all.iter().any(|output| output.name == **name)) {
        let names: Vec<&String> = all.iter().map(|output| &output.name).collect();
        return Err(RequestError::Bad(format!(
            "the model has no output {other:?}; its outputs are {names:?}"
        )));
    }
    all.retain(|output| request.outputs.is_empty() || request.outputs.contains_key(&output.name));
    all.iter_mut().for_each(|output| output.shape[0] = scores.forecasts.len() as i64);
    Ok(all)
}

/// The elements of an output as bytes, little-endian.
pub fn bytes_of(output: &TensorMetadata, scores: &Scores) -> Vec<u8> {
    match output.datatype {
        "INT64" => classes(scores).flat_map(i64::to_le_bytes).collect(),
        _ => scores.outputs.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// Answers a request with these scores of a model.
///
/// # Errors
/// The request wants an output that the model does not have.
pub fn answer(
    request: &InferRequest,
    (model, version): (&str, &str),
    scores: &Scores,
) -> Result<Answer, RequestError> {
    let (mut tensors, mut behind) = (Vec::new(), Vec::new());
    for output in &wanted(request, scores)? {
        let is_binary = request.outputs.get(&output.name).copied().unwrap_or(request.is_binary);
        tensors.push(tensor(output, scores, is_binary.then_some(&mut behind)));
    }
    let mut object = Map::new();
    object.insert("model_name".into(), json!(model));
    object.insert("model_version".into(), json!(version));
    if let Some(id) = &request.id {
        object.insert("id".into(), json!(id));
    }
    object.insert("outputs".into(), Value::Array(tensors));
    let mut body = Value::Object(object).to_string().into_bytes();
    let json_bytes = (!behind.is_empty()).then_some(body.len());
    body.append(&mut behind);
    Ok(Answer { body, json_bytes })
}

/// One output. `behind`: its elements go there.
fn tensor(output: &TensorMetadata, scores: &Scores, behind: Option<&mut Vec<u8>>) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), json!(output.name));
    object.insert("datatype".into(), json!(output.datatype));
    object.insert("shape".into(), json!(output.shape));
    match behind {
        None if output.datatype == "INT64" => object.insert("data".into(), classes(scores).collect()),
        None => object.insert("data".into(), scores.outputs.iter().map(|x| json!(x)).collect()),
        Some(behind) => {
            let mut bytes = bytes_of(output, scores);
            let size = bytes.len();
            behind.append(&mut bytes);
            object.insert("parameters".into(), json!({"binary_data_size": size}))
        }
    };
    Value::Object(object)
}

/// The likeliest class of each example.
fn classes(scores: &Scores) -> impl Iterator<Item = i64> {
    scores.forecasts.iter().map(|forecast| match forecast {
        Forecast::Class(class, _) => *class as i64,
        _ => 0,
    })
}
