//! The worker: pulls and pushes, the clients of a job and of a run, and the coordinator of a checkpoint.
#![forbid(unsafe_code)]

mod checkpoint;
mod counters;
mod error;
pub mod limits;
mod worker;

pub use checkpoint::coordinator::{CheckpointOptions, SavedCheckpoint, save_checkpoint};
#[doc(hidden)]
pub use checkpoint::owner::savers_of;
pub use counters::{Counters, WorkerCounters};
pub use error::WorkerError;
pub use worker::builder::WorkerBuilder;
pub use worker::cache::{CacheConfig, CacheUse, RowCache, Staleness};
pub use worker::clocks::WaitingFor;
#[doc(hidden)]
pub use worker::copy_client::{BackupLinks, BlockRequest};
pub use worker::data_link::{DataLink, DataOffer, TextChunk};
pub use worker::heartbeat::{FenceFn, Heartbeat};
pub use worker::job_client::{JobAnswer, JobClient};
pub use worker::known_runs::{forget_run, known_runs, known_tables, server_of_run};
pub use worker::one_sided::ReadPathChoice;
pub use worker::pipeline::{DataName, PullId, Pulled, PushId, SeenPushes};
pub use worker::places::Places;
pub use worker::push_rows::PushRows;
pub use worker::remote_coordinator::RemoteCoordinator;
pub use worker::run_client::RunClient;
pub use worker::run_session::{RunOrders, RunRequest, RunSession};
pub use worker::shares::SharePlace;
pub use worker::tables::{TableId, TableStatus};
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use worker::test_support::IncarnationClient;
pub use worker::wire_type::WireType;
pub use worker::{OneSided, Worker, WorkerConfig};
