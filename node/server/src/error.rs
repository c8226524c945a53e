//! Why a server cannot run.

use crate::places::folder_error::PlaceFolderError;
use crate::places::incarnations::CounterError;
use crate::restore::error::RestoreError;
use gannet_transport::NetError;
use gannet_wire::StateFileError;

/// Why a server cannot run.
///
/// ```
/// use gannet_server::{Server, ServerConfig, ServerError};
/// # use gannet_transport::multi::Transports;
///
/// let config = ServerConfig { threads: 0, ..ServerConfig::new("127.0.0.1:0") };
/// match Server::start(Transports::new(), config) {
///     Err(ServerError::Config { what, .. }) => assert_eq!(what, "--threads"),
///     Err(error) => println!("{error}"),
///     Ok(server) => println!("serving at {}", server.addr()),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The network refused.
    #[error(transparent)]
    Net(#[from] NetError),
    /// An option is out of range.
    #[error("{what} is {got}; {allowed} is allowed")]
    Config {
        /// Which option.
        what: &'static str,
        /// The value.
        got: usize,
        /// The allowed values, in words.
        allowed: String,
    },
    /// The system gave no thread.
    #[error("cannot start a server thread: {0}")]
    Thread(std::io::Error),
    /// A thread died: which, and why.
    #[error("the server ended: {0}")]
    Died(String),
    /// This server may not own its shards: why, and what to do.
    #[error("this server may not own its shards: {0}")]
    Deposed(String),
    /// The scheduler's job state or the registry of runs cannot be read or written.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// The counter of incarnations cannot be read.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// A checkpoint cannot be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The data folder cannot be used for the server's place.
    #[error(transparent)]
    PlaceFolder(#[from] PlaceFolderError),
    /// The system gave no random number to distinguish this incarnation of the server.
    #[error("cannot draw a random number for this incarnation of the server: {source}")]
    Incarnation {
        /// The system's error.
        source: std::io::Error,
    },
    /// The images could not be closed properly.
    #[error(
        "table {table:?}: cannot close its images: {source}; they are whole, but a machine that goes down now may tear them"
    )]
    Close {
        /// Which table.
        table: String,
        /// The system's error.
        source: std::io::Error,
    },
}
