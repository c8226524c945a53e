//! The bodies of requests: bounded, and unpacked if they are packed.

use super::admission::Admitted;
use crate::error::RequestError;
use crate::limits::REST_TIME;
use crate::scores::Deadline;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt;
use std::io::Read;

/// A packed body is unpacked in pieces of so many bytes, which are counted.
const PIECE: u64 = 256 << 10;

/// The number in a header. `None`: it is not there.
///
/// # Errors
/// It is no number.
pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<usize>, RequestError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| RequestError::Bad(format!("the header {name} is no number: {value:?}")))
}

/// The bytes that a request says it has.
///
/// # Errors
/// It says more than the limit, or no number.
pub fn announced(headers: &HeaderMap, most: usize) -> Result<Option<usize>, RequestError> {
    match number(headers, "content-length")? {
        Some(bytes) if bytes > most => Err(RequestError::TooLarge { most }),
        bytes => Ok(bytes),
    }
}

/// Reads a body. Its bytes are counted while they come.
///
/// # Errors
/// It is too large, comes too slowly, or is packed in another way; or all requests together are too large.
pub async fn read(
    headers: &HeaderMap,
    body: Body,
    admitted: &mut Admitted,
    (most, deadline): (usize, Deadline),
) -> Result<Vec<u8>, RequestError> {
    let announced = announced(headers, most)?;
    let collected = collect(body, admitted, most, announced.unwrap_or(0));
    let bytes = tokio::time::timeout(deadline.left(), collected).await.map_err(|_| deadline.error())??;
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase()) {
        None => Ok(bytes),
        Some(name) if name == b"identity" => Ok(bytes),
        Some(name) if name == b"gzip" => unpacked(MultiGzDecoder::new(&bytes[..]), admitted, most),
        Some(name) if name == b"deflate" => unpacked(ZlibDecoder::new(&bytes[..]), admitted, most),
        Some(name) => Err(RequestError::Encoding(String::from_utf8_lossy(&name).into_owned())),
    }
}

async fn collect(
    mut body: Body,
    admitted: &mut Admitted,
    most: usize,
    announced: usize,
) -> Result<Vec<u8>, RequestError> {
    admitted.hold(announced)?;
    let mut bytes = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| RequestError::Bad(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(RequestError::TooLarge { most });
        }
        admitted.hold(bytes.len() + data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads a body and forgets it, so that its connection can carry the next request. False: it is larger than the limit,
/// comes too slowly, or the client has not begun to send it.
pub async fn forget(headers: &HeaderMap, mut body: Body, most: usize) -> bool {
    if headers.contains_key(header::EXPECT) || announced(headers, most).is_err() {
        return false;
    }
    let rest = async {
        let mut left = most;
        while let Some(frame) = body.frame().await {
            let bytes = frame.map(|frame| frame.data_ref().map_or(0, |bytes| bytes.len()));
            let Some(rest) = bytes.ok().and_then(|bytes| left.checked_sub(bytes)) else { return false };
            left = rest;
        }
        true
    };
    tokio::time::timeout(REST_TIME, rest).await.unwrap_or(false)
}

/// Unpacks a body, but no more than the limit.
fn unpacked(decoder: impl Read, admitted: &mut Admitted, most: usize) -> Result<Vec<u8>, RequestError> {
    let (mut bytes, mut decoder) = (Vec::new(), decoder.take(most as u64 + 1));
    loop {
        let before = bytes.len();
        let read = decoder.by_ref().take(PIECE).read_to_end(&mut bytes);
        read.map_err(|error| RequestError::Bad(format!("the packed body is damaged: {error}")))?;
        if bytes.len() > most {
            return Err(RequestError::TooLarge { most });
        }
        if bytes.len() == before {
            return Ok(bytes);
        }
        admitted.hold(2 * bytes.len())?;
    }
}
