//! What can go wrong in the roles, by family. Every error names the peer, the limit and the remedy where there is one.

use crate::runs::RunsError;
use crate::scheduler::JobStateFileError;
use crate::server::PlaceFolderError;
use crate::server::incarnations::CounterError;
use crate::server::restore::RestoreError;
use crate::sharded_keys::KeysError;
use gannet_core::{CheckpointDirError, CheckpointError, OpenError, PullError, PushError};
use gannet_transport::{LinkError, NetError};
use std::sync::Arc;
use std::time::Duration;

/// Why a server refused a request: the code on the wire. The link stays open.
///
/// ```
/// use gannet_core::Schema;
/// use gannet_node::{Refusal, WorkerError};
/// use gannet_optim::{Add, Rule};
/// # use gannet_node::{Server, ServerConfig, Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
///
/// let schema = Schema::scalar("clicks", Rule::Add(Add));
/// worker.open_table(&schema)?;
/// let other = worker.open_table(&Schema { dim: 2, ..schema });
/// assert!(matches!(other, Err(WorkerError::Refused { refusal: Refusal::Mismatch, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a request, or one whose lengths do not fit.
    Malformed = 1,
    /// No such table or thread.
    Unknown = 2,
    /// The table was opened with another schema, number of servers or position among them.
    Mismatch = 3,
    /// A key of a shard that this server does not own.
    WrongShard = 4,
    /// A newer incarnation of the pusher exists.
    Fenced = 5,
    /// No memory or disk for new rows: resend when there is some.
    NoSpace = 6,
    /// The server does not keep this keyset: send the keys. It also refuses later pushes of the session, to preserve
    /// their order.
    NoKeyset = 7,
    /// An earlier push of the session was refused: resend everything from there on, over a new session.
    Blocked = 8,
    /// A limit of the server.
    Limit = 9,
    /// The images cannot be opened.
    Images = 10,
    /// The push does not follow the last one that the shard remembers of its pusher.
    Name = 11,
    /// The connection did not prove that it has the server's token, or the server has none to prove.
    Token = 12,
    /// The connection does not use TLS as it should. Only counted: no refusal could be sent.
    Tls = 13,
    /// The server holds nothing of the table, or another table than requested: ask what it holds.
    Identity = 14,
    /// A cut was given up, or cannot begin now: begin the checkpoint again.
    Cut = 15,
    /// Another server owns the shards: ask the coordinator which, and go there.
    Moved = 16,
}

impl Refusal {
    /// All refusals with their names in metrics. The code on the wire is the position plus 1.
    const NAMED: [(Refusal, &str); 16] = [
        (Refusal::Malformed, "malformed"),
        (Refusal::Unknown, "unknown"),
        (Refusal::Mismatch, "mismatch"),
        (Refusal::WrongShard, "wrong_shard"),
        (Refusal::Fenced, "fenced"),
        (Refusal::NoSpace, "no_space"),
        (Refusal::NoKeyset, "no_keyset"),
        (Refusal::Blocked, "blocked"),
        (Refusal::Limit, "limit"),
        (Refusal::Images, "images"),
        (Refusal::Name, "name"),
        (Refusal::Token, "token"),
        (Refusal::Tls, "tls"),
        (Refusal::Identity, "identity"),
        (Refusal::Cut, "cut"),
        (Refusal::Moved, "moved"),
    ];
    /// Number of refusals.
    pub(crate) const COUNT: usize = Refusal::NAMED.len();

    pub(crate) fn of(code: u16) -> Refusal {
        let named = Refusal::NAMED.into_iter().find(|(refusal, _)| *refusal as u16 == code);
        named.map_or(Refusal::Malformed, |(refusal, _)| refusal)
    }

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        Refusal::NAMED[self.place()].1
    }

    /// All names, by [`place`](Self::place).
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Refusal::NAMED.into_iter().map(|(_, name)| name)
    }

    /// The position of this refusal's counter.
    pub(crate) fn place(self) -> usize {
        self as usize - 1
    }

    pub(crate) fn of_pull(error: &PullError) -> Refusal {
        match error {
            PullError::WrongShard { .. } => Refusal::WrongShard,
            _ => Refusal::Malformed,
        }
    }

    pub(crate) fn of_push(error: &PushError) -> Refusal {
        match error {
            PushError::Keys(error) => Refusal::of_pull(error),
            PushError::Fenced { .. } | PushError::Forgotten { .. } => Refusal::Fenced,
            PushError::Program { .. } | PushError::NoCount(_) => Refusal::Malformed,
            PushError::TooManyPushers { .. } | PushError::Limit { .. } => Refusal::Limit,
            PushError::NoSpace { .. } => Refusal::NoSpace,
            PushError::Unfinished { .. } | PushError::Gap { .. } => Refusal::Name,
            _ => Refusal::Malformed,
        }
    }

    /// Whether the worker must resend everything from the refused push on, over a new session.
    pub(crate) fn asks_for_resend(self) -> bool {
        matches!(self, Refusal::NoSpace | Refusal::NoKeyset | Refusal::Blocked)
    }
}

/// The text for a worker that was replaced by a newer incarnation, or given up.
pub(crate) const REPLACED: &str = "a newer incarnation of this worker is there, or the others went on without it (--worker-timeout): if two \
    processes have one --task-index, give each its own; if not, start it again";

/// Why a server cannot run.
///
/// ```
/// use gannet_node::{Server, ServerConfig, ServerError};
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
    /// The scheduler's job state file cannot be read or written.
    #[error(transparent)]
    StateFile(#[from] JobStateFileError),
    /// The registry of runs cannot be read.
    #[error(transparent)]
    Runs(#[from] RunsError),
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

/// Why a worker cannot go on.
///
/// ```
/// use gannet_node::{Worker, WorkerConfig, WorkerError};
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
        "{peer} was started again without the rows that it had of table {table:?} ({shards}): they are gone; start it on its \
         --data-dir, or start the training again"
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
}

impl From<KeysError> for WorkerError {
    fn from(error: KeysError) -> WorkerError {
        WorkerError::Call(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_stands_at_its_place() {
        for (place, (refusal, _)) in Refusal::NAMED.into_iter().enumerate() {
            assert_eq!((refusal.place(), Refusal::of(refusal as u16)), (place, refusal));
        }
    }
}
