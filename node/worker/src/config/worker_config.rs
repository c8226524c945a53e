//! The configuration of a worker.

use gannet_wire::coordinator::Coordinator;
use gannet_wire::messages::runs::RunId;
use gannet_wire::token::Token;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// When a worker reads rows itself instead of requesting them from their server.
///
/// ```
/// use gannet_worker::{OneSided, WorkerConfig};
///
/// // The worker requests every row, also from a server on its own host.
/// let config = WorkerConfig::builder(["127.0.0.1:7700"]).one_sided(OneSided::Never).build();
/// assert_eq!(config.one_sided, OneSided::Never);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OneSided {
    /// Where it costs less than requests. The worker measures that while it runs, for each table, and separately for
    /// pulls whose rows will be pushed back. It may read some of the rows of a pull and request the others. It reads
    /// rows in the images of a server on this host. It also reads them over RDMA, if the devices of both sides do READs
    /// by themselves. (With a software device processors do each READ, which costs more than one request for many
    /// rows.)
    #[default]
    Auto,
    /// Wherever it is possible.
    Always,
    /// Nowhere: the worker requests all rows.
    Never,
}

/// The configuration of a worker.
///
/// ```
/// use gannet_worker::WorkerConfig;
/// use std::time::Duration;
///
/// let config = WorkerConfig::builder(["10.0.0.1:7700"]).peer_timeout(Duration::from_secs(5)).build();
/// // The builder has no method for this field.
/// let config = WorkerConfig { in_flight_bytes_max: 64 << 20, ..config };
/// assert_eq!(config.peer_timeout, Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The servers' addresses, `host:port`, in any order.
    pub servers: Vec<String>,
    /// The worker's number as a pusher: no other worker has it, and this one keeps it when it restarts.
    pub pusher: u64,
    /// The worker's incarnation: larger than that of any start before. With
    /// [`NEXT_INCARNATION`](gannet_wire::incarnation::NEXT_INCARNATION) the servers number it when it connects. A
    /// program that counts its starts itself begins at 1. `NO_INCARNATION` is for a worker that never pushes.
    pub incarnation: u64,
    /// How long a peer may be away, or leave requests unanswered, before a call fails.
    pub peer_timeout: Duration,
    /// How long a link may be silent while answers are due, before the worker makes it again.
    pub stall_timeout: Duration,
    /// Bytes of requests and answers in flight, above which a `begin` call waits.
    pub in_flight_bytes_max: usize,
    /// How long a wait for small answers polls before it sleeps.
    pub spin: Duration,
    /// Seeds the random part of the pauses between attempts to connect.
    pub seed: u64,
    /// One link to thread 0 of each server is enough. For clients that only ask the scheduler.
    pub one_thread: bool,
    /// Another worker of this process has links to the same servers and warns when they are lost. Lost links of this
    /// one are logged for debugging only.
    pub secondary: bool,
    /// The token: the servers and this worker prove to each other that they have it.
    pub token: Option<Token>,
    /// When rows are read without a request.
    pub one_sided: OneSided,
    /// Says which server has the place of a server that is lost. `None`: each server comes back at its own address.
    pub places: Option<Places>,
    /// The run whose tables the worker opens: its name goes before theirs. `None`: table names are used as they are.
    pub run: Option<RunId>,
    /// The server that keeps the registry of the run
    /// ([`RunClient::server`](crate::clients::run_client::RunClient::server)): it decides which workers are dead.
    /// `None`: the server of place 0, or the one whose address comes first in the order of text.
    pub registry: Option<String>,
}

impl WorkerConfig {
    /// [`WorkerConfig::builder`] with positional numbers, for tests that choose incarnations.
    #[doc(hidden)]
    pub fn new(
        servers: impl IntoIterator<Item = impl Into<String>>,
        pusher: u64,
        incarnation: u64,
    ) -> WorkerConfig {
        WorkerConfig {
            servers: servers.into_iter().map(Into::into).collect(),
            pusher,
            incarnation,
            peer_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(15),
            in_flight_bytes_max: 256 << 20,
            spin: gannet_wire::limits::SPIN,
            seed: pusher.rotate_left(32) ^ incarnation,
            one_thread: false,
            secondary: false,
            token: None,
            one_sided: OneSided::Auto,
            places: None,
            run: None,
            registry: None,
        }
    }
}

/// Says where the servers of a job are. A worker asks when it has lost one.
#[derive(Clone)]
pub struct Places {
    /// Says who owns what.
    pub coordinator: Arc<dyn Coordinator>,
    /// The name of the job.
    pub job: String,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("job", &self.job).finish_non_exhaustive()
    }
}
