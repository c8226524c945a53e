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
    Admission, Applied, GrowError, Growth, GrowthConfig, Init, PusherStatus, Read, Schema, Segment, Segments,
    Stats, Store, Write,
};
pub use gannet_core::{
    Checkpoint, CheckpointError, CheckpointWriter, Filesystem, OpenError, SHARDS_DEFAULT,
    SKETCH_BYTES_DEFAULT, Shards, hash, initial_weights, mix, shard_of, try_huge_page,
};
pub use gannet_node::limits::{BSP_WORKERS_MAX, CACHE_BYTES_MIN, JOB_WORKERS_MAX};
pub use gannet_node::{
    Activity, ActivityKind, DataLink, DataServerConfig, FeedStatus, FenceFn, Heartbeat, HeartbeatReply,
    JobAnswer, JobClient, JobPlan, JobStatus, Member, PlanFile, Progress, ServedBytes, Split, SplitGrant,
    WorkerIncarnation, WorkerState,
};
pub use gannet_node::{
    BUCKETS, Buckets, CacheConfig, Chunk, Counters, Merge, MetricsSink, NEXT_INCARNATION, NO_INCARNATION,
    OneSided, PullId, Pulled, PushId, Refusal, RowCache, Server, ServerConfig, ServerCounters, ServerError,
    ServerStats, SessionLimits, ShardedKeys, Staleness, StepReduce, SyncConfig, SyncMode, TableId,
    TableStatus, WaitingFor, Worker, WorkerBuilder, WorkerConfig, WorkerCounters, WorkerError, bucket,
};
pub use gannet_node::{
    CLIENT, Registry, Run, RunAlone, RunClient, RunDecision, RunId, RunIntent, RunMember, RunRequest,
    RunSetting, RunsError,
};
pub use gannet_node::{Token, TokenError, forget_job};
pub use gannet_optim::{
    AdaGrad, Adam, Add, AmsGrad, Decay, Ftrl, GradientTransform, GroupFtrl, Momentum, RmsProp, RowAdaGrad,
    Rule, RuleError, Schedule, Sgd,
};
pub use gannet_transport::multi::{Transport, Transports};
pub use gannet_transport::tcp::{Io, Tcp, try_uring};
pub use gannet_transport::tls::{TlsClient, TlsError, TlsFileError, TlsServer};
