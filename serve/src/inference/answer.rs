//! The answer to a request for predictions.

use super::metadata::{TensorMetadata, outputs};
use super::request::InferRequest;
use crate::error::RequestError;
use crate::scores::Scores;
use gannet::train::models::Forecast;
use std::io::Write;

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
    let (mut body, mut behind) = (Vec::new(), Vec::new());
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    put(&mut body, format_args!("{{\"model_name\":{},\"model_version\":{}", text(model), text(version)));
    if let Some(id) = &request.id {
        put(&mut body, format_args!(",\"id\":{}", text(id)));
    }
    body.extend_from_slice(b",\"outputs\":[");
    for (at, output) in wanted(request, scores)?.iter().enumerate() {
        let TensorMetadata { name, datatype, shape } = output;
        let comma = if at == 0 { "" } else { "," };
        put(
            &mut body,
            format_args!("{comma}{{\"name\":\"{name}\",\"datatype\":\"{datatype}\",\"shape\":{shape:?},"),
        );
        if request.outputs.get(name).copied().unwrap_or(request.is_binary) {
            let mut bytes = bytes_of(output, scores);
            put(&mut body, format_args!("\"parameters\":{{\"binary_data_size\":{}}}}}", bytes.len()));
            behind.append(&mut bytes);
            continue;
        }
        body.extend_from_slice(b"\"data\":[");
        match *datatype {
            "INT64" => list(&mut body, classes(scores), |body, class| put(body, format_args!("{class}"))),
            _ => list(&mut body, scores.outputs.iter(), |body, x| put_float(body, *x)),
        }
        body.extend_from_slice(b"]}");
    }
    body.extend_from_slice(b"]}");
    let json_bytes = (!behind.is_empty()).then_some(body.len());
    body.append(&mut behind);
    Ok(Answer { body, json_bytes })
}

fn put(body: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A write to memory does not fail.
    let _ = body.write_fmt(text);
}

/// Appends elements with commas between them.
fn list<T>(body: &mut Vec<u8>, elements: impl Iterator<Item = T>, mut each: impl FnMut(&mut Vec<u8>, T)) {
    for (at, element) in elements.enumerate() {
        if at > 0 {
            body.push(b',');
        }
        each(body, element);
    }
}

/// Appends the shortest text of a float. JSON has none for those that are not finite.
fn put_float(body: &mut Vec<u8>, x: f32) {
    match x.is_finite() {
        true => body.extend_from_slice(zmij::Buffer::new().format(x).as_bytes()),
        false => body.extend_from_slice(b"null"),
    }
}

/// The likeliest class of each example.
fn classes(scores: &Scores) -> impl Iterator<Item = i64> {
    scores.forecasts.iter().map(|forecast| match forecast {
        Forecast::Class(class, _) => *class as i64,
        _ => 0,
    })
}
