//! The worker: pulls and pushes over one link to each thread of each server.
//!
//! The simple calls ([`Worker::pull`], [`Worker::push`]) wait for their answer. The pipelined ones keep many batches
//! in flight: [`Worker::begin_pull`], [`Worker::finish_pull`], [`Worker::begin_push`]. A lost link is made again
//! for as long as `peer_timeout`, and what was not acknowledged goes again: a server applies each push once.

mod builder;
mod cache;
mod clocks;
mod data_link;
#[cfg(test)]
mod full_disk;
mod heartbeat;
pub(crate) mod identity;
mod in_flight;
mod incarnation;
#[cfg(test)]
mod incarnation_tests;
mod job_client;
mod layout;
mod one_sided;
mod opening;
mod own_push_filter;
mod peer;
mod pipeline;
mod pump;
mod rdma_reads;
mod read_paths;
mod reconnect;
mod relayout;
mod row_handles;
mod run_client;
mod saved_rows;
mod simple;
mod tables;
mod vectors;

pub use builder::WorkerBuilder;
pub use cache::{CacheConfig, RowCache, Staleness};
pub use clocks::WaitingFor;
pub use data_link::{DataLink, DataOffer, TextChunk};
pub use heartbeat::{FenceFn, Heartbeat};
pub use incarnation::{NEXT_INCARNATION, NO_INCARNATION};
pub use job_client::{JobAnswer, JobClient, JobStatus};
pub use pipeline::{DataName, PullId, Pulled, PushId, SeenPushes};
pub use run_client::{RunClient, RunRequest};
pub use tables::{TableId, TableStatus};

use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::runs::RunId;
use crate::sharded_keys::ShardedKeys;
use crate::token::Token;
use cache::Caching;
use clocks::TableClock;
use gannet_core::Schema;
use gannet_transport::{Event, Net, Prng};
use identity::OpenedAs;
use in_flight::InFlight;
use peer::{Peer, ReplyResult};
use pipeline::KeptKeysets;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// When a worker reads rows where they are, without asking their server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OneSided {
    /// Where it costs less than asking: in the images of a server on this host (but for short rows that will be pushed
    /// back: [`WorkerConfig::near_kept_bytes_min`]); over RDMA where the devices of both sides do READs by themselves.
    /// (A software device has processors do each, which costs more than a request for many rows.)
    #[default]
    Auto,
    /// Wherever it can.
    Always,
    /// Nowhere: all rows are asked for.
    Never,
}

/// How a worker is to run.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The servers' addresses, `host:port`, in any order.
    pub servers: Vec<String>,
    /// Who pushes: a number that no other worker has and that this one keeps over restarts.
    pub pusher: u64,
    /// Which life of it: larger than that of any life before. [`NEXT_INCARNATION`] has the servers number it when it
    /// connects; a program that counts its lives itself begins at 1. [`NO_INCARNATION`] is for whoever never pushes.
    pub incarnation: u64,
    /// How long a peer may be away, or leave requests unanswered, before a call fails.
    pub peer_timeout: Duration,
    /// How long a link may bring nothing while answers are due before it is made again.
    pub stall_timeout: Duration,
    /// Bytes of requests and answers under way before a `begin` call waits.
    pub in_flight_bytes_max: usize,
    /// How long a wait for small answers looks before it sleeps.
    pub spin: Duration,
    /// Rows that are pulled to be pushed back are read in a server's images if their answer has at least so many bytes,
    /// and asked for otherwise: the server's core writes them with every push, and a few bytes in a frame cost less
    /// than cache lines that go from core to core and back. 0, and [`OneSided::Always`], read all of them.
    pub near_kept_bytes_min: usize,
    /// What the chance in the pauses between attempts to connect is drawn from.
    pub seed: u64,
    /// One link to thread 0 of each server is enough: whoever has only something to ask of the scheduler.
    pub one_thread: bool,
    /// Another worker of this process has links to the same servers, and warns when they are lost. This one's losses
    /// are logged for debugging only.
    pub secondary: bool,
    /// What the servers are proved to have, and to whom this worker proves the same.
    pub token: Option<Token>,
    /// When rows are read without asking.
    pub one_sided: OneSided,
    /// The run whose tables it opens: its name goes before theirs. `None`: tables are called as they are.
    pub run: Option<RunId>,
}

impl WorkerConfig {
    /// The same as [`WorkerConfig::builder`] with its numbers by position, for tests that play with lives.
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
            spin: crate::limits::SPIN,
            near_kept_bytes_min: crate::limits::NEAR_KEPT_BYTES_MIN,
            seed: pusher.rotate_left(32) ^ incarnation,
            one_thread: false,
            secondary: false,
            token: None,
            one_sided: OneSided::Auto,
            run: None,
        }
    }
}

