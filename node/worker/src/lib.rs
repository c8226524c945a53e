//! The worker: pulls and pushes, the clients of a job and of a run, and the coordinator of a checkpoint.
#![forbid(unsafe_code)]

mod cache;
mod calls;
mod checkpoint;
mod clients;
mod config;
mod counters;
mod error;
pub mod limits;
mod links;
mod reads;
mod requests;
mod tables;
mod worker;

pub use cache::rows::RowCache;
pub use cache::settings::{CacheConfig, CacheUse, Staleness};
pub use calls::clocks::WaitingFor;
#[doc(hidden)]
pub use calls::copy_client::{BackupLinks, BlockRequest};
pub use calls::shares::SharePlace;
pub use calls::tables::TableStatus;
pub use calls::wire_type::WireType;
pub use checkpoint::coordinator::{SavedCheckpoint, save_checkpoint};
pub use checkpoint::follower::{FollowedCut, FollowedRows, Follower};
pub use checkpoint::options::CheckpointOptions;
#[doc(hidden)]
pub use checkpoint::owner::savers_of;
pub use clients::data_link::{DataLink, DataOffer, TextChunk};
pub use clients::heartbeat::{FenceFn, Heartbeat};
pub use clients::job_answer::JobAnswer;
pub use clients::job_client::JobClient;
pub use clients::known_runs::{forget_clients, forget_run, known_runs, known_tables, server_of_run};
pub use clients::remote_coordinator::RemoteCoordinator;
pub use clients::run_client::RunClient;
pub use clients::run_session::{RunOrders, RunRequest, RunSession};
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use clients::test_support::IncarnationClient;
pub use config::builder::WorkerBuilder;
pub use config::worker_config::{OneSided, Places, WorkerConfig};
pub use counters::{Counters, WorkerCounters};
pub use error::WorkerError;
pub use reads::spec::ReadPathChoice;
pub use requests::names::{DataName, PullId, Pulled, PushId, SeenPushes, TableId};
pub use requests::push_rows::PushRows;
pub use worker::Worker;
