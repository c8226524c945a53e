//! Refuses flags that have no effect in the role of a process.

use crate::failure::Failure;
use crate::flags::{JobArgs, JobName, RunArgs, TasksName, TrainArgs};
use crate::job::{backups, cache, sync};
use crate::train::feed::roles;

/// Refuses flags that have no effect in this process, because they are probably a mistake. `is_launched`: all processes
/// of the job have the same flags, so flags of the other role are none.
pub fn check_role(args: &TrainArgs, is_launched: bool) -> Result<(), Failure> {
    let TrainArgs { job, memory, sessions, .. } = args;
    let ps = job.job_name == Some(JobName::Ps);
    let client = job.job_name == Some(JobName::Client);
    let worker = job.job_name == Some(JobName::Worker);
    roles::check_role(args)?;
    let tls_ca = job.tls_client.tls_ca.is_some();
    // A ps with backups, or one that asks for the end of its run, is also a client of other servers.
    let joins = job.backups.coordinator.is_some() || job.exit_with_job;
    if args.data.is_empty() && !ps && job.data_server.feed.is_none() {
        let text = "DATA is missing: name the files to train on, such as `gannet train clicks.svm`; - is standard input";
        return Err(Failure::input(text));
    }
    if is_launched && ps {
        return Ok(());
    }
    let misplaced = [
        (ps && tls_ca && !joins, "--tls-ca", "a worker; a ps speaks TLS with --tls-cert and --tls-key"),
        (ps && job.tls_client.tls_name.is_some() && !joins, "--tls-name", "a worker"),
        (
            worker && job.tls_server.tls_client_ca.is_some(),
            "--tls-client-ca",
            "a ps; a worker trusts servers by --tls-ca",
        ),
        (
            (worker || client) && memory.memory_limit.is_some(),
            "--memory-limit",
            "a process that has tables; a worker has none",
        ),
        (
            misplaced(job).is_some(),
            misplaced(job).unwrap_or_default(),
            "a worker or a client (--run: also in a ps with --checkpoint, --coordinator or --exit-with-job)",
        ),
        (backups::misplaced(job).is_some(), backups::misplaced(job).unwrap_or_default(), "a ps"),
        (ps && job.one_sided.one_sided.is_some(), "--one-sided", "a worker"),
        ((ps || client) && job.wire.wire.is_some(), "--wire", "a worker"),
        (job.exit_with_job && !ps, "--exit-with-job", "a ps: other processes end with their job anyway"),
        (job.listen.is_some() && !ps, "--listen", "a ps; workers and clients use --ps-hosts and --feed"),
        (client && job.checkpoint.checkpoint.is_some(), "--checkpoint", "a ps or a worker"),
        (worker && job.data_dir.is_some(), "--data-dir", "a ps or a client; a worker keeps no rows"),
    ];
    if let Some(flag) = misplaced_alone(job) {
        return Err(Failure::input(format!("{flag}: works only in a process of a job (--job-name)")));
    }
    let misplaced = misplaced.iter().find(|(is_given, ..)| *is_given).map(|&(_, flag, whose)| (flag, whose));
    let of_sessions =
        sessions.first_given().filter(|_| !ps && !client).map(|flag| (flag, "a ps or gannet server"));
    let misplaced = misplaced.or(of_sessions).filter(|_| !is_launched);
    let shards = job.table.shards.map(|_| "--shards").filter(|_| !client);
    let of_lr = cache::first_given(&job.cache).or(shards).filter(|_| !worker || !cache::learns_so(args));
    match (misplaced, of_lr) {
        (Some((flag, whose)), _) => Err(Failure::input(format!("{flag}: works only in {whose}"))),
        (None, Some(flag)) => Err(Failure::input(format!(
            "{flag} works only in a worker of a job with --model lr, and not with --optimizer lbfgs"
        ))),
        (None, None) => Ok(()),
    }
}

/// A flag of jobs that was given to a process without a job.
fn misplaced_alone(job: &JobArgs) -> Option<String> {
    if job.job_name.is_some() {
        return None;
    }
    let flags = [
        (job.one_sided.one_sided.is_some(), "--one-sided"),
        (job.wire.wire.is_some(), "--wire"),
        (job.damping.damping.is_some(), "--damping"),
        (job.security.token_file.is_some(), "--token-file"),
        (job.security.insecure, "--insecure"),
        (job.tls_client.tls_ca.is_some() || job.security.tls_cert.is_some(), "TLS"),
        (job.typed.task_index, "--task-index"),
        (job.typed.peer_timeout, "--peer-timeout"),
        (job.tasks.tasks != TasksName::Auto, "--tasks"),
        (job.tasks.task_bytes.is_some(), "--task-bytes"),
        (job.tasks.start_together, "--start-together"),
        (job.tasks.scheduler.is_some(), "--scheduler"),
        (job.checkpoint.checkpoint.is_some(), "--checkpoint"),
        (job.backups.coordinator.is_some(), "--coordinator"),
    ];
    let flag = flags.iter().find(|(is_given, _)| *is_given).map(|(_, flag)| (*flag).to_owned());
    flag.or_else(|| sync::misplaced(job))
}

/// Refuses flags of a run in a ps, which learns of runs from the workers. But it must know whose checkpoints it
/// restores, whose rows it keeps in a job with a coordinator, and with which run it ends.
pub fn misplaced(job: &JobArgs) -> Option<&'static str> {
    let JobArgs { checkpoint, backups, exit_with_job, .. } = job;
    let needs_it = checkpoint.checkpoint.is_some() || backups.coordinator.is_some() || *exit_with_job;
    let run = job.run.run.clone().filter(|_| !needs_it);
    let flags = RunArgs { run, ..job.run.clone() };
    flags.first_given().filter(|_| job.job_name == Some(crate::flags::JobName::Ps))
}
