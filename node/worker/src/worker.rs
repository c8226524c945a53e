//! The worker: pulls and pushes over one link to each thread of each server.
//!
//! The simple calls ([`Worker::pull`], [`Worker::push`]) wait for their answer. The pipelined ones keep many batches in
//! flight: [`Worker::begin_pull`], [`Worker::finish_pull`], [`Worker::begin_push`]. The worker makes a lost link again,
//! trying for as long as `peer_timeout`. It then resends unacknowledged requests; a server applies each push once.

use crate::calls::awaited::{AwaitedLink, ask_for_awaited};
use crate::config::worker_config::WorkerConfig;
use crate::counters::{Counters, WorkerCounters};
use crate::error::WorkerError;
use crate::links::attempts::connect_server;
use crate::links::keysets::KeptPulls;
use crate::links::read_paths::{read_path_refused, request_read_path, take_read_path};
use crate::links::state::{Arrived, Links};
use crate::reads::row_reader::RowReader;
use crate::requests::names::TableId;
use crate::requests::spare::SpareMemory;
use crate::tables::table::Tables;
use gannet_core::Eviction;
use gannet_transport::{Net, Poll};
use gannet_wire::incarnation::NEXT_INCARNATION;
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
    pub(crate) links: Links<N>,
    pub(crate) tables: Tables,
    /// How it reads rows itself.
    pub(crate) reads: RowReader,
    /// The keysets of the last pulls.
    pub(crate) kept_pulls: KeptPulls,
    /// Names of tables whose rows may die, and which of them.
    pub(crate) evictions: Vec<(String, Eviction)>,
    pub(crate) spare: SpareMemory,
    /// For whom it waits, and the link over which it asks whether they are dead.
    pub(crate) awaited: AwaitedLink<N>,
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
        let mut worker = Worker {
            links: Links::new(net, config, counters)?,
            tables: Tables::default(),
            reads: RowReader::default(),
            kept_pulls: KeptPulls::default(),
            evictions: Vec::new(),
            spare: SpareMemory::default(),
            awaited: AwaitedLink::default(),
        };
        for server in 0..worker.links.config.servers.len() {
            connect_server(&mut worker.links, &mut worker.tables, server as u32)?;
        }
        Ok(worker)
    }

    /// Sends and receives what it can. If nothing moves, it waits at most `patience`.
    pub(crate) fn pump(&mut self, patience: Duration) -> Result<(), WorkerError> {
        let (begun, waited) = self.links.exchange(&mut self.tables, patience)?;
        self.hand_on()?;
        let ended = self.end_turn(begun);
        if waited {
            let time = self.links.net.now().saturating_sub(begun);
            self.links.counters.waited_nanos.add(time.as_nanos() as u64);
        }
        ended
    }

    /// Sends and receives what it can, without waiting. Returns whether there was anything.
    pub(crate) fn receive(&mut self) -> Result<bool, WorkerError> {
        let (begun, moved) = self.links.receive(&mut self.tables)?;
        self.hand_on()?;
        self.end_turn(begun).map(|()| moved)
    }

    /// Hands on what the links have brought, in its order, to what it is for.
    fn hand_on(&mut self) -> Result<(), WorkerError> {
        while let Some(arrived) = self.links.arrived.pop_front() {
            match arrived {
                Arrived::PushEnded { table, seq, late, rows } => {
                    if let Some(group) = self.tables[table].group.as_mut().filter(|_| late) {
                        group.late.push(seq);
                    }
                    self.spare.keep_pushed(rows);
                }
                Arrived::Waits { link } => self.awaited.log(&self.links, link),
                Arrived::Opened { link } => request_read_path(&mut self.links, &self.tables, link)?,
                Arrived::ReadPath { link, control } => {
                    let choices = &mut self.reads.choices;
                    let taken = take_read_path(&mut self.links, &self.tables, choices, link, &control);
                    // A wrong description of the server's memory ends the link. Another attempt may bring a right one.
                    if let Err(error) = taken {
                        self.links.give_up(link, error.to_string());
                    }
                }
                Arrived::ReadPathRefused { link, why } => read_path_refused(&mut self.links, link, &why),
            }
        }
        Ok(())
    }

    /// Ends a turn: returns refusals, and from time to time checks time limits, lost links and awaited workers.
    fn end_turn(&mut self, begun: Duration) -> Result<(), WorkerError> {
        let checked = self.check(begun);
        self.links.poll.submit()?;
        checked
    }

    fn check(&mut self, now: Duration) -> Result<(), WorkerError> {
        if !self.links.begin_check(now)? {
            return Ok(());
        }
        ask_for_awaited(self, now)?;
        let checked = self.links.check(&mut self.tables, now);
        self.hand_on()?;
        checked
    }

    /// What the worker has done so far.
    pub fn counters(&self) -> Counters {
        self.links.counters.counters()
    }

    /// Rows of pushes to this table that servers dropped, because a value was NaN, infinite or beyond the row type. The
    /// acknowledgement of a push reports them. [`Counters::not_finite`] is the sum over all tables.
    pub fn not_finite_rows(&self, table: TableId) -> u64 {
        self.links.flights.not_finite_rows(table.0)
    }

    /// The worker's counters, which other threads can read while it runs.
    pub fn shared_counters(&self) -> Arc<WorkerCounters> {
        self.links.counters.clone()
    }

    /// The transport of the links: "tcp", "shm"; several if they differ, in the order in which the links were made.
    pub fn transport(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.links.peers.iter().map(|peer| peer.session.transport).filter(|name| !name.is_empty())
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// Number of links: one to each thread of each server.
    pub fn links(&self) -> usize {
        self.links.wanted().count()
    }
}
