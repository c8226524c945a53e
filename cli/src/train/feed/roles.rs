//! Flags that do not go with `--feed`.

use crate::failure::Failure;
use crate::flags::{JobName, ModelName, TrainArgs};
use crate::train::lbfgs;

/// Refuses flags that do not go with `--feed`, or that only the client or only its workers may have.
pub fn check_role(args: &TrainArgs) -> Result<(), Failure> {
    let job = &args.job;
    let has_feed = job.data_server.feed.is_some();
    let client = job.job_name == Some(JobName::Client);
    let remote_worker = has_feed && job.job_name == Some(JobName::Worker);
    let input = &args.input;
    let named =
        [&input.categorical, &input.numeric, &input.ignore, &input.cross, &input.quadratic, &input.cubic];
    let reads = input.label.is_some() || named.iter().any(|names| !names.is_empty());
    let reads = reads || input.offset.is_some() || input.delimiter.is_some() || input.no_header;
    let reads = reads || input.format != crate::flags::FormatName::Auto || input.criteo_counts.is_some();
    let misplaced = [
        (has_feed && !client && !remote_worker, "--feed: works only in a worker or the client of a job"),
        (
            client && !has_feed,
            "--job-name client: --feed HOST:PORT is missing: it says where the client listens for its workers",
        ),
        (
            client && args.data.is_empty(),
            "--job-name client: DATA is missing: name the files that the client sends to the workers",
        ),
        (client && job.task_index != 0, "--task-index: a job has one client; leave it out"),
        (
            remote_worker && !args.data.is_empty(),
            "DATA: with --feed only the client reads the data; leave it out",
        ),
        (
            remote_worker
                && (reads || input.positive.is_some() || input.skip_bad_lines != 0 || args.no_intercept),
            "--format, --label, --categorical, --numeric, --ignore, --offset, --delimiter, --no-header, --cross, \
             --quadratic, --cubic, --criteo-counts, --positive, --skip-bad-lines, --no-intercept: with --feed the client decides how the data is read; leave them out",
        ),
        (
            remote_worker && job.tasks.task_bytes.is_some(),
            "--task-bytes: with --feed the client makes the splits; leave it out",
        ),
        (
            remote_worker && (!args.test.is_empty() || args.out.is_some()),
            "--test, --out: with --feed the client tests and saves; leave them out",
        ),
        (
            has_feed && job.tasks.scheduler.is_some(),
            "--scheduler: the client (--feed) is the job's scheduler; leave it out",
        ),
        (
            remote_worker && job.data_dir.is_some(),
            "--data-dir: works only in the client (the job's state) or a ps (its shards); leave it out",
        ),
    ];
    match misplaced.iter().find(|(wrong, _)| *wrong) {
        Some((_, text)) => Err(Failure::input(*text)),
        None => Ok(()),
    }
}

/// Refuses trainings that cannot use data from a client.
pub fn check_model(args: &TrainArgs) -> Result<(), Failure> {
    if args.input.scale.is_some() {
        let text = "--scale: the workers of a client cannot read its files before the training; scale the numbers \
                    when you write the files, and leave --scale out";
        return Err(Failure::input(text));
    }
    if args.model.model != ModelName::Lr || lbfgs::plan::is_chosen(args)? {
        let text = "--feed: works only with --model lr, and not with --optimizer lbfgs; leave --feed out, and let the \
                    workers read the data";
        return Err(Failure::input(text));
    }
    Ok(())
}
