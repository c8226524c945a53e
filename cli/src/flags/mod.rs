//! The command line: all commands and flags. A file here has the flags of a group, or those of a command.

pub mod backups;
pub mod bench;
pub mod checkpoints;
pub mod cli;
pub mod data;
pub mod doctor;
pub mod job;
pub mod launch;
pub mod learn;
pub mod log;
pub mod metrics;
pub mod model;
pub mod optimizer;
pub mod scores;
pub mod security;
pub mod serve;
pub mod server;
pub mod status;
pub mod training;
pub mod transport;
pub mod tune;
pub mod words;

pub use crate::flags::backups::ReplicationName;
pub use crate::flags::bench::BenchArgs;
pub use crate::flags::checkpoints::{
    ArraysName, CheckpointArgs, CheckpointCommand, DiffArgs, ExportArgs, ImportArgs, ListArgs, PruneArgs,
    RestoreFoldersArgs, SaveArgs, ShowArgs, VerifyArgs,
};
pub use crate::flags::cli::{Cli, Command};
pub use crate::flags::data::{
    CountsName, DataCacheArgs, FollowArgs, FollowOrder, FormatName, InputArgs, NormalizeName, ScaleName,
    StartName, TypesName,
};
pub use crate::flags::doctor::DoctorArgs;
pub use crate::flags::job::{
    DEFAULT_RUN, DampingName, JobArgs, JobName, RUN_FLAGS, RunArgs, SyncArgs, SyncName, TableArgs, TaskArgs,
    TasksName,
};
pub use crate::flags::launch::{ClaimPortsArgs, LaunchArgs};
pub use crate::flags::log::LogArgs;
pub use crate::flags::metrics::MetricsArgs;
pub use crate::flags::model::{AdmissionArgs, EvictionArgs, ModelArgs, ModelName};
pub use crate::flags::optimizer::{
    LbfgsArgs, OptimizerArgs, OptimizerName, PushName, ReduceName, ScheduleArgs, ScheduleName,
};
pub use crate::flags::scores::{InspectArgs, ModelExportArgs, PredictArgs};
pub use crate::flags::server::{RestoreArgs, SchedulerArgs, ServerArgs, SessionArgs, StoreArgs};
pub use crate::flags::status::{ForgetArgs, StatusArgs};
pub use crate::flags::training::{ClassWeight, DataArgs, OutputArgs, PassArgs, TrainArgs, WatchArgs};
pub use crate::flags::transport::{CacheUseName, IoArgs, IoName, SyncRowsName, TransportName};
pub use crate::flags::tune::TuneArgs;
pub use crate::flags::words::short_help::spelled;
