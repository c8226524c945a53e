//! The roles: a [`Server`] owns shards and answers requests; a [`Worker`] pulls and pushes.
//!
//! A server is an acceptor and one thread a core. Each thread owns a set of the shards of every table, and its
//! links. A worker has one link to each thread of each server. A link handles and answers frames in order, so a
//! pull sees every push that was sent before it on the link. docs/wire.md has the frames byte by byte.
#![forbid(unsafe_code)]

#[cfg(feature = "cloud")]
mod cloud;
mod coordinator;
mod counters;
mod cuts;
mod error;
mod failure_detector;
mod frames;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod hostile;
mod key_hash_builder;
pub mod limits;
mod log_limiter;
mod partition;
mod random;
mod runs;
mod scheduler;
mod server;
mod sharded_keys;
mod share_pushers;
mod spin;
mod sync;
mod token;
mod vectors;
mod whole_files;
mod worker;

#[cfg(feature = "cloud")]
pub use cloud::{BucketError, open_bucket};
pub use coordinator::{
    Coordinator, CoordinatorAddr, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite,
    MemoryCoordinator,
};
#[cfg(feature = "etcd")]
pub use coordinator::{EtcdCoordinator, EtcdTls};
pub use counters::{BUCKETS, Buckets, Count, Histogram, MetricsSink, ServerCounters, WorkerCounters, bucket};
pub use cuts::{CheckpointOptions, SavedCheckpoint, save_checkpoint};
pub use error::{Refusal, ServerError, WorkerError};
pub use partition::{PARTITIONS, PartitionMap, partition_of, shards_for_threads};
#[cfg(any(test, feature = "test-support"))]
pub use partition::{ScatteredPartitions, scatter_partitions};
#[cfg(any(test, feature = "test-support"))]
pub use random::{SeededRandomness, seed_randomness};
pub use runs::{
    CLIENT, DeadWorker, Registry, Run, RunAlone, RunDecision, RunId, RunIntent, RunMember, RunSetting,
    RunsError, TableUse,
};
pub use scheduler::data_server::{DataServerConfig, DataSource, FeedStatus, ServedBytes};
pub use scheduler::job_plan::{JobPlan, PlanFile, Split};
pub use scheduler::job_state::JobOrders;
pub use scheduler::leases::SplitGrant;
pub use scheduler::member::{Activity, ActivityKind, Member, Progress, WorkerIncarnation, WorkerState};
pub use scheduler::table_records::{ShardHolder, TableRecord};
pub use scheduler::{JobStateFileError, forget_job};
pub use server::identities::open_whole;
pub use server::incarnations::CounterError;
pub use server::restore::{RestoreError, RestoreSource, Restored, restore_folder};
pub use server::{
    BackupStatus, GenerationStatus, LocalServer, MemberStatus, Membership, MembershipConfig, OnServerLoss,
    PlaceFolderError, PlaceStatus, PlacesForgotten, ReplicationMode, Replicator, Server, ServerConfig,
    ServerStats, ServerTurn, SessionLimits, forget_places, generation, members, place, places,
    refuse_without_coordinator,
};
pub use sharded_keys::{Chunk, ShardedKeys};
pub use sync::{Merge, StepReduce, SyncConfig, SyncMode};
pub use token::{Token, TokenError};
pub use worker::{
    CacheConfig, CacheUse, Counters, DataLink, DataName, DataOffer, FenceFn, Heartbeat, JobAnswer, JobClient,
    JobStatus, NEXT_INCARNATION, NO_INCARNATION, OneSided, Places, PullId, Pulled, PushId, PushRows,
    ReadPathChoice, RemoteCoordinator, RowCache, RunClient, RunOrders, RunRequest, RunSession, SeenPushes,
    SharePlace, Staleness, TableId, TableStatus, TextChunk, WaitingFor, WireType, Worker, WorkerBuilder,
    WorkerConfig,
};
