//! Answers that all pages give.

use crate::error::RequestError;
use crate::limits::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};

/// An answer in JSON.
pub fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// The answer to a request that has failed.
pub fn failed(error: &RequestError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, json(&object!({"error": error.to_string()}))).into_response();
    if matches!(error, RequestError::TooLarge { .. } | RequestError::TooSlow { .. }) {
        // A part of the body may be unread.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if matches!(error, RequestError::Busy(_)) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}
