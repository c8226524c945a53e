//! Which page answers which address.

use super::answers::{failed, json};
use super::app::App;
use super::{infer, learn, pages, plain};
use crate::error::RequestError;
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json as object;
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
        .route("/v1/learn", post(learn::learn))
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
    (StatusCode::METHOD_NOT_ALLOWED, json(&object!({"error": what}))).into_response()
}
