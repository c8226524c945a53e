//! The scheduler: membership by heartbeat, splits of the data with leases, barriers. One of a job's servers is its
//! scheduler, or a process of its own is. What it knows is its `JobState`.

pub(crate) mod completion;
#[cfg(test)]
mod completion_tests;
pub mod data_server;
pub mod growing;
#[cfg(test)]
mod growing_tests;
pub(crate) mod job_state;
pub mod job_state_file;
pub mod jobs;
#[cfg(test)]
mod jobs_tests;
pub(crate) mod leases;
pub(crate) mod registration;
pub mod requests;
#[cfg(test)]
mod scheduler_model_tests;
pub(crate) mod table_records;
