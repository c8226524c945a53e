//! Training data that grows: a folder (`--follow`), or a topic of Kafka.

use crate::failure::Failure;
use crate::flags::{FollowOrder, FormatName, JobName, ModelName, ScaleName, TasksName, TrainArgs};
use crate::metrics::Metrics;
use crate::signals;
use crate::train::lbfgs;
use gannet::train::{Folder, GrowingSource, LocalTasks, Options, StopFlag, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a process looks for the first file.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After so long it says what it waits for.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// What the name of a topic begins with.
const KAFKA: &str = "kafka://";

/// The topic that DATA names, if it does.
fn topic(args: &TrainArgs) -> Option<&str> {
    let named = || args.data.iter().filter_map(|path| path.to_str()).find(|path| path.starts_with(KAFKA));
    args.follow.topic.as_deref().or_else(named)
}

/// Refuses flags that do not go with data that grows.
pub fn check_follow(args: &TrainArgs) -> Result<(), Failure> {
    let (job, follow) = (&args.job, &args.follow);
    let topic = topic(args);
    if follow.follow.is_none() && topic.is_none() {
        let given = [(follow.until_end, "--until-end"), (follow.until.is_some(), "--until")];
        return match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => {
                Err(Failure::input(format!("{flag}: works only with --follow or a topic of Kafka")))
            }
            None => Ok(()),
        };
    }
    let alone = job.job_name.is_none();
    let looks_at_all = matches!(args.input.scale, Some(ScaleName::Standard | ScaleName::Minmax));
    let refused = [
        (
            follow.follow.is_some() && !args.data.is_empty(),
            "DATA: the files of --follow take its place; leave one of them out",
        ),
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
        None => match &follow.follow {
            Some(folder) if folder.to_str().is_none() => Err(Failure::input(format!(
                "--follow {}: the path is not UTF-8; rename it",
                folder.display()
            ))),
            _ => topic.map_or(Ok(()), |topic| check_topic(args, topic)),
        },
    }
}

/// Refuses flags that do not go with a topic of Kafka.
fn check_topic(args: &TrainArgs, topic: &str) -> Result<(), Failure> {
    let refused = [
        (args.data.len() > 1, "DATA: one topic of Kafka is trained at a time; leave the rest out"),
        (
            args.input.format == FormatName::Auto,
            "--format: name the format of the messages of a topic, such as --format json",
        ),
        (
            matches!(args.input.format, FormatName::Parquet | FormatName::Arrow),
            "--format: the messages of a topic are lines; parquet and arrow are formats of files",
        ),
        (
            args.input.format == FormatName::Csv && !args.input.no_header,
            "--format csv: messages have no header; name the columns with --no-header --columns A,B,..",
        ),
    ];
    match refused.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, text)) => Err(Failure::input(text)),
        None => kafka::check(topic),
    }
}

/// When the training ends.
fn until(args: &TrainArgs) -> Until {
    match args.follow.until {
        Some(time) => Until::Time(time),
        None if args.follow.until_end => Until::End,
        None => Until::Stopped,
    }
}

/// Nanoseconds since 1970.
fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

/// The folder, as the flags describe it.
fn folder(args: &TrainArgs, path: &Path) -> Folder {
    let by_time = args.follow.follow_order == FollowOrder::Time;
    let bytes = args.job.tasks.task_bytes.map(|bytes| bytes.as_u64().max(1));
    Folder::new(path, by_time, until(args), bytes, clock)
}

/// The source of the data, if it grows.
///
/// # Errors
/// The address of a topic is wrong.
pub fn source(args: &TrainArgs) -> Result<Option<Arc<dyn GrowingSource>>, Failure> {
    match (&args.follow.follow, &args.follow.topic) {
        (Some(path), _) => Ok(Some(Arc::new(folder(args, path)))),
        (None, Some(topic)) => kafka::source(topic, until(args)).map(Some),
        (None, None) => Ok(None),
    }
}

