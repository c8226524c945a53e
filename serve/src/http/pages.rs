//! Pages for orchestrators and monitoring systems.

use super::answers::failed;
use super::app::App;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// `GET /healthz`: the process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: the process should get requests.
pub async fn readyz(State(app): State<Arc<App>>) -> Response {
    match app.catalog.unready(app.max_age) {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// `GET /metrics`: Prometheus text.
pub async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Err(error) = app.check_token(&headers) {
        return failed(&error);
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], (app.metrics)()).into_response()
}
