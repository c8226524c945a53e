//! Checkpoints in buckets and data in objects: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure, and
//! for data plain web servers.
//!
//! ```text
//! CheckpointDir -> BucketStore (calls that wait)   bucket, upload, download
//!                  objects that must not exist     put
//!                  one thread with a runtime       requests
//! ObjectReader  -> ranges of an object, ahead      object_reader
//!                  what and where it is            objects
//!                  plain web servers               web
//! ```
#![forbid(unsafe_code)]

mod bucket;
mod download;
mod limits;
mod object_reader;
mod objects;
mod put;
mod requests;
mod upload;
mod web;

pub use object_reader::{ObjectReader, ReadAhead, WholeObject};
pub use objects::{
    ListedObjects, ObjectFacts, is_object_url, list_objects, look_at_object, object_facts, object_head,
    see_object,
};

use crate::bucket::BucketStore;
use gannet_core::CheckpointDir;
use std::sync::Arc;

/// Why a bucket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The URL names no bucket, or the environment has settings that do not fit.
    #[error("{url}: this is no bucket that can be used: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The thread that sends requests cannot be started.
    #[error("{url}: starting the thread that sends requests: {source}")]
    Thread {
        /// The URL.
        url: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// Opens a checkpoint directory in a bucket: `s3://BUCKET/PATH`, `gs://BUCKET/PATH`, `az://CONTAINER/PATH`, or the
/// `https://` address of one. Credentials and settings come from the environment: `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP` for S3; `GOOGLE_SERVICE_ACCOUNT` for Google;
/// `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY` for Azure; and the others that the crate `object_store`
/// knows. No request is sent before the directory is used.
///
/// ```
/// // Nothing is sent yet.
/// let directory = gannet_buckets::open_bucket("s3://models/ctr")?;
/// assert_eq!(directory.path().to_str(), Some("s3://models/ctr"));
/// assert!(gannet_buckets::open_bucket("ftp://models/ctr").is_err());
/// # Ok::<(), gannet_buckets::BucketError>(())
/// ```
///
/// # Errors
/// The URL names no bucket, or the environment has a setting that cannot be used.
pub fn open_bucket(url: &str) -> Result<CheckpointDir, BucketError> {
    let store = BucketStore::open(url)?;
    Ok(CheckpointDir::with_store(url.trim_end_matches('/'), Arc::new(store)))
}