/// Whether the source has something, so that the training can begin. `None`: it will have nothing.
fn has_begun(args: &mut TrainArgs, source: &Source, stop: &Arc<AtomicBool>) -> Result<Option<bool>, Failure> {
    match source {
        Source::Folder(folder) => match folder.first().map_err(Failure::input)? {
            Some(first) => {
                args.data = vec![PathBuf::from(first)];
                Ok(Some(true))
            }
            None => Ok((!folder.is_over()).then_some(false)),
        },
        Source::Topic(topic) => {
            let sample = topic.sample(&StopFlag::from(stop.clone())).map_err(Failure::input)?;
            let is_over = match until(args) {
                Until::Stopped => false,
                Until::End => true,
                Until::Time(time) => clock() > time,
            };
            Ok((sample.is_some() || !is_over).then_some(sample.is_some()))
        }
    }
}

/// A source, before the training.
enum Source {
    Folder(Folder),
    Topic(Arc<dyn GrowingSource>),
}

/// Waits for the first file or message of a source that grows. It says how the data is read. Returns `false` if a
/// signal came first.
pub fn settle(args: &mut TrainArgs) -> Result<bool, Failure> {
    check_follow(args)?;
    let topic = topic(args).map(str::to_owned);
    if topic.is_some() {
        (args.follow.topic, args.data) = (topic.clone(), Vec::new());
    }
    if args.job.job_name == Some(JobName::Ps) {
        return Ok(true);
    }
    let (name, source) = match (&args.follow.follow, &topic) {
        (Some(path), _) => (format!("--follow {}", path.display()), Source::Folder(folder(args, path))),
        (None, Some(topic)) => (topic.clone(), Source::Topic(kafka::source(topic, until(args))?)),
        (None, None) => return Ok(true),
    };
    let (stop, since, mut said) = (signals::stop_flag()?, Instant::now(), false);
    while !stop.load(Relaxed) {
        match has_begun(args, &source, &stop)? {
            Some(true) => return Ok(true),
            None => return Err(Failure::input(format!("{name}: there is nothing to train until the end"))),
            Some(false) => {}
        }
        if since.elapsed() >= SAID_AFTER && !std::mem::replace(&mut said, true) {
            notice!("gannet: waiting for something to train in {name}");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// In one process: the data of `options` comes from the source that grows, if there is one.
pub fn train_alone(args: &TrainArgs, options: &mut Options, metrics: &Metrics) -> Result<(), Failure> {
    if let Some(source) = source(args)? {
        tell_lags(metrics, &source);
        options.splits = Some((Arc::new(LocalTasks::new(source)), Vec::new()));
    }
    Ok(())
}

/// Adds the metrics of a source that grows.
pub fn tell_lags(metrics: &Metrics, source: &Arc<dyn GrowingSource>) {
    let source = source.clone();
    metrics.add(move |page| {
        for (partition, lag) in source.lags() {
            page.gauge(
                "gannet_kafka_lag_messages",
                "Messages of a partition that are not trained, as this process last saw.",
                &[("partition", &partition.to_string())],
                lag as f64,
            );
        }
    });
}

/// Topics of Kafka.
#[cfg(feature = "kafka")]
mod kafka {
    use super::{Failure, GrowingSource, Until, clock};
    use gannet::train::{KafkaAddress, KafkaTopic};
    use std::sync::Arc;

    /// Checks the address of a topic.
    pub fn check(topic: &str) -> Result<(), Failure> {
        KafkaAddress::parse(topic).map(drop).map_err(Failure::input)
    }

    /// The topic at this address.
    pub fn source(topic: &str, until: Until) -> Result<Arc<dyn GrowingSource>, Failure> {
        let address = KafkaAddress::parse(topic).map_err(Failure::input)?;
        Ok(Arc::new(KafkaTopic::new(address, until, clock).map_err(Failure::input)?))
    }
}

/// This command has no client of Kafka.
#[cfg(not(feature = "kafka"))]
mod kafka {
    use super::{Failure, GrowingSource, Until};
    use std::sync::Arc;

    fn missing(topic: &str) -> Failure {
        Failure::input(format!("{topic}: this gannet cannot read Kafka; build it with --features kafka"))
    }

    pub fn check(topic: &str) -> Result<(), Failure> {
        Err(missing(topic))
    }

    pub fn source(topic: &str, _until: Until) -> Result<Arc<dyn GrowingSource>, Failure> {
        Err(missing(topic))
    }
}
