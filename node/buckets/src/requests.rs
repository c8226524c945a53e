//! A thread that sends the requests of a bucket, so that callers can wait for each of them, or go on meanwhile.

use crate::limits::{BUCKET_CALL, BUCKET_LOOK, BUCKET_RETRIES, BUCKET_RETRY_AFTER};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;
use std::future::Future;
use std::io::ErrorKind::PermissionDenied;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{fmt, io};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The thread. It ends when this is dropped.
pub(crate) struct Requests {
    handle: Handle,
    /// Dropping it ends the thread.
    _running: oneshot::Sender<()>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}

/// A request whose answer has not been taken. Dropped, it is given up: it is not sent again.
pub(crate) struct Pending<T> {
    answer: Receiver<io::Result<T>>,
    request: AbortHandle,
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.request.abort(); // without an effect if it is answered
    }
}

impl Requests {
    pub(crate) fn start() -> io::Result<Requests> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (running, ended)) = (runtime.handle().clone(), oneshot::channel());
        let run = move || {
            // The sender is only dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        std::thread::Builder::new().name("bucket".into()).spawn(run)?;
        Ok(Requests { handle, _running: running })
    }

    /// Sends a request to a store.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Pending<T> {
        self.send(async move { request.await.map_err(bucket_error) })
    }

    /// Sends a request whose error is in words.
    pub(crate) fn send<T: Send + 'static>(
        &self,
        request: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Pending<T> {
        let (send, answer) = sync_channel(1);
        let request = self.handle.spawn(async move {
            // A caller that has gone needs no answer.
            let _ = send.send(request.await);
        });
        Pending { answer, request: request.abort_handle() }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> io::Result<T> {
        self.begin(request).wait()
    }
}

impl<T> Pending<T> {
    /// Waits for the answer.
    pub(crate) fn wait(self) -> io::Result<T> {
        self.wait_until(&AtomicBool::new(false))
    }

    /// Waits for the answer, until the flag is set.
    pub(crate) fn wait_until(self, stop: &AtomicBool) -> io::Result<T> {
        let mut waited = Duration::ZERO;
        loop {
            match self.answer.recv_timeout(BUCKET_LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that sends requests has ended"));
                }
                Err(RecvTimeoutError::Timeout) => waited += BUCKET_LOOK,
            }
            if stop.load(Relaxed) {
                return Err(io::Error::other("stop requested"));
            }
            if waited >= BUCKET_CALL {
                let seconds = BUCKET_CALL.as_secs();
                let why = format!("the object store gave no answer for {seconds} s: look at the network");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
    }
}

/// The error of the connection, if it is one. An answer of a store is none.
pub(crate) fn http_error(error: &Error) -> Option<HttpErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        cause = error.source();
    }
    None
}

/// Asks a store for something until the connection is not lost in the middle. The client by itself gives up where it
/// cannot know whether the store has the request; reading again does no harm.
pub(crate) async fn ask<T, F: Future<Output = Result<T, Error>>>(read: impl Fn() -> F) -> Result<T, Error> {
    let mut tries = 0;
    loop {
        match read().await {
            // The client tries again after a time limit.
            Err(error)
                if tries < BUCKET_RETRIES
                    && !is_without_tls(&error.to_string())
                    && http_error(&error).is_some_and(|kind| kind != HttpErrorKind::Timeout) =>
            {
                tries += 1;
                tokio::time::sleep(BUCKET_RETRY_AFTER).await;
            }
            done => return done,
        }
    }
}

/// What the texts of stores say of a bucket that does not exist.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"];

const CREDENTIALS: &str = "; look at the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                           GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY) and at their rights in this bucket";

/// Whether the client refuses an endpoint because it has no TLS.
fn is_without_tls(text: &str) -> bool {
    text.contains("http://") && text.contains("builder error")
}

/// What they say where the region is another.
const REGION: [&str; 3] = ["AuthorizationHeaderMalformed", "PermanentRedirect", "301 Moved Permanently"];

/// Where the client looks for credentials if the environment has none: a service inside the clouds.
const NO_CREDENTIALS: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// What they say where credentials are refused. The client does not tell such an answer to every kind of request from
/// other errors.
const REFUSED: [&str; 5] =
    ["401 Unauthorized", "403 Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"];

/// An error of a store, with what to do.
pub(crate) fn bucket_error(error: Error) -> io::Error {
    let text = error.to_string();
    let (kind, remedy) = match &error {
        _ if NO_BUCKET.iter().any(|words| text.contains(words)) => {
            (io::ErrorKind::Other, "; there is no such bucket: make it, or correct the URL or the endpoint")
        }
        _ if REGION.iter().any(|words| text.contains(words)) => (
            io::ErrorKind::Other,
            "; the bucket is in another region: set AWS_REGION to it, or AWS_ENDPOINT to its address",
        ),
        _ if is_without_tls(&text) => (
            io::ErrorKind::Other,
            "; the endpoint has no TLS: use one that has, or allow this by AWS_ALLOW_HTTP=true or AZURE_ALLOW_HTTP=true",
        ),
        _ if text.contains("non-partial response") => (
            io::ErrorKind::Other,
            "; does the object have the header Content-Encoding: gzip? then the store unpacks it, and gives no parts of \
             it: store it without that header",
        ),
        _ if text.contains("empty path segment") => (
            io::ErrorKind::Other,
            "; a name with two slashes cannot be read: rename the object, or name objects without a pattern or a folder \
             that has it",
        ),
        _ if NO_CREDENTIALS.iter().any(|words| text.contains(words)) => (PermissionDenied, CREDENTIALS),
        Error::NotFound { .. } => (io::ErrorKind::NotFound, "; there is no such object"),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => (io::ErrorKind::AlreadyExists, ""),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (PermissionDenied, CREDENTIALS),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => (
            io::ErrorKind::Unsupported,
            "; checkpoints need an object store that can write an object only if it is absent (If-None-Match)",
        ),
        _ if REFUSED.iter().any(|words| text.contains(words)) => (PermissionDenied, CREDENTIALS),
        _ => (io::ErrorKind::Other, "; look at the endpoint and the network"),
    };
    io::Error::new(kind, format!("{text}{remedy}"))
}
