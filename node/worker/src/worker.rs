//! The worker: pulls and pushes over one link to each thread of each server.
//!
//! The simple calls ([`Worker::pull`], [`Worker::push`]) wait for their answer. The pipelined ones keep many batches in
//! flight: [`Worker::begin_pull`], [`Worker::finish_pull`], [`Worker::begin_push`]. The worker makes a lost link again,
//! trying for as long as `peer_timeout`. It then resends unacknowledged requests; a server applies each push once.

use crate::calls::awaited::AwaitedLink;
use crate::config::worker_config::WorkerConfig;
use crate::counters::{Counters, WorkerCounters};
use crate::error::WorkerError;
use crate::links::peer::Peer;
use crate::links::replies::ReplyResult;
use crate::reads::path_choice::PathChoices;
use crate::requests::in_flight::InFlight;
use crate::requests::keysets::KeptKeysets;
use crate::requests::names::TableId;
use crate::tables::table::WorkerTable;
use gannet_transport::{Event, Net, Prng};
use gannet_wire::incarnation::NEXT_INCARNATION;
use gannet_wire::sharded_keys::ShardedKeys;
use gannet_wire::spin::Spin;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

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
    pub(crate) net: N,
    pub(crate) config: WorkerConfig,
    pub(crate) poll: N::Poll,
    pub(crate) events: Vec<Event>,
    pub(crate) peers: Vec<Peer<N::Stream>>,
    /// Counts the changes of the layout of links.
    pub(crate) layout: u64,
    pub(crate) flights: InFlight,
    pub(crate) tables: Vec<WorkerTable>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) answers: Vec<ReplyResult>,
    pub(crate) kept_pulls: VecDeque<KeptKeysets>,
    /// Errors of pushes and pulls that were refused for good, until a call returns them.
    pub(crate) refused: VecDeque<WorkerError>,
    /// Memory of acknowledged pushes, for [`Worker::spare`].
    pub(crate) spare: Vec<Vec<f32>>,
    pub(crate) spare_cut: Arc<ShardedKeys>,
    pub(crate) next_check: Duration,
    pub(crate) next_place_lookup: Duration,
    /// Servers whose owners the coordinator has named, if there is one.
    pub(crate) places_found: usize,
    /// The incarnation of the owner of each place, as the coordinator last said.
    pub(crate) owners: HashMap<u32, u64>,
    /// When time limits were last checked.
    pub(crate) checked_at: Duration,
    /// Memory for the slots where [`Worker::pull`] found rows.
    pub(crate) found_slots: Vec<u32>,
    pub(crate) next_receive: Duration,
    pub(crate) paths: PathChoices,
    pub(crate) spin: Spin,
    /// The worker and clock that the log last said this one waits for, and when.
    pub(crate) wait_logged_at: Option<(u32, u64, Duration)>,
    /// Over which it asks whether a worker for which it waits is dead.
    pub(crate) awaited_link: AwaitedLink<N>,
    pub(crate) prng: Prng,
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
