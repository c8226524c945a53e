//! What the roles say to each other: frames, messages, refusals, names, and keys by shard.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod command_block;
#[doc(hidden)]
pub mod coordinator;
#[doc(hidden)]
pub mod counters;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod incarnation;
#[doc(hidden)]
pub mod key_hash_builder;
pub mod limits;
#[doc(hidden)]
pub mod log_limiter;
#[doc(hidden)]
pub mod messages;
#[doc(hidden)]
pub mod partition;
#[doc(hidden)]
pub mod place_keys;
mod private_file;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod refusal;
#[doc(hidden)]
pub mod sharded_keys;
#[doc(hidden)]
pub mod share_pushers;
#[doc(hidden)]
pub mod spin;
#[doc(hidden)]
pub mod state_file;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod token;
#[doc(hidden)]
pub mod vectors;

pub use coordinator::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite};
pub use counters::{BUCKETS, Buckets, Count, Histogram, MetricsSink, bucket_of_nanos};
pub use incarnation::{NEXT_INCARNATION, NO_INCARNATION};
pub use messages::growing::{Found, FoundFile, FoundRange, GrownTask, PartitionStand, SeenFile, SourceStand};
pub use messages::job_plan::{JobPlan, PlanFile, Split};
pub use messages::jobs::{JobOrders, JobStatus, ShardHolder, SplitGrant, TableRecord};
pub use messages::member::{Activity, ActivityKind, Member, Progress, WorkerIncarnation, WorkerState};
pub use messages::runs::{
    CLIENT, DeadWorker, Run, RunDecision, RunId, RunIntent, RunMember, RunSetting, TableUse,
};
#[cfg(any(test, feature = "test-support"))]
pub use partition::ScatteredPartitions;
pub use partition::partition_of;
#[cfg(any(test, feature = "test-support"))]
pub use partition::scatter_partitions;
pub use partition::{PARTITIONS, PartitionMap, shards_for_threads};
pub use private_file::{PrivateFileError, read_private};
#[cfg(any(test, feature = "test-support"))]
pub use random::{SeededRandomness, seed_randomness};
pub use refusal::Refusal;
pub use sharded_keys::{Chunk, ShardedKeys};
pub use state_file::StateFileError;
pub use sync::{Merge, StepReduce, SyncConfig, SyncMode};
pub use token::{Token, TokenError};