/// What a worker has done so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Requests posted, resends included.
    pub frames_sent: u64,
    /// Answers received.
    pub frames_received: u64,
    /// Payload bytes of requests.
    pub bytes_sent: u64,
    /// Payload bytes of rows.
    pub bytes_received: u64,
    /// Requests posted again after a link was lost.
    pub resends: u64,
    /// Links lost.
    pub links_lost: u64,
    /// Rows read where they are, without asking their server.
    pub near_rows: u64,
    /// Rows that were not found so, or that an own push was under way to, and were asked for.
    pub near_asked_rows: u64,
    /// Rows of pulls through a cache that it had.
    pub cache_hits: u64,
    /// Rows of such pulls that were asked for.
    pub cache_asked: u64,
    /// Of these, rows of which the server was told what the cache holds.
    pub cache_held: u64,
    /// Of these, rows that were so still, and not sent.
    pub cache_same: u64,
    /// Rows of the cache that servers have sent unasked, because they have changed.
    pub cache_refreshed: u64,
    /// Times that a request waited because the link's credit was used up.
    pub credit_waits: u64,
    /// Pings sent over links on which nothing else was said.
    pub pings: u64,
    /// Rows applied.
    pub applied: u64,
    /// Rows that a server had already.
    pub duplicate: u64,
    /// Rows dropped because a value was NaN or infinite.
    pub not_finite: u64,
    /// Rows not created because they were not admitted.
    pub not_admitted: u64,
    /// Rows that came when their synchronous step had been applied without them.
    pub late_rows: u64,
}

/// A table as this worker knows it.
struct WorkerTable {
    schema: Schema,
    /// As what the servers have it.
    opened: OpenedAs,
    /// The link that each shard is behind.
    owners: Vec<u32>,
    /// All shards are behind one link.
    one_owner: bool,
    last_seq: u64,
    /// How it keeps step with others.
    group: Option<TableClock>,
    /// Rows that pulls may be answered from.
    cache: Option<Caching>,
}

/// Pulls from and pushes to the servers. One thread's.
pub struct Worker<N: Net> {
    net: N,
    config: WorkerConfig,
    poll: N::Poll,
    events: Vec<Event>,
    peers: Vec<Peer<N::Stream>>,
    /// Which layout of the links it is.
    layout: u64,
    flights: InFlight,
    tables: Vec<WorkerTable>,
    tally: Arc<WorkerCounters>,
    answers: Vec<ReplyResult>,
    kept: VecDeque<KeptKeysets>,
    /// Flights whose pushes were refused for good, until a call has told of it.
    refused: VecDeque<WorkerError>,
    /// Memory of acknowledged pushes, for [`Worker::spare`].
    spare: Vec<Vec<f32>>,
    cut: Arc<ShardedKeys>,
    next_tick: Duration,
    /// When time limits were last looked at.
    looked_at: Duration,
    /// Memory for where [`Worker::pull`] found rows.
    near_slots: Vec<u32>,
    next_near_look: Duration,
    /// Whom the log last said that is waited for, and when.
    wait_told: Option<(u32, u64, Duration)>,
    prng: Prng,
}

impl<N: Net> Worker<N> {
    /// Connects to every thread of every server.
    ///
    /// # Errors
    /// A server could not be reached for `peer_timeout`, or it refused.
    pub fn connect(net: N, config: WorkerConfig) -> Result<Worker<N>, WorkerError> {
        Worker::connect_told(net, config, Arc::default())
    }

    /// [`Worker::connect`] with its counts in `tally`, which can be told of while it connects. One worker's only.
    ///
    /// # Errors
    /// As [`Worker::connect`].
    pub fn connect_told(
        net: N,
        mut config: WorkerConfig,
        tally: Arc<WorkerCounters>,
    ) -> Result<Worker<N>, WorkerError> {
        if config.servers.is_empty() {
            return Err(WorkerError::Call("a worker needs at least one server".into()));
        }
        if config.incarnation == NEXT_INCARNATION {
            config.incarnation = Worker::allocate_incarnation_told(net.clone(), &config, tally.clone())?;
            config.seed ^= config.incarnation;
        }
        let (poll, looked_at) = (net.poll()?, net.now());
        let prng = Prng::new(config.seed);
        let mut worker = Worker {
            prng,
            net,
            config,
            poll,
            events: Vec::new(),
            peers: Vec::new(),
            layout: 0,
            flights: InFlight::new(tally.clone()),
            tables: Vec::new(),
            tally,
            answers: Vec::new(),
            kept: VecDeque::new(),
            refused: VecDeque::new(),
            spare: Vec::new(),
            cut: Arc::default(),
            next_tick: Duration::ZERO,
            looked_at,
            near_slots: Vec::new(),
            next_near_look: Duration::ZERO,
            wait_told: None,
        };
        for server in 0..worker.config.servers.len() {
            worker.connect_server(server as u32)?;
        }
        Ok(worker)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.tally.counters()
    }

    /// Its counts, for whoever tells of them while it runs.
    pub fn tally(&self) -> Arc<WorkerCounters> {
        self.tally.clone()
    }

    /// What carries its links: "tcp", "shm"; several, in the order in which the links were made, when they differ.
    pub fn transport(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.peers.iter().map(|peer| peer.transport).filter(|name| !name.is_empty()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// Links: one to each thread of each server.
    pub fn links(&self) -> usize {
        self.links_now().count()
    }
}
