//! The pages of the Open Inference Protocol: health, metadata, predictions.

use super::answers::{failed, json};
use super::app::App;
use super::body;
use super::held_body::holding;
use super::received::{Received, receive};
use crate::error::RequestError;
use crate::inference::{InferRequest, answer, data_of, metadata};
use crate::limits::ANSWER_BODIES;
use crate::models::Chosen;
use crate::scores::{Deadline, Scores, score};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Where the JSON of a request ends, and that of an answer.
const JSON_BYTES: &str = "inference-header-content-length";

/// The place of these requests among the [kinds](crate::counters::KINDS).
pub const KIND: usize = 0;

/// `GET v2`: the server.
pub async fn server() -> Response {
    let extensions = ["binary_tensor_data"];
    json(&json!({"name": "gannet", "version": env!("CARGO_PKG_VERSION"), "extensions": extensions}))
}

/// `GET v2/health/live`.
pub async fn live() -> Response {
    json(&json!({"live": true}))
}

/// `GET v2/health/ready`.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.catalog.unready(app.max_age) {
        None => json(&json!({"ready": true})),
        Some(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, json(&json!({"ready": false, "error": why}))).into_response()
        }
    }
}

/// The model that a path names, and the version.
pub type ModelPath = Path<Vec<String>>;

fn find(app: &App, path: &[String]) -> Result<Chosen, RequestError> {
    app.catalog.find(&path[0], path.get(1).map(String::as_str))
}

/// `GET v2/models/NAME[/versions/VERSION]/ready`.
pub async fn model_ready(State(app): State<Arc<App>>, Path(path): ModelPath, headers: HeaderMap) -> Response {
    let has_token = app.check_token(&headers).is_ok();
    match app.ready(&path[0], path.get(1).map(String::as_str), has_token) {
        Ok(Chosen { slot, .. }) => json(&json!({"name": slot.name, "ready": true})),
        Err(error) => failed(&error),
    }
}

/// `GET v2/models`: the names of all models.
pub async fn models(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Err(error) = app.check_token(&headers) {
        return failed(&error);
    }
    let names: Vec<&str> = app.catalog.slots().iter().map(|slot| &*slot.name).collect();
    json(&json!({"models": names}))
}

/// `GET v2/models/NAME[/versions/VERSION]`.
pub async fn model(State(app): State<Arc<App>>, Path(path): ModelPath, headers: HeaderMap) -> Response {
    let found = app.check_token(&headers).and_then(|()| find(&app, &path));
    match found.map(|chosen| serde_json::to_value(metadata(&chosen.slot.name, &chosen.model))) {
        Ok(Ok(object)) => json(&object),
        Ok(Err(error)) => failed(&RequestError::Failed(error.to_string())),
        Err(error) => failed(&error),
    }
}

/// `POST v2/models/NAME[/versions/VERSION]/infer`.
pub async fn infer(
    State(app): State<Arc<App>>,
    Path(path): ModelPath,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let began = Instant::now();
    let response = match receive(&app, &headers, body).await {
        Ok(received) => {
            let answered = answered(&app, &path, &headers, received).await;
            answered.unwrap_or_else(|error| failed(&error))
        }
        Err(response) => response,
    };
    app.counters.answered(KIND, response.status().as_u16(), began.elapsed());
    response
}

/// Scores the examples of a request to a model of this name, and this version if it is given.
pub fn scored(
    app: &App,
    name: &str,
    version: Option<&str>,
    request: &InferRequest,
    deadline: Deadline,
) -> Result<(Chosen, Scores), RequestError> {
    let chosen = app.catalog.choose(Some(name), version, request.id.as_deref())?;
    let (data, examples) = data_of(&chosen.model, &request.inputs)?;
    let most = ANSWER_BODIES * app.limits.body_bytes;
    let scores = score(&chosen.model, &data, (most, deadline))?;
    if scores.forecasts.len() != examples {
        return Err(RequestError::Bad(format!(
            "{examples} examples are asked, and {} were read: an empty line or a comment is none",
            scores.forecasts.len()
        )));
    }
    app.counters.examples.fetch_add(scores.forecasts.len() as u64, Relaxed);
    Ok((chosen, scores))
}

async fn answered(
    app: &App,
    path: &[String],
    headers: &HeaderMap,
    received: Received<'_>,
) -> Result<Response, RequestError> {
    let (bytes, deadline) = (&received.bytes, received.deadline);
    let json_bytes = body::number(headers, JSON_BYTES)?;
    let size = bytes.len();
    let work = || {
        let request = InferRequest::read(bytes, json_bytes)?;
        let (Chosen { slot, model }, scores) =
            scored(app, &path[0], path.get(1).map(String::as_str), &request, deadline)?;
        answer(&request, (&slot.name, &model.version), &scores)
    };
    let answer = app.admission.compute(size, deadline, work).await?;
    let response = match answer.json_bytes {
        None => ([(header::CONTENT_TYPE, "application/json")], answer.body).into_response(),
        Some(bytes) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::HeaderName::from_static(JSON_BYTES), bytes.to_string()),
            ];
            (headers, answer.body).into_response()
        }
    };
    Ok(holding(response, received.place))
}
