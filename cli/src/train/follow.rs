//! Training data that grows: a folder (`--follow`), or a topic of Kafka.

use crate::failure::Failure;
use crate::flags::{DataArgs, FollowArgs, FollowOrder, FormatName, TaskArgs};
use crate::metrics::Metrics;
use crate::signals;
use gannet::train::{Folder, GrowingSource, LocalTasks, Options, Sample, StopFlag, Until};
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

/// Takes the topic of Kafka out of DATA, if it names one. It is no file.
pub fn take_topic(data: &mut DataArgs) {
    let is_topic = |path: &PathBuf| path.to_str().is_some_and(|path| path.starts_with(KAFKA));
    if let Some(at) = data.files.iter().position(is_topic) {
        data.follow.topic = data.files.remove(at).to_str().map(str::to_owned);
    }
}

/// Refuses a topic whose messages cannot be read.
///
/// # Errors
/// Its format is not named, or not one of messages; its address is wrong.
pub fn check_topic(data: &DataArgs) -> Result<(), Failure> {
    let Some(topic) = &data.follow.topic else { return Ok(()) };
    let text = match data.input.format {
        FormatName::Auto => "--format: name the format of the messages of a topic, such as --format json",
        FormatName::Parquet | FormatName::Arrow => {
            "--format: the messages of a topic are lines; parquet and arrow are formats of files"
        }
        FormatName::Csv if !data.input.no_header => {
            "--format csv: messages have no header; name the columns with --no-header --columns A,B,.."
        }
        _ => return kafka::check(topic),
    };
    Err(Failure::input(text))
}

/// When the training ends.
fn until(follow: &FollowArgs) -> Until {
    match follow.until {
        Some(time) => Until::Time(time),
        None if follow.until_end => Until::End,
        None => Until::Stopped,
    }
}

/// Nanoseconds since 1970.
fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

/// The folder, as the flags describe it.
fn folder(follow: &FollowArgs, tasks: &TaskArgs, path: &Path) -> Folder {
    let by_time = follow.follow_order == FollowOrder::Time;
    let bytes = tasks.task_bytes.map(|bytes| bytes.as_u64().max(1));
    Folder::new(path, by_time, until(follow), bytes, clock)
}

/// The source of the data, if it grows. `checkpoints`: the folder in which the job saves them.
///
/// # Errors
/// The address of a topic is wrong.
pub fn source(
    follow: &FollowArgs,
    tasks: &TaskArgs,
    checkpoints: Option<&Path>,
) -> Result<Option<Arc<dyn GrowingSource>>, Failure> {
    match (&follow.follow, &follow.topic) {
        (Some(path), _) => Ok(Some(Arc::new(folder(follow, tasks, path)))),
        (None, Some(topic)) => kafka::source(topic, follow, checkpoints).map(Some),
        (None, None) => Ok(None),
    }
}

