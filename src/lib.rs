//! Gannet: a parameter server for sparse models.
//!
//! A [`Server`] owns the shards of hash-partitioned tables and runs the update rule; a [`Worker`] pulls rows and pushes
//! sparse gradients, or changes of state, over shared memory, RDMA or TCP. Each push is applied exactly once, also across
//! lost links and a server that was killed and started again on its data folder.
//!
//! ```
#![doc = include_str!("../examples/pull_push.rs")]
//! ```
//!
//! The training loops behind `gannet train` are in [`train`]; what `gannet bench` does is in [`mod@bench`].
//! ARCHITECTURE.md is the map; docs/ has the byte formats and the promises.
#![forbid(unsafe_code)]

pub mod bench;

/// RDMA devices, for `gannet doctor`.
pub use gannet_transport::verbs;

/// Readers, models and training loops.
pub use gannet_train as train;

pub use gannet_core::{
    Checkpoint, CheckpointError, CheckpointWriter, Filesystem, OpenError, SHARDS_DEFAULT,
    SKETCH_BYTES_DEFAULT, Shards, hash, initial_weights, mix, shard_of, try_huge_page,
};
pub use gannet_node::limits::{BSP_WORKERS_MAX, CACHE_BYTES_MIN, JOB_WORKERS_MAX};
pub use gannet_node::{
    Admission, Applied, BUCKETS, Buckets, CacheConfig, Chunk, Counters, Cut, GrowError, Growing, Growth,
    Init, Membership, Merge, NEXT_INCARNATION, NO_INCARNATION, OneSided, Page, PullId, Pulled, PushId,
    PusherStatus, Read, Refusal, RowCache, Schema, Segment, Segments, Served, Server, ServerConfig,
    ServerError, ServerTally, SessionLimits, Staleness, Stats, Store, SyncMode, TableId, TableStatus,
    Together, WaitingFor, Worker, WorkerBuilder, WorkerConfig, WorkerError, WorkerTally, Write, bucket,
};
pub use gannet_node::{
    Attendance, Board, Doing, FedCount, FeedLink, Feeding, Given, Hands, JobStatus, Joined, Life, Member,
    Orders, Plan, PlanFile, Seat, Standing, Task, Told, Work,
};
pub use gannet_node::{
    CLIENT, Decided, Registry, Run, RunAlone, RunId, RunMember, RunSeat, RunWanted, RunsError, Setting, Want,
};
pub use gannet_node::{Token, TokenError, forget_job};
pub use gannet_optim::{
    AdaGrad, Adam, Add, AmsGrad, Decay, Ftrl, GroupFtrl, Momentum, RmsProp, RowAdaGrad, Rule, RuleError,
    Schedule, Sgd, Shaping,
};
pub use gannet_transport::tcp::{Io, Tcp, try_uring};
pub use gannet_transport::tls::{TlsClient, TlsError, TlsFileError, TlsServer};
pub use gannet_transport::wires::{Transport, Wires};
