//! What the flags of a training by L-BFGS say.

use crate::failure::Failure;
use crate::flags::{ModelName, OptimizerName, SyncArgs, SyncName, TaskArgs, TasksName, TrainArgs};
use crate::input;
use crate::model::lr::TABLE;
use crate::model::{folder, lr, optimizer};
use crate::train::{cache, input_check};
use gannet::train::lbfgs::{Layout, LbfgsSettings};
use gannet::train::{Options, Share};
use gannet::{Rule, Schema};
use std::path::PathBuf;
use std::time::Duration;

const HISTORY: u16 = 10;

/// Both defaults are scikit-learn's.
const ITERATIONS: u32 = 100;

const TOLERANCE: f64 = 1e-4;

const DATA_BYTES: u64 = 8 << 30;

const PASS_SECONDS: f64 = 600.0;

/// Whether the flags choose L-BFGS.
pub fn is_chosen(args: &TrainArgs) -> Result<bool, Failure> {
    let chosen = args.optimizer.optimizer == Some(OptimizerName::Lbfgs);
    if chosen && args.model.model != ModelName::Lr {
        return Err(Failure::input("--optimizer lbfgs: works only with --model lr"));
    }
    Ok(chosen)
}

/// What the flags request.
pub struct LbfgsPlan {
    pub settings: LbfgsSettings,
    pub layout: Layout,
    /// Bytes that the examples may take.
    pub data_bytes: u64,
}

/// A flag that has no meaning for L-BFGS, whose workers make each pass together, over shares that they keep in
/// memory.
fn misplaced(args: &TrainArgs) -> Option<&'static str> {
    let SyncArgs { sync, issync, replicas_to_aggregate, worker_timeout, deterministic } = args.job.sync;
    let TaskArgs { tasks, task_bytes, start_together, ref scheduler } = args.job.tasks;
    let misplaced = [
        (args.epochs != 1, "--epochs: L-BFGS has --max-iter"),
        (args.batch.is_some(), "--batch: L-BFGS looks at the whole data"),
        (
            args.watch.validate_every.is_some(),
            "--validate-every: L-BFGS has no steps of batches; it scores --test at its end",
        ),
        (args.watch.save_secs.is_some(), "--save-secs: L-BFGS saves --out when it has ended"),
        (args.admission.is_given(), "--admit-count, --admit-probability: L-BFGS gives every key a row"),
        (
            sync.is_some_and(|sync| sync != SyncName::Asp),
            "--sync: the workers of L-BFGS make each pass together by themselves; leave it out",
        ),
        (
            issync == Some(1),
            "--issync 1: the workers of L-BFGS make each pass together by themselves; leave it out",
        ),
        (
            replicas_to_aggregate.is_some(),
            "--replicas-to-aggregate: L-BFGS needs the gradients of all workers",
        ),
        (args.job.damping.damping.is_some(), "--damping: L-BFGS pushes no changes of state"),
        (worker_timeout.is_some(), "--worker-timeout: L-BFGS waits for its workers for --pass-timeout"),
        (
            deterministic,
            "--deterministic cannot be combined with --optimizer lbfgs: sums over rows are in the order in which the rows came, which is one \
             of timing",
        ),
        (
            tasks == TasksName::On,
            "--tasks on cannot be combined with --optimizer lbfgs: each worker keeps its share of the data in memory (leave --tasks out)",
        ),
        (
            task_bytes.is_some(),
            "--task-bytes: does not work with L-BFGS, whose workers have fixed shares; leave it out",
        ),
        (
            start_together,
            "--start-together: does not work with L-BFGS, whose workers have fixed shares; leave it out",
        ),
        (
            scheduler.is_some(),
            "--scheduler: does not work with L-BFGS, whose workers have fixed shares; leave it out",
        ),
    ];
    misplaced.iter().find(|(applies, _)| *applies).map(|&(_, text)| text)
}

/// The plan, and the data to read.
pub fn plan(args: &TrainArgs, share: Share) -> Result<(LbfgsPlan, Options), Failure> {
    let own = &args.lbfgs;
    let (l1, l2) = optimizer::penalties(&args.optimizer)?;
    if let Some(text) = misplaced(args) {
        return Err(Failure::input(text));
    }
    let tolerance = own.tolerance.unwrap_or(TOLERANCE);
    if !(0.0..1.0).contains(&tolerance) {
        return Err(Failure::input(format!("--tolerance {tolerance}: at least 0 and below 1")));
    }
    let seconds = own.pass_timeout.unwrap_or(PASS_SECONDS);
    if !(seconds > 0.0 && seconds <= 86_400.0) {
        return Err(Failure::input(format!("--pass-timeout {seconds}: more than 0 s and at most a day")));
    }
    let read = |files: &[PathBuf]| input::data(files, &args.input, !args.no_intercept);
    let test = if args.test.is_empty() { None } else { Some(read(&args.test)?) };
    let threads = args.threads.unwrap_or(2) as usize;
    let mut options = Options { test, share, threads, ..Options::new(read(&args.data)?) };
    options.data.cache = cache::cache(args)?;
    let chief = args.job.task_index == 0;
    if chief || args.input.scale.is_some() || own.warm_start.is_some() {
        input_check::look(args, &mut options.data, options.test.as_mut(), chief && !args.json)?;
    }
    let settings = LbfgsSettings {
        l1,
        l2,
        intercept: !args.no_intercept,
        iterations: own.iterations.unwrap_or(ITERATIONS),
        tolerance,
        workers: share.workers,
        patience: Duration::from_secs_f64(seconds),
    };
    let layout = Layout { history: own.history.unwrap_or(HISTORY) };
    let data_bytes = own.data_memory.map_or(DATA_BYTES, |size| size.as_u64());
    Ok((LbfgsPlan { settings, layout, data_bytes }, options))
}

/// Finds errors before the training that would otherwise stop it at the end.
pub fn preflight(args: &TrainArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.lbfgs.warm_start {
        lr::check_warm_start(folder)?;
    }
    if let Some(folder) = &args.out {
        folder::may_write(folder, &Schema::scalar(TABLE, Rule::Add(gannet::optim::Add)))?;
    }
    Ok(())
}
