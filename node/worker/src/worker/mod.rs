//! The worker: pulls and pushes over one link to each thread of each server.
//!
//! The simple calls ([`Worker::pull`], [`Worker::push`]) wait for their answer. The pipelined ones keep many batches in
//! flight: [`Worker::begin_pull`], [`Worker::finish_pull`], [`Worker::begin_push`]. The worker makes a lost link again,
//! trying for as long as `peer_timeout`. It then resends unacknowledged requests; a server applies each push once.

pub(crate) mod awaited;
pub(crate) mod births;
pub(crate) mod builder;
pub(crate) mod cache;
pub(crate) mod clocks;
pub(crate) mod copy_client;
pub(crate) mod cut_client;
pub(crate) mod data_link;
#[cfg(test)]
mod full_disk;
pub(crate) mod heartbeat;
pub(crate) mod identity;
pub(crate) mod ids;
pub(crate) mod in_flight;
pub(crate) mod incarnation;
pub(crate) mod job_client;
pub(crate) mod kept_keysets;
pub(crate) mod known_runs;
pub(crate) mod layout;
pub(crate) mod logged_wait;
pub(crate) mod no_space;
pub(crate) mod one_sided;
pub(crate) mod opening;
pub(crate) mod own_push_filter;
pub(crate) mod path_choice;
#[cfg(test)]
mod path_choice_tests;
pub(crate) mod peer;
pub(crate) mod peer_state;
pub(crate) mod pipeline;
pub(crate) mod places;
pub(crate) mod pump;
pub(crate) mod push_rows;
pub(crate) mod rdma_reads;
pub(crate) mod read_paths;
pub(crate) mod reconnect;
pub(crate) mod relayout;
pub(crate) mod remote_coordinator;
pub(crate) mod replies;
pub(crate) mod request_queue;
pub(crate) mod rounding_errors;
pub(crate) mod row_handles;
pub(crate) mod run_client;
pub(crate) mod run_session;
pub(crate) mod saved_rows;
pub(crate) mod shares;
pub(crate) mod simple;
pub(crate) mod tables;
#[cfg(feature = "test-support")]
pub(crate) mod test_support;
pub(crate) mod vectors;
pub(crate) mod wire_type;

use crate::counters::{Counters, WorkerCounters};
use crate::error::WorkerError;
use crate::worker::awaited::AwaitedLink;
use crate::worker::cache::asking::Caching;
use crate::worker::clocks::TableClock;
use crate::worker::identity::OpenedAs;
use crate::worker::in_flight::InFlight;
use crate::worker::kept_keysets::KeptKeysets;
use crate::worker::path_choice::PathChoices;
use crate::worker::peer::Peer;
use crate::worker::places::Places;
use crate::worker::replies::ReplyResult;
use crate::worker::rounding_errors::RoundingErrors;
use crate::worker::tables::TableId;
use gannet_core::Schema;
use gannet_transport::{Event, Net, Prng};
use gannet_wire::incarnation::NEXT_INCARNATION;
use gannet_wire::messages::runs::RunId;
use gannet_wire::sharded_keys::ShardedKeys;
use gannet_wire::spin::Spin;
use gannet_wire::token::Token;
use std::collections::{HashMap, VecDeque};
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
    /// The worker's incarnation: larger than that of any start before. With [`NEXT_INCARNATION`] the servers number it
    /// when it connects. A program that counts its starts itself begins at 1. `NO_INCARNATION` is for a worker that
    /// never pushes.
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
    /// ([`RunClient::server`](crate::worker::run_client::RunClient::server)): it decides which workers are dead.
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

/// A table as this worker knows it.
struct WorkerTable {
    schema: Schema,
    /// The identity that the servers gave the table when the worker opened it.
    opened: OpenedAs,
    /// The link to the owner of each shard.
    owners: Vec<u32>,
    /// All shards are behind one link.
    one_owner: bool,
    last_seq: u64,
    /// The worker's clock over the table, if it keeps step with others.
    group: Option<TableClock>,
    /// The cache that may answer pulls.
    cache: Option<Caching>,
    /// Weights and gradients travel as f16, and this is what the rounding of gradients has left out so far.
    rounding: Option<RoundingErrors>,
}

impl WorkerTable {
    /// This worker has dropped the table: no table has an empty name.
    fn is_dropped(&self) -> bool {
        self.schema.name.is_empty()
    }
}

