//! The scheduler: membership by heartbeat, splits of the data with leases, barriers. One of a job's servers is its
//! scheduler, or a process of its own is. What it knows is its [`JobState`](job_state::JobState).

mod completion;
#[cfg(test)]
mod completion_tests;
pub(crate) mod data_server;
#[cfg(test)]
mod data_server_tests;
pub(crate) mod job_plan;
pub(crate) mod job_state;
mod job_state_file;
mod jobs;
#[cfg(test)]
mod jobs_tests;
pub(crate) mod leases;
pub(crate) mod member;
mod registration;
mod requests;
#[cfg(test)]
mod scheduler_model_tests;
pub(crate) mod table_records;

pub use job_state_file::{JobStateFileError, forget_job};
pub(crate) use jobs::{JobTableV2, SchedulerRequestV2, Schedulers};
pub(crate) use requests::{JobV2, Scheduler, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV1};
