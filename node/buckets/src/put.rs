//! Writes an object that must not exist, also where answers are lost.

use crate::limits::{BUCKET_RETRIES, BUCKET_RETRY_AFTER};
use crate::requests::http_error;
use crate::upload::Place;
use object_store::client::HttpErrorKind;
use object_store::{Error, ObjectStoreExt, PutMode, PutPayload};
use std::io;

/// Writes an object unless there is another one of this name.
///
/// A request whose answer is lost is sent again. The store then refuses it if the first one was carried out, so an
/// object with the same bytes counts as written.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`]: there is an object with other bytes, which stays. Or the store cannot be reached.
pub(crate) fn put_new((requests, objects, path): &Place, bytes: Vec<u8>) -> io::Result<()> {
    let (objects, path, payload) = (objects.clone(), path.clone(), PutPayload::from(bytes));
    requests.wait(async move {
        let mut tries = 0;
        loop {
            let put = objects.put_opts(&path, payload.clone(), PutMode::Create.into()).await;
            match put {
                Err(error) if tries < BUCKET_RETRIES && is_lost(&error) => {
                    tries += 1;
                    tokio::time::sleep(BUCKET_RETRY_AFTER).await;
                }
                Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. })) => {
                    let found = objects.get(&path).await?.bytes().await?;
                    let own = payload.iter().flatten().eq(found.iter());
                    return if own { Ok(()) } else { Err(error) };
                }
                done => return done.map(drop),
            }
        }
    })
}

/// Whether the answer of a request was lost, so that it may have been carried out. The client does not send such a
/// request again by itself.
fn is_lost(error: &Error) -> bool {
    matches!(http_error(error), Some(HttpErrorKind::Timeout | HttpErrorKind::Interrupted))
}
