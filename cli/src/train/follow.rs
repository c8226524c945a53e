//! Training data that grows (`--follow`).

use crate::failure::Failure;
use crate::flags::{FollowOrder, JobName, ModelName, ScaleName, TasksName, TrainArgs};
use crate::signals;
use crate::train::lbfgs;
use gannet::train::{Folder, GrowingSource, LocalTasks, Options, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a process looks for the first file.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After so long it says what it waits for.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// Refuses flags that do not go with data that grows.
pub fn check_follow(args: &TrainArgs) -> Result<(), Failure> {
    let (job, Some(folder)) = (&args.job, &args.follow.follow) else { return Ok(()) };
    let alone = job.job_name.is_none();
    let looks_at_all = matches!(args.input.scale, Some(ScaleName::Standard | ScaleName::Minmax));
    let refused = [
        (!args.data.is_empty(), "DATA: the files of --follow take its place; leave one of them out"),
        (args.epochs > 1, "--epochs: data that grows is trained once; leave it out"),
        (
            job.data_server.feed.is_some(),
            "--feed: --follow needs workers that see the folder; leave --feed out",
        ),
        (
            looks_at_all,
            "--scale: this scaling looks at all data before the training; use --scale log or none",
        ),
        (
            args.model.model == ModelName::Lda,
            "--model lda: its workers keep their data, which therefore cannot grow; leave --follow out",
        ),
        (
            lbfgs::plan::is_chosen(args)?,
            "--optimizer lbfgs: it looks at all data in each step; leave --follow out",
        ),
        (
            alone && job.data_dir.is_some(),
            "--data-dir: one process alone does not keep which files are trained; train in a job: gannet launch",
        ),
        (
            !alone && job.tasks.tasks == TasksName::Off,
            "--tasks off: the scheduler hands out the files of --follow; leave --tasks out",
        ),
    ];
    match refused.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, text)) => Err(Failure::input(text)),
        None if folder.to_str().is_none() => {
            Err(Failure::input(format!("--follow {}: the path is not UTF-8; rename it", folder.display())))
        }
        None => Ok(()),
    }
}

/// The folder, as the flags describe it.
fn folder(args: &TrainArgs, path: &Path) -> Folder {
    let follow = &args.follow;
    let until = match follow.until {
        Some(time) => Until::Time(time),
        None if follow.until_end => Until::End,
        None => Until::Stopped,
    };
    let bytes = args.job.tasks.task_bytes.map(|bytes| bytes.as_u64().max(1));
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    Folder::new(path, follow.follow_order == FollowOrder::Time, until, bytes, clock)
}

/// The source of the data, if it grows.
pub fn source(args: &TrainArgs) -> Option<Arc<dyn GrowingSource>> {
    let path = args.follow.follow.as_deref()?;
    Some(Arc::new(folder(args, path)))
}

/// Waits for the first file of a growing folder. It says how the data is read. Returns `false` if a signal came first.
pub fn settle(args: &mut TrainArgs) -> Result<bool, Failure> {
    let Some(path) = args.follow.follow.clone() else { return Ok(true) };
    if args.job.job_name == Some(JobName::Ps) {
        return Ok(true);
    }
    check_follow(args)?;
    let folder = folder(args, &path);
    let (stop, since, mut said) = (signals::stop_flag()?, Instant::now(), false);
    while !stop.load(Relaxed) {
        if let Some(first) = folder.first().map_err(Failure::input)? {
            args.data = vec![PathBuf::from(first)];
            return Ok(true);
        }
        if folder.is_over() {
            let text = format!("--follow {}: the folder has no file to train until the end", path.display());
            return Err(Failure::input(text));
        }
        if since.elapsed() >= SAID_AFTER && !std::mem::replace(&mut said, true) {
            notice!("gannet: waiting for the first file in {} (--follow)", path.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// In one process: the data of `options` comes from the source that grows, if there is one.
pub fn train_alone(args: &TrainArgs, options: &mut Options) {
    if let Some(source) = source(args) {
        options.splits = Some((Arc::new(LocalTasks::new(source)), Vec::new()));
    }
}
