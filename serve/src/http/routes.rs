//! Which page answers which address.

use super::app::App;
use super::{body, infer, pages, plain};
use crate::error::RequestError;
use crate::limits::RETRY_AFTER;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;

/// All pages.
pub fn router(app: Arc<App>) -> Router {
    let model = "/v2/models/{name}";
    let version = "/v2/models/{name}/versions/{version}";
    let mut router = Router::new()
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/metrics", get(pages::metrics))
        .route("/v1/predict", post(plain::predict))
        .route("/v2", get(infer::server))
        .route("/v2/", get(infer::server))
        .route("/v2/health/live", get(infer::live))
        .route("/v2/health/ready", get(infer::ready))
        .route("/v2/models", get(infer::models));
    for of in [model, version] {
        router = router
            .route(of, get(infer::model))
            .route(&format!("{of}/ready"), get(infer::model_ready))
            .route(&format!("{of}/infer"), post(infer::infer));
    }
    #[cfg(feature = "grpc")]
    let router = router.route("/inference.GRPCInferenceService/{method}", post(crate::grpc::call));
    router.fallback(unknown).method_not_allowed_fallback(other_method).with_state(app)
}

async fn unknown(uri: Uri) -> Response {
    failed(&RequestError::NotFound(format!(
        "there is no page {}: predictions are at /v1/predict and /v2/models/NAME/infer",
        uri.path()
    )))
}

async fn other_method(uri: Uri) -> Response {
    let what =
        format!("{} has another method: predictions are asked with POST, the rest with GET", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, json(&json!({"error": what}))).into_response()
}

/// An answer in JSON.
pub fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// The answer to a request that has failed.
pub fn failed(error: &RequestError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, json(&json!({"error": error.to_string()}))).into_response();
    if matches!(error, RequestError::TooLarge { .. } | RequestError::TooSlow { .. }) {
        // A part of the body may be unread.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if matches!(error, RequestError::Busy(_)) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}

/// The answer to a request that is refused before its body is read. A body that nobody reads ends the connection, which
/// a client must know: it would lose its next request.
pub async fn refused(app: &App, error: &RequestError, headers: &HeaderMap, rest: Body) -> Response {
    let is_read = body::forget(headers, rest, app.limits.body_bytes).await;
    let mut response = failed(error);
    if !is_read {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
