//! Why a call of a worker fails.

use gannet_core::{CheckpointDirError, CheckpointError, OpenError};
use gannet_transport::{LinkError, NetError};
use gannet_wire::refusal::Refusal;
use gannet_wire::sharded_keys::KeysError;
use std::sync::Arc;
use std::time::Duration;

/// Why a worker cannot go on.
///
/// ```
/// use gannet_worker::{Worker, WorkerConfig, WorkerError};
/// use std::time::Duration;
/// # use gannet_transport::multi::Transports;
///
/// // No server listens there.
/// let config = WorkerConfig::builder(["127.0.0.1:1"]).peer_timeout(Duration::from_millis(100)).build();
/// match Worker::connect(Transports::new(), config) {
///     Err(WorkerError::PeerLost { peer, .. }) => assert!(peer.starts_with("127.0.0.1:1")),
///     Err(error) => println!("{error}"),
///     Ok(worker) => println!("connected over {}", worker.transport()),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The peer could not be reached, or did not answer, within the time limit.
    #[error("{peer} has not answered for {:.1} s (--peer-timeout): {why}", waited.as_secs_f64())]
    PeerLost {
        /// Its address and thread.
        peer: Arc<str>,
        /// Time since its last answer.
        waited: Duration,
        /// What happened last.
        why: String,
    },
    /// The server refused.
    #[error("{peer} refused {what}: {text}")]
    Refused {
        /// Its address and thread.
        peer: Arc<str>,
        /// The request.
        what: String,
        /// The kind of refusal.
        refusal: Refusal,
        /// The server's text.
        text: String,
    },
    /// A server restarted without rows that it had before.
    #[error(
        "{peer} was started again without the rows that it had of table {table:?} ({shards}): they are gone; \
         if the job went back to a checkpoint, start this process again, and it goes on from there; otherwise start \
         that server on its --data-dir, or begin the training again"
    )]
    Forgot {
        /// Its address and thread.
        peer: Arc<str>,
        /// Which table.
        table: String,
        /// Which shards, in words.
        shards: String,
    },
    /// The parts of a table that the servers hold do not fit together, or do not fit the given servers.
    #[error("{0}")]
    Identity(String),
    /// A server has nothing of a table that the others have.
    #[error("{0}")]
    Gone(String),
    /// Another worker is silent, and the group does not go on without it.
    #[error(
        "worker {rank}, which is at clock {clock}, has given no sign for {:.1} s (--worker-timeout), and a deterministic job does not go on without it",
        silent.as_secs_f64()
    )]
    WorkerLost {
        /// Its rank.
        rank: u32,
        /// Its clock.
        clock: u64,
        /// Time since its last sign of life.
        silent: Duration,
    },
    /// The network refused.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A link ended. Inside the worker this leads to a reconnect.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The peer's answer does not follow the protocol. Inside the worker this leads to a reconnect.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Its address and thread.
        peer: Arc<str>,
        /// What is wrong with it.
        what: String,
    },
    /// The peer did not prove that it has the token.
    #[error(
        "{peer} did not prove that it has the token of --token-file: it is not the server that is meant, or was given another token"
    )]
    Impostor {
        /// Its address and thread.
        peer: Arc<str>,
    },
    /// The attempt to connect failed before the peer had proved that it is the server, where another process of this
    /// host may be in the server's place.
    #[error("{source}; {who}")]
    Unproved {
        /// The failure.
        source: Box<WorkerError>,
        /// Which process it is, and what to do.
        who: String,
    },
    /// A wrong call.
    #[error("{0}")]
    Call(String),
    /// The schema is not valid.
    #[error(transparent)]
    Schema(#[from] OpenError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The checkpoint of a job cannot be read or written.
    #[error(transparent)]
    CheckpointDir(#[from] CheckpointDirError),
    /// A checkpoint was given up.
    #[error("{0}")]
    Cut(String),
    /// A server could not write its files of a checkpoint.
    #[error("{0}")]
    CutFiles(String),
}

impl From<KeysError> for WorkerError {
    fn from(error: KeysError) -> WorkerError {
        WorkerError::Call(error.to_string())
    }
}
