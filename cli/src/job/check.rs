//! Checks of flags that every process of a job makes.

use crate::failure::Failure;
use crate::flags::{JobArgs, JobName};
use crate::job::{backups, servers, sync};

/// Checks the flags of a job.
pub fn check_job(job: &JobArgs) -> Result<(), Failure> {
    if job.worker_hosts.is_empty() {
        return Err(Failure::input("--worker-hosts is missing: name an address for each worker of the job"));
    }
    let (flag, hosts) = match job.job_name {
        Some(JobName::Ps) => ("--ps-hosts", &job.ps_hosts),
        _ => ("--worker-hosts", &job.worker_hosts),
    };
    if job.task_index as usize >= hosts.len() {
        let (index, n) = (job.task_index, hosts.len());
        return Err(Failure::input(format!(
            "--task-index {index}: {flag} names {n}, so 0 to {} is allowed",
            n - 1
        )));
    }
    for host in job.ps_hosts.iter().chain(&job.worker_hosts).chain(&job.data_server.feed) {
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err(Failure::input(format!(
                "address {host:?}: HOST:PORT is needed, for example 127.0.0.1:7700"
            )));
        }
    }
    if let Some(twice) = (1..job.ps_hosts.len()).find(|&i| job.ps_hosts[..i].contains(&job.ps_hosts[i])) {
        let twice = &job.ps_hosts[twice];
        return Err(Failure::input(format!("--ps-hosts names {twice} twice: name each server once")));
    }
    sync::check_sync(job)?;
    check_checkpoint(job)?;
    backups::check_backups(job)?;
    if !(job.peer_timeout > 0.0 && job.peer_timeout <= 86_400.0) {
        return Err(Failure::input(format!(
            "--peer-timeout {}: more than 0 s and at most a day",
            job.peer_timeout
        )));
    }
    Ok(())
}

/// Refuses checkpoints of a job whose tasks are kept where no checkpoint is restored. Such a job would train again what
/// the checkpoint has.
fn check_checkpoint(job: &JobArgs) -> Result<(), Failure> {
    let first = servers::first_server(&job.ps_hosts);
    let named = servers::named_scheduler(job).filter(|named| *named != first);
    let (Some(_), Some(scheduler)) = (&job.checkpoint.checkpoint, named) else { return Ok(()) };
    Err(Failure::input(format!(
        "--checkpoint: the scheduler of this job is {scheduler}, but only a job whose scheduler is {first}, the first of \
         --ps-hosts in alphabetical order, can go on from a checkpoint; leave --scheduler and --feed out"
    )))
}