/// Whether the source has something, so that the training can begin. `None`: it will have nothing.
fn has_begun(data: &mut DataArgs, source: &Source, stop: &Arc<AtomicBool>) -> Result<Option<bool>, Failure> {
    match source {
        Source::Folder(folder) => match folder.first().map_err(Failure::input)? {
            Some(first) => {
                data.files = vec![PathBuf::from(first)];
                Ok(Some(true))
            }
            None => Ok((!folder.is_over()).then_some(false)),
        },
        Source::Topic(topic) => {
            let sample = topic.sample(&StopFlag::from(stop.clone())).map_err(Failure::input)?;
            let is_over = match until(&data.follow) {
                Until::Stopped => false,
                Until::End => true,
                Until::Time(time) => clock() > time,
            };
            Ok(match sample {
                Sample::Text(_) => Some(true),
                Sample::Nothing if is_over => None,
                Sample::Nothing | Sample::Unknown => Some(false),
            })
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
pub fn wait_for_data(data: &mut DataArgs, tasks: &TaskArgs) -> Result<bool, Failure> {
    let (name, source) = match (&data.follow.follow, &data.follow.topic) {
        (Some(path), _) => {
            let name = format!("--follow {}", path.display());
            if path.to_str().is_some_and(|path| path.contains("://")) {
                return Err(Failure::input(format!(
                    "{name}: this is no folder of this machine; objects of buckets are trained as DATA, once"
                )));
            }
            if path.to_str().is_none() {
                return Err(Failure::input(format!("{name}: the path is not UTF-8; rename it")));
            }
            (name, Source::Folder(folder(&data.follow, tasks, path)))
        }
        (None, Some(topic)) => (topic.clone(), Source::Topic(kafka::source(topic, &data.follow, None)?)),
        (None, None) => return Ok(true),
    };
    let (stop, since, mut said) = (signals::stop_flag()?, Instant::now(), false);
    while !stop.load(Relaxed) {
        match has_begun(data, &source, &stop)? {
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
pub fn train_alone(
    data: &DataArgs,
    tasks: &TaskArgs,
    options: &mut Options,
    metrics: &Metrics,
) -> Result<(), Failure> {
    if let Some(source) = source(&data.follow, tasks, None)? {
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
    use super::{Failure, FollowArgs, GrowingSource, clock, until};
    use crate::checkpoint_place::open_checkpoints;
    use gannet::job::{PartitionStand, TASKS, partitions_in};
    use gannet::security::read_private;
    use gannet::train::{KafkaAddress, KafkaConfig, KafkaTopic};
    use std::path::Path;
    use std::sync::Arc;

    /// The most bytes of a file of properties.
    const CONFIG_BYTES_MAX: u64 = 1 << 16;

    /// Checks the address of a topic.
    pub fn check(topic: &str) -> Result<(), Failure> {
        KafkaAddress::parse(topic).map(drop).map_err(Failure::input)
    }

    fn config(file: Option<&Path>) -> Result<KafkaConfig, Failure> {
        let Some(file) = file else { return Ok(KafkaConfig::default()) };
        let bytes = read_private("--kafka-config", file, CONFIG_BYTES_MAX)
            .map_err(|error| Failure::input(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes);
        KafkaConfig::parse(&text)
            .map_err(|why| Failure::input(format!("--kafka-config {}: {why}", file.display())))
    }

    /// How far the newest checkpoint of a folder is. `None`: there is none, or this process cannot read it.
    fn saved(checkpoints: &Path) -> Option<Vec<PartitionStand>> {
        let directory = open_checkpoints(checkpoints).ok()?;
        let manifest = directory.newest_manifest().ok()??;
        let state = directory.read_state(&manifest, TASKS).ok()?;
        partitions_in(&state).ok()
    }

    /// The topic at this address.
    pub fn source(
        topic: &str,
        follow: &FollowArgs,
        checkpoints: Option<&Path>,
    ) -> Result<Arc<dyn GrowingSource>, Failure> {
        let address = KafkaAddress::parse(topic).map_err(Failure::input)?;
        let config = config(follow.kafka_config.as_deref())?;
        let mut topic = KafkaTopic::new(address, config, until(follow), clock).map_err(Failure::input)?;
        if let Some(checkpoints) = checkpoints {
            let checkpoints = checkpoints.to_owned();
            topic = topic.with_checkpoints(Box::new(move || saved(&checkpoints)));
        }
        Ok(Arc::new(topic))
    }
}

/// This command has no client of Kafka.
#[cfg(not(feature = "kafka"))]
mod kafka {
    use super::{Failure, FollowArgs, GrowingSource};
    use std::path::Path;
    use std::sync::Arc;

    fn missing(topic: &str) -> Failure {
        Failure::input(format!("{topic}: this gannet cannot read Kafka; build it with --features kafka"))
    }

    pub fn check(topic: &str) -> Result<(), Failure> {
        Err(missing(topic))
    }

    pub fn source(topic: &str, _: &FollowArgs, _: Option<&Path>) -> Result<Arc<dyn GrowingSource>, Failure> {
        Err(missing(topic))
    }
}
