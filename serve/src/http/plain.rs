//! `POST /v1/predict`: predictions for people and scripts. A body of JSON objects or of lines in the training format, a
//! score a line back.

use super::answers::failed;
use super::app::App;
use super::held_body::holding;
use super::keeping::Keeping;
use super::received::{Received, receive, refused};
use crate::depth::check_depth;
use crate::error::RequestError;
use crate::limits::ANSWER_BODIES;
use crate::models::{Chosen, TextForm};
use crate::scores::{explained_lines, score};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use gannet::train::CsvForm;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The place of these requests among the [kinds](crate::counters::KINDS).
const KIND: usize = 1;

/// What an address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The name of the model. None: the first one.
    model: Option<String>,
    /// Its version. None: the current one.
    version: Option<String>,
    /// Whether contributions are wanted.
    #[serde(default)]
    explain: bool,
    /// What separates the fields of CSV, as `--delimiter` says it.
    delimiter: Option<String>,
}

/// Answers a request.
pub async fn predict(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let began = Instant::now();
    let response = match asked {
        Ok(Query(asked)) => match receive(&app, &headers, body).await {
            Ok(received) => {
                let answered = answered(&app, &asked, &headers, received).await;
                answered.unwrap_or_else(|error| failed(&error))
            }
            Err(response) => response,
        },
        Err(error) => {
            let what = error.body_text();
            let what = format!("{what}: the address may have model=, version=, delimiter= and explain=true");
            refused(&app, &RequestError::Bad(what), &headers, body).await
        }
    };
    app.counters.answered(KIND, response.status().as_u16(), began.elapsed());
    response
}

async fn answered(
    app: &App,
    asked: &Asked,
    headers: &HeaderMap,
    received: Received<'_>,
) -> Result<Response, RequestError> {
    let Received { bytes, deadline, place, count: _count } = received;
    let size = bytes.len();
    let id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    let Chosen { slot, model } = app.catalog.choose(asked.model.as_deref(), asked.version.as_deref(), id)?;
    let is_json = is_json(headers, &bytes);
    let delimiter = asked.delimiter.as_deref().map(CsvForm::parse_delimiter).transpose();
    let delimiter = delimiter.map_err(|what| RequestError::Bad(format!("delimiter: {what}")))?;
    let most = ANSWER_BODIES * app.limits.body_bytes;
    let keeping = Keeping::of(app, id, &model);
    let mut kept = None;
    let work = || {
        let (form, bytes) = match is_json {
            true => (TextForm::Json, objects(bytes)?),
            false => (TextForm::Own, bytes),
        };
        let lines = keeping.map(|keeping| keeping.lines(is_json, delimiter, &bytes));
        let mut data = model.data(form, bytes)?;
        data.csv.delimiter = delimiter;
        if asked.explain {
            return explained_lines(&model, &data, (most, deadline));
        }
        let scores = score(&model, &data, (most, deadline))?;
        app.counters.examples.fetch_add(scores.forecasts.len() as u64, Relaxed);
        kept = keeping.zip(lines).map(|(keeping, lines)| keeping.keep(lines, scores.forecasts.len()));
        Ok(scores.lines())
    };
    let text = app.admission.compute(size, deadline, work).await?;
    let kind = if asked.explain { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::HeaderName::from_static("gannet-model"), slot.name.clone()),
        (header::HeaderName::from_static("gannet-version"), model.version.clone()),
    ];
    let mut response = (headers, text).into_response();
    if let Some(kept) = kept {
        response.headers_mut().insert("gannet-kept", kept.into());
    }
    Ok(holding(response, place))
}

/// The mark that some programs write before a text in UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A body without that mark and without white space at its ends.
fn trimmed(body: &[u8]) -> &[u8] {
    body.strip_prefix(MARK).unwrap_or(body).trim_ascii()
}

/// Whether a body is JSON: its type says so, or it begins like JSON, which no line of another format does.
fn is_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind.split(';').next().unwrap_or_default().trim() {
        "text/plain" | "text/csv" => false,
        kind if kind.ends_with("json") => true,
        // curl sends a type of forms unless it is told another.
        _ => matches!(trimmed(body).first(), Some(b'{' | b'[')),
    }
}

/// Objects as lines. A list of objects, or one object over several lines, becomes a line for each object.
fn objects(body: Vec<u8>) -> Result<Vec<u8>, RequestError> {
    let text = trimmed(&body);
    let is_list = text.starts_with(b"[");
    // Lines of objects stay as they are, so that the texts of their numbers do.
    if !is_list && text.split(|&byte| byte == b'\n').all(|line| is_whole(line.trim_ascii())) {
        return Ok(text.to_vec());
    }
    check_depth(text)?;
    let bad = |error: sonic_rs::Error| {
        let what = error.to_string();
        RequestError::Bad(format!("the body is no JSON: {}", what.lines().next().unwrap_or_default()))
    };
    let mut lines = Vec::with_capacity(text.len());
    let mut put = |object: &str| {
        lines.extend(object.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        lines.push(b'\n');
    };
    let whole = sonic_rs::from_slice::<sonic_rs::LazyValue<'_>>(text).map_err(bad)?;
    match is_list {
        true => {
            for object in sonic_rs::to_array_iter(whole.as_raw_str()) {
                put(object.map_err(bad)?.as_raw_str());
            }
        }
        false => put(whole.as_raw_str()),
    }
    Ok(lines)
}

/// Whether a line may be a whole object.
fn is_whole(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"{") && line.ends_with(b"}")
}
