//! A worker without data, which a client feeds: what it takes over from the client, and what it must not be given.

use super::args::{CountsName, FormatName, TasksName, TrainArgs};
use super::job::{self, Line};
use super::{Failure, feeding};
use clap::ValueEnum;
use gannet::train::{FedTexts, Seen};
use gannet::{FeedLink, Plan, Wires, WorkerConfig};
use serde_json::{Value, json};

/// A link to the client, and what it has offered.
pub struct Fed {
    link: FeedLink<Wires>,
    plan: Plan,
    line: Line,
}

/// How a client reads its data, for its workers.
pub fn reading(args: &TrainArgs) -> String {
    let input = &args.input;
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    json!({
        "format": name(input.format.to_possible_value()),
        "label": input.label,
        "categorical": input.categorical,
        "numeric": input.numeric,
        "criteo_counts": input.criteo_counts.and_then(|counts| name(counts.to_possible_value())),
        "positive": input.positive,
        "skip_bad_lines": input.skip_bad_lines,
        "no_intercept": args.no_intercept,
        "start_together": args.job.tasks.start_together,
    })
    .to_string()
}

/// Takes over how the data is read.
fn take_over(args: &mut TrainArgs, reading: &str) -> Option<()> {
    let said: Value = serde_json::from_str(reading).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array()?.iter().map(text).collect::<Option<Vec<String>>>();
    let input = &mut args.input;
    input.format = FormatName::from_str(said["format"].as_str()?, false).ok()?;
    input.label = text(&said["label"]);
    input.categorical = list(&said["categorical"])?;
    input.numeric = list(&said["numeric"])?;
    let counts = said["criteo_counts"].as_str().map(|counts| CountsName::from_str(counts, false));
    input.criteo_counts = counts.transpose().ok()?;
    input.positive = text(&said["positive"]);
    input.skip_bad_lines = said["skip_bad_lines"].as_u64()?;
    args.no_intercept = said["no_intercept"].as_bool()?;
    args.job.tasks.start_together |= said["start_together"].as_bool()?;
    Some(())
}

/// Runs a worker that is fed.
pub fn worker(args: &mut TrainArgs) -> Result<(), Failure> {
    feeding::check_model(args)?;
    args.job.tasks.tasks = TasksName::On;
    job::check(&args.job)?;
    let line = job::line(&args.job, None)?;
    let client = args.job.feeding.feed.clone().unwrap_or_default();
    let own = WorkerConfig { servers: vec![client.clone()], ..line.config.clone() };
    let mut link = FeedLink::connect(line.net.clone(), own)?;
    let offer = link.offer()?;
    let nonsense = || {
        Failure::input(format!(
            "the client {client} says in other words how its data is read: run the same gannet"
        ))
    };
    take_over(args, &offer.reading).ok_or_else(nonsense)?;
    let plan = offer.plan;
    args.batch = args.batch.or(Some(plan.batch));
    if args.epochs == 1 {
        args.epochs = plan.epochs;
    }
    let sync = &mut args.job.sync;
    sync.worker_timeout = sync.worker_timeout.or(Some(plan.worker_timeout_ms as f64 / 1000.0));
    job::work(args, Some(Fed { link, plan, line }))
}

impl Fed {
    /// The job, as the client has it.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the client's files are called.
    pub fn files(&self) -> Vec<String> {
        self.plan.files.iter().map(|file| file.name.clone()).collect()
    }

    /// The same files, as the client saw them.
    pub fn seen(&self) -> Vec<Seen> {
        self.plan.files.iter().map(|file| Seen::told(file.bytes, file.print, file.whole)).collect()
    }

    /// What this worker connects with: the client knows it by its life.
    pub fn line(&self) -> Line {
        self.line.clone()
    }

    /// Where its data comes from.
    pub fn into_texts(self) -> FedTexts<Wires> {
        FedTexts::new(self.link, self.plan.files)
    }
}
