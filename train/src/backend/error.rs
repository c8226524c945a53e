//! Why rows cannot be read or written.

use gannet_core::{OpenError, PullError, PushError};
use gannet_worker::WorkerError;

/// Why rows cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The servers failed, or the connection to them.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The shards cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The shards refused a pull.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The shards refused a push.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The table in this process is full.
    #[error(
        "the table in this process has {rows} rows, and its limit is {limit} cells: train with servers (--ps-hosts)"
    )]
    Full {
        /// The table's rows.
        rows: u64,
        /// The most cells of the table.
        limit: u64,
    },
    /// The table in this process would exceed its memory limit.
    #[error(
        "the table in this process has {rows} rows and needs {bytes} bytes to grow, but its memory limit is {limit}: raise it \
         (--memory-limit), or train with servers (--ps-hosts)"
    )]
    Memory {
        /// The table's rows.
        rows: u64,
        /// Bytes for the old and the new cells.
        bytes: u64,
        /// The memory limit, in bytes.
        limit: u64,
    },
    /// The table's schema does not fit the model.
    #[error("{0}")]
    Schema(String),
    /// The images could not be closed.
    #[error("the images cannot be written to disk: {0}")]
    Close(#[from] std::io::Error),
    /// The caller called the methods in a wrong order.
    #[error("{0}")]
    Order(&'static str),
}
