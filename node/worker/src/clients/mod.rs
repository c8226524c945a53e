//! Clients of a job, of a run and of a coordinator, built on the worker.

pub(crate) mod data_link;
#[cfg(test)]
mod full_disk_tests;
pub(crate) mod heartbeat;
mod heartbeat_tasks;
pub(crate) mod incarnation;
pub(crate) mod job_answer;
pub(crate) mod job_client;
pub(crate) mod known_runs;
pub(crate) mod logged_wait;
pub(crate) mod no_space;
pub(crate) mod remote_coordinator;
pub(crate) mod run_client;
pub(crate) mod run_session;
pub(crate) mod shared;
#[cfg(feature = "test-support")]
pub(crate) mod test_support;
