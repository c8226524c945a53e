//! Which server of a job has which part.

use crate::flags::JobArgs;

/// The scheduler that the flags name. Without one it is the server that keeps the registry of the run.
pub fn named_scheduler(job: &JobArgs) -> Option<&str> {
    job.tasks.scheduler.as_deref().or(job.data_server.feed.as_deref())
}

/// The server that keeps the registry of a new run, and is its scheduler without `--scheduler`. It does not depend on
/// the order of `--ps-hosts`.
pub fn first_server(ps_hosts: &[String]) -> &str {
    ps_hosts.iter().min().map_or("", |least| least)
}
