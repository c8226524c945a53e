//! A request for predictions that has been let in and read.

use super::admission::Admitted;
use super::answers::failed;
use super::app::App;
use super::body;
use crate::counters::Lasting;
use crate::error::RequestError;
use crate::scores::Deadline;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

/// A request and its places.
pub struct Received<'a> {
    /// Its body.
    pub bytes: Vec<u8>,
    /// When it must have its answer.
    pub deadline: Deadline,
    /// What it holds until its answer is sent.
    pub place: Admitted,
    /// Counts it until it is answered.
    pub count: Lasting<'a>,
}

/// Lets a request in and reads it.
///
/// # Errors
/// The answer to one that is refused, or cannot be read.
pub async fn receive<'a>(app: &'a App, headers: &HeaderMap, rest: Body) -> Result<Received<'a>, Response> {
    let mut place = match app.admit(headers) {
        Ok(place) => place,
        Err(error) => return Err(refused(app, &error, headers, rest).await),
    };
    let (deadline, count) = (Deadline::after(app.limits.time), app.counters.begin());
    let read = body::read(headers, rest, &mut place, (app.limits.body_bytes, deadline)).await;
    let bytes = read.map_err(|error| failed(&error))?;
    Ok(Received { bytes, deadline, place, count })
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
