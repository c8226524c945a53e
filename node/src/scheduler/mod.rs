//! The scheduler: membership by heartbeat, data tasks with leases, barriers. One of a job's servers is its scheduler, or a
//! process of its own is; what it knows is its [`book::Book`].

pub(crate) mod book;
mod ending;
#[cfg(test)]
mod ending_trials;
pub(crate) mod feeding;
#[cfg(test)]
mod feeding_trials;
mod heard;
pub(crate) mod holdings;
mod jobs;
mod ledger;
pub(crate) mod member;
pub(crate) mod plan;
mod requests;
#[cfg(test)]
mod trials;

pub(crate) use jobs::{JobTableV2, SchedulerRequestV2, Schedulers};
pub use ledger::{JobStateFileError, forget_job};
pub(crate) use requests::{JobV2, Scheduler, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV1};
