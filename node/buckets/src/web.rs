//! Objects of plain web servers. A server that knows ranges is asked for parts; from another one the object is read
//! from its beginning.

use crate::limits::{BUCKET_RETRIES, BUCKET_RETRY_AFTER};
use crate::objects::{ObjectFacts, changed};
use reqwest::header::{CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use std::error::Error;
use std::io;
use std::ops::Range;

/// An error with its causes, without the URL: whoever reports it names that.
pub(crate) fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Asks for an object, or for a part of it. What may pass is tried again.
async fn get(client: &Client, url: &Url, part: Option<String>) -> io::Result<Response> {
    let mut tries = 0;
    loop {
        let mut request = client.get(url.clone());
        if let Some(part) = &part {
            request = request.header(RANGE, part);
        }
        let why = match request.send().await {
            Ok(answer) if may_pass(answer.status()) => format!("the server answers {}", answer.status()),
            Ok(answer) => return Ok(answer),
            Err(error) => words(error),
        };
        pause(&mut tries, why).await?;
    }
}

fn may_pass(status: StatusCode) -> bool {
    let asks_to_wait = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || asks_to_wait.contains(&status)
}

/// Waits before the next try. After the last one it is the error.
pub(crate) async fn pause(tries: &mut usize, why: String) -> io::Result<()> {
    *tries += 1;
    if *tries > BUCKET_RETRIES {
        return Err(io::Error::other(format!(
            "{why}; that was so {tries} times: look at the server and the network"
        )));
    }
    tokio::time::sleep(BUCKET_RETRY_AFTER * *tries as u32).await;
    Ok(())
}

/// The error of an answer that is final.
fn refused(status: StatusCode) -> io::Error {
    let (kind, remedy) = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (
            io::ErrorKind::PermissionDenied,
            "a signed URL may have run out; no credentials are sent to plain web servers: for a bucket say s3://, gs:// \
             or az://",
        ),
        StatusCode::NOT_FOUND | StatusCode::GONE => (io::ErrorKind::NotFound, "correct the URL"),
        _ => (io::ErrorKind::Other, "look at the URL and the server"),
    };
    io::Error::new(kind, format!("the server answers {status}; {remedy}"))
}

/// What the head of an answer says of the object.
pub(crate) fn facts(answer: &Response) -> ObjectFacts {
    let text = |name| answer.headers().get(&name).and_then(|value| value.to_str().ok());
    let version = text(ETAG).or(text(LAST_MODIFIED)).unwrap_or_default().to_owned();
    let ranges = answer.status() == StatusCode::PARTIAL_CONTENT;
    let whole = |range: &str| range.rsplit_once('/')?.1.parse().ok();
    let bytes = if ranges { text(CONTENT_RANGE).and_then(whole) } else { answer.content_length() };
    // Without its length an object cannot be cut into parts.
    ObjectFacts { bytes, ranges: ranges && bytes.is_some(), version }
}

/// The first byte of the part that an answer has, if it says so.
fn first_byte(answer: &Response) -> Option<u64> {
    let range = answer.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.trim_start().strip_prefix("bytes")?.trim_start().split_once('-')?.0.parse().ok()
}

pub(crate) async fn look(client: &Client, url: &Url) -> io::Result<ObjectFacts> {
    let answer = get(client, url, Some("bytes=0-0".into())).await?;
    match answer.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(facts(&answer)),
        // An object without bytes has no first one.
        StatusCode::RANGE_NOT_SATISFIABLE => Ok(facts(&whole(client, url).await?)),
        status => Err(refused(status)),
    }
}

/// Begins to read an object from its beginning.
pub(crate) async fn whole(client: &Client, url: &Url) -> io::Result<Response> {
    let answer = get(client, url, None).await?;
    if answer.status() == StatusCode::OK { Ok(answer) } else { Err(refused(answer.status())) }
}

/// Reads a part of an object. A body that is cut is continued where it was cut.
pub(crate) async fn range(
    client: &Client,
    url: &Url,
    range: Range<u64>,
    then: &ObjectFacts,
) -> io::Result<Vec<u8>> {
    let asked = (range.end - range.start) as usize;
    let (mut bytes, mut tries) = (Vec::with_capacity(asked), 0);
    while bytes.len() < asked {
        let from = range.start + bytes.len() as u64;
        let mut answer = get(client, url, Some(format!("bytes={from}-{}", range.end - 1))).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
            status => return Err(refused(status)),
        }
        let now = facts(&answer);
        if now != *then {
            return Err(changed(then, &now));
        }
        if let Some(other) = first_byte(&answer).filter(|first| *first != from) {
            return Err(io::Error::other(format!(
                "the server was asked for the bytes from {from} on, and says that it sends those from {other} on; \
                 download the object and name the file"
            )));
        }
        let before = bytes.len();
        let why = loop {
            match answer.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() <= asked => bytes.extend_from_slice(&chunk),
                Ok(Some(_)) => break "the server sends more bytes than it was asked for".to_owned(),
                Ok(None) => break "the server ends its answer too early".to_owned(),
                Err(error) => break words(error),
            }
        };
        if bytes.len() > before {
            tries = 0;
        }
        if bytes.len() < asked {
            pause(&mut tries, why).await?;
        }
    }
    Ok(bytes)
}
