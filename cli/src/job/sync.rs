//! Turns the flags of `--sync` into the way in which a worker of a job keeps step.

use crate::failure::Failure;
use crate::flags::{DampingName, JobArgs, JobName, SyncArgs, SyncName, TasksName};
use crate::report::words::counted;
use gannet::sync::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet::train::{PushContent, Reduce};
use std::time::Duration;

/// Seconds that others wait for a worker that gives no sign.
const WORKER_TIMEOUT: f64 = 60.0;

/// Checks the flags against each other.
pub fn check_sync(job: &JobArgs) -> Result<(), Failure> {
    let SyncArgs { sync, issync, replicas_to_aggregate, worker_timeout, deterministic } = job.sync;
    let (workers, tasks) = (job.worker_hosts.len() as u32, job.tasks.tasks);
    let input = |text: String| Err(Failure::input(text));
    let by_issync = issync.map(|issync| if issync == 0 { SyncName::Asp } else { SyncName::Bsp });
    if let (Some(sync), Some(by_issync)) = (sync, by_issync)
        && sync != by_issync
    {
        let issync = &job.typed.issync;
        return input(format!(
            "--issync {issync} and --sync {} contradict each other: leave one out",
            shown(sync)
        ));
    }
    let requested = sync.or(by_issync);
    let flag = if sync.is_some() { "--sync" } else { "--issync" };
    if deterministic {
        if let Some(other) = requested.filter(|requested| *requested != SyncName::Bsp) {
            return input(format!(
                "--deterministic cannot be combined with {flag}, which says {}: the order in which pushes are applied is then one of \
                 timing; leave {flag} out (bsp is meant)",
                shown(other)
            ));
        }
        if replicas_to_aggregate.is_some_and(|k| k != workers) {
            return input(format!(
                "--deterministic cannot be combined with --replicas-to-aggregate {}: whose batches are dropped is a matter of timing; \
                 leave it out",
                replicas_to_aggregate.unwrap_or_default()
            ));
        }
    }
    let bsp = deterministic || requested == Some(SyncName::Bsp);
    if let Some(k) = replicas_to_aggregate {
        if !bsp {
            return input("--replicas-to-aggregate: only bsp aggregates (--sync bsp)".into());
        }
        if k > workers {
            let workers = counted(workers.into(), "worker", "workers");
            return input(format!("--replicas-to-aggregate {k}: --worker-hosts names {workers}"));
        }
    }
    if deterministic && tasks == TasksName::On {
        let text = "--deterministic cannot be combined with --tasks on: which worker learns what is then one of timing; leave one of them out";
        return input(text.into());
    }
    if replicas_to_aggregate.is_some_and(|k| k < workers) && tasks == TasksName::On {
        let text = "--tasks on cannot be combined with --replicas-to-aggregate below the number of workers: batches that come too late are \
                    dropped, and every record of what is handed out is to be learned; leave one of them out";
        return input(text.into());
    }
    if worker_timeout.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 86_400.0)) {
        return input(format!(
            "--worker-timeout {}: more than 0 s and at most a day",
            worker_timeout.unwrap_or_default()
        ));
    }
    if bsp && workers > gannet::sync::BSP_WORKERS_MAX {
        let most = gannet::sync::BSP_WORKERS_MAX;
        return input(format!(
            "--worker-hosts names {workers} workers: at most {most} train synchronously (bsp)"
        ));
    }
    Ok(())
}

/// The content of a worker's pushes without `--push`. In synchronous steps it is gradients, whose sum is that of one
/// large batch. Changes of state would have to be averaged, which learns less (docs/consistency.md).
pub fn push(job: &JobArgs) -> Option<PushContent> {
    // A client decides the batches of its workers.
    let worker = matches!(job.job_name, Some(JobName::Worker | JobName::Client));
    (worker && is_bsp(&job.sync)).then_some(PushContent::Gradient)
}

/// The content of pushes without `--push`, for models whose changes of state cannot be damped. From the number of
/// workers on at which damping would begin, it is gradients: the plain sum of so many changes can diverge
/// (docs/benchmarks.md).
pub fn push_of_many(job: &JobArgs) -> Option<PushContent> {
    let worker = job.job_name == Some(JobName::Worker);
    (worker && job.worker_hosts.len() >= DAMPED_FROM).then_some(PushContent::Gradient)
}

/// From so many workers on, changes of state are damped without `--damping`. The plain sum of the changes of two
/// workers learns as well as one worker (docs/benchmarks.md).
const DAMPED_FROM: usize = 3;

/// Whether changes of state are damped by those of other workers.
pub fn is_damped(job: &JobArgs, push: PushContent) -> Result<bool, Failure> {
    let can = match push {
        PushContent::Gradient => {
            Err("--damping on: only changes of state are damped; --push gradient pushes none")
        }
        PushContent::Replay if is_bsp(&job.sync) => {
            Err("--damping on cannot be combined with bsp, which averages the changes of state of a step")
        }
        PushContent::Replay => Ok(job.worker_hosts.len() >= DAMPED_FROM),
    };
    match (job.damping.damping, can) {
        (Some(DampingName::On), Err(why)) => Err(Failure::input(why)),
        (Some(DampingName::On), _) => Ok(true),
        (Some(DampingName::Off), _) => Ok(false),
        (None, default) => Ok(default.unwrap_or(false)),
    }
}

/// How long other workers wait for a worker that gives no sign.
pub fn timeout(args: &SyncArgs) -> Duration {
    Duration::from_secs_f64(args.worker_timeout.unwrap_or(WORKER_TIMEOUT))
}

/// Whether the batches of all workers make one step.
pub fn is_bsp(args: &SyncArgs) -> bool {
    args.deterministic || matches!((args.sync, args.issync), (Some(SyncName::Bsp), _) | (None, Some(1)))
}

/// How worker `rank` of `workers` keeps step. Pushes of changes of state are averaged. Gradients are combined like
/// those of a batch.
pub fn membership(args: &SyncArgs, rank: u32, workers: u32, push: PushContent, reduce: Reduce) -> SyncConfig {
    let merge = match (push, reduce) {
        (PushContent::Gradient, Reduce::Sum) => Merge::Sum,
        _ => Merge::Mean,
    };
    let aggregate = args.replicas_to_aggregate.unwrap_or(workers);
    let together = SyncMode::Bsp(StepReduce { aggregate, merge });
    let mode = match args.sync {
        _ if is_bsp(args) => together,
        Some(SyncName::Ssp(bound)) => SyncMode::Ssp(bound),
        _ => SyncMode::Asp,
    };
    let worker_timeout = timeout(args);
    SyncConfig { rank, workers, mode, worker_timeout, strict: args.deterministic }
}

fn shown(sync: SyncName) -> String {
    match sync {
        SyncName::Asp => "asp".into(),
        SyncName::Ssp(bound) => format!("ssp:{bound}"),
        SyncName::Bsp => "bsp".into(),
    }
}