/// Pulls from and pushes to the servers. Belongs to one thread.
///
/// ```
/// use gannet_core::{Read, Schema, Write};
/// use gannet_server::{Server, ServerConfig};
/// use gannet_worker::{Worker, WorkerConfig};
/// use gannet_optim::{Rule, Sgd};
/// use gannet_transport::multi::Transports;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let config = WorkerConfig::builder([server.addr()]).worker(0).build();
/// let mut worker = Worker::connect(Transports::new(), config)?;
/// let table = worker.open_table(&Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 0.5 })))?;
/// worker.push(table, &[7, 42], Write::Gradient, &[1.0, -1.0])?;
/// let mut weights = [0.0; 2];
/// worker.pull(table, &[7, 42], Read::Weights, &mut weights)?;
/// assert_eq!(weights, [-0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The pipelined calls keep many batches in flight:
/// ```
/// # use gannet_core::{Read, Schema, Write};
/// # use gannet_optim::{Rule, Sgd};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 0.5 })))?;
/// use std::sync::Arc;
///
/// let keys = Arc::new(worker.cut(table, &[7, 42])); // in the order of their shards
/// let pull = worker.begin_pull(table, keys.clone(), Read::Weights, Vec::new(), true)?;
/// // ... begin the pulls of the next batches ...
/// let mut rows = worker.finish_pull(pull)?.values;
/// assert_eq!(rows, [0.0, 0.0]);
/// rows.fill(1.0); // the gradients, in the order of `keys`
/// let seq = worker.next_seq(table);
/// // The servers kept the keys of the pull, so the push sends none.
/// let push = worker.begin_push(table, keys, Write::Gradient, rows, Some(pull), seq)?;
/// worker.finish_push(push)?; // or Worker::drain, for all pushes
/// assert!(worker.is_acked(push));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Worker<N: Net> {
    net: N,
    config: WorkerConfig,
    poll: N::Poll,
    events: Vec<Event>,
    peers: Vec<Peer<N::Stream>>,
    /// Counts the changes of the layout of links.
    layout: u64,
    flights: InFlight,
    tables: Vec<WorkerTable>,
    counters: Arc<WorkerCounters>,
    answers: Vec<ReplyResult>,
    kept_pulls: VecDeque<KeptKeysets>,
    /// Errors of pushes and pulls that were refused for good, until a call returns them.
    refused: VecDeque<WorkerError>,
    /// Memory of acknowledged pushes, for [`Worker::spare`].
    spare: Vec<Vec<f32>>,
    spare_cut: Arc<ShardedKeys>,
    next_check: Duration,
    next_place_lookup: Duration,
    /// Servers whose owners the coordinator has named, if there is one.
    places_found: usize,
    /// The incarnation of the owner of each place, as the coordinator last said.
    owners: HashMap<u32, u64>,
    /// When time limits were last checked.
    checked_at: Duration,
    /// Memory for the slots where [`Worker::pull`] found rows.
    found_slots: Vec<u32>,
    next_receive: Duration,
    paths: PathChoices,
    spin: Spin,
    /// The worker and clock that the log last said this one waits for, and when.
    wait_logged_at: Option<(u32, u64, Duration)>,
    /// Over which it asks whether a worker for which it waits is dead.
    awaited_link: AwaitedLink<N>,
    prng: Prng,
}

impl<N: Net> Worker<N> {
    /// Connects to every thread of every server.
    ///
    /// # Errors
    /// A server could not be reached for `peer_timeout`, or it refused.
    pub fn connect(net: N, config: WorkerConfig) -> Result<Worker<N>, WorkerError> {
        Worker::connect_with_counters(net, config, Arc::default())
    }

    /// [`Worker::connect`] that counts in `counters`, which other threads can read while it connects. Each worker needs
    /// counters of its own.
    ///
    /// # Errors
    /// As [`Worker::connect`].
    pub fn connect_with_counters(
        net: N,
        mut config: WorkerConfig,
        counters: Arc<WorkerCounters>,
    ) -> Result<Worker<N>, WorkerError> {
        if config.servers.is_empty() {
            return Err(WorkerError::Call("a worker needs at least one server".into()));
        }
        if config.incarnation == NEXT_INCARNATION {
            config.incarnation =
                Worker::allocate_incarnation_with_counters(net.clone(), &config, counters.clone())?;
            config.seed ^= config.incarnation;
        }
        let (poll, checked_at) = (net.poll()?, net.now());
        let (prng, spin) = (Prng::new(config.seed), Spin::new(config.spin));
        let mut worker = Worker {
            prng,
            net,
            config,
            poll,
            events: Vec::new(),
            peers: Vec::new(),
            layout: 0,
            flights: InFlight::new(counters.clone()),
            tables: Vec::new(),
            counters,
            answers: Vec::new(),
            kept_pulls: VecDeque::new(),
            refused: VecDeque::new(),
            spare: Vec::new(),
            spare_cut: Arc::default(),
            next_check: Duration::ZERO,
            next_place_lookup: Duration::ZERO,
            places_found: 0,
            owners: HashMap::new(),
            checked_at,
            found_slots: Vec::new(),
            next_receive: Duration::ZERO,
            paths: PathChoices::default(),
            spin,
            wait_logged_at: None,
            awaited_link: AwaitedLink::default(),
        };
        for server in 0..worker.config.servers.len() {
            worker.connect_server(server as u32)?;
        }
        Ok(worker)
    }

    /// What the worker has done so far.
    pub fn counters(&self) -> Counters {
        self.counters.counters()
    }

    /// Rows of pushes to this table that servers dropped, because a value was NaN, infinite or beyond the row type. The
    /// acknowledgement of a push reports them. [`Counters::not_finite`] is the sum over all tables.
    pub fn not_finite_rows(&self, table: TableId) -> u64 {
        self.flights.not_finite_rows(table.0)
    }

    /// The worker's counters, which other threads can read while it runs.
    pub fn shared_counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// The transport of the links: "tcp", "shm"; several if they differ, in the order in which the links were made.
    pub fn transport(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.peers.iter().map(|peer| peer.session.transport).filter(|name| !name.is_empty()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// Number of links: one to each thread of each server.
    pub fn links(&self) -> usize {
        self.links_now().count()
    }
}
