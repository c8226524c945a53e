//! The bodies of requests: bounded, and unpacked if they are packed.

use crate::error::RequestError;
use crate::limits::REST_TIME;
use crate::scores::Deadline;
use axum::body::{Body, HttpBody, to_bytes};
use axum::http::{HeaderMap, header};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use std::future::poll_fn;
use std::io::Read;
use std::pin::Pin;

/// The number in a header. `None`: it is not there.
///
/// # Errors
/// It is no number.
pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<usize>, RequestError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| RequestError::Bad(format!("the header {name} is no number: {value:?}")))
}

/// The most bytes that a request may send: what it says, or the limit.
///
/// # Errors
/// It says more than the limit.
pub fn announced(headers: &HeaderMap, most: usize) -> Result<usize, RequestError> {
    match number(headers, "content-length")? {
        Some(bytes) if bytes > most => Err(RequestError::TooLarge { most }),
        Some(bytes) if !headers.contains_key(header::CONTENT_ENCODING) => Ok(bytes),
        _ => Ok(most),
    }
}

/// Reads a body.
///
/// # Errors
/// It is too large, comes too slowly, or is packed in another way.
pub async fn read(
    headers: &HeaderMap,
    body: Body,
    most: usize,
    deadline: Deadline,
) -> Result<Vec<u8>, RequestError> {
    let read = tokio::time::timeout(deadline.left(), to_bytes(body, most)).await;
    let bytes = read.map_err(|_| deadline.error())?.map_err(|error| {
        let is_large =
            std::error::Error::source(&error).is_some_and(|why| why.to_string().contains("length limit"));
        match is_large {
            true => RequestError::TooLarge { most },
            false => RequestError::Bad(format!("the body ended early: {error}")),
        }
    })?;
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase()) {
        None => Ok(bytes.into()),
        Some(name) if name == b"identity" => Ok(bytes.into()),
        Some(name) if name == b"gzip" => unpacked(MultiGzDecoder::new(&bytes[..]), most),
        Some(name) if name == b"deflate" => unpacked(ZlibDecoder::new(&bytes[..]), most),
        Some(name) => Err(RequestError::Encoding(String::from_utf8_lossy(&name).into_owned())),
    }
}

/// Reads a body and forgets it, so that its connection can carry the next request. False: it is larger than the limit,
/// comes too slowly, or the client has not begun to send it.
pub async fn forget(headers: &HeaderMap, mut body: Body, most: usize) -> bool {
    if headers.contains_key(header::EXPECT) || announced(headers, most).is_err() {
        return false;
    }
    let rest = async {
        let mut left = most;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let bytes = frame.map(|frame| frame.data_ref().map_or(0, |bytes| bytes.len()));
            let Some(rest) = bytes.ok().and_then(|bytes| left.checked_sub(bytes)) else { return false };
            left = rest;
        }
        true
    };
    tokio::time::timeout(REST_TIME, rest).await.unwrap_or(false)
}

/// Unpacks a body, but no more than the limit.
fn unpacked(decoder: impl Read, most: usize) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let read = decoder.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| RequestError::Bad(format!("the packed body is damaged: {error}")))?;
    if bytes.len() > most { Err(RequestError::TooLarge { most }) } else { Ok(bytes) }
}
