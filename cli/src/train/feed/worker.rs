//! A worker whose data comes from a client (`--feed`), and the settings that it takes from the client.

use crate::failure::Failure;
use crate::flags::{CountsName, FormatName, TasksName, TrainArgs};
use crate::job::check;
use crate::job::check::WorkerConnection;
use crate::train::feed::client;
use crate::train::lr_worker;
use clap::ValueEnum;
use gannet::job::{DataLink, JobPlan};
use gannet::train::{FileFingerprint, RemoteTexts};
use gannet::{Transports, WorkerConfig};
use serde_json::{Value, json};

/// A link to the client, and the client's offer.
pub struct DataClient {
    link: DataLink<Transports>,
    plan: JobPlan,
    line: WorkerConnection,
}

/// How the client reads its data, as JSON for its workers.
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

/// Takes the settings for reading the data from the client's JSON.
fn take_over(args: &mut TrainArgs, reading: &str) -> Option<()> {
    let settings: Value = serde_json::from_str(reading).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array()?.iter().map(text).collect::<Option<Vec<String>>>();
    let input = &mut args.input;
    input.format = FormatName::from_str(settings["format"].as_str()?, false).ok()?;
    input.label = text(&settings["label"]);
    input.categorical = list(&settings["categorical"])?;
    input.numeric = list(&settings["numeric"])?;
    let counts = settings["criteo_counts"].as_str().map(|counts| CountsName::from_str(counts, false));
    input.criteo_counts = counts.transpose().ok()?;
    input.positive = text(&settings["positive"]);
    input.skip_bad_lines = settings["skip_bad_lines"].as_u64()?;
    args.no_intercept = settings["no_intercept"].as_bool()?;
    args.job.tasks.start_together |= settings["start_together"].as_bool()?;
    Some(())
}

/// Runs a worker whose data comes from a client.
pub fn worker(args: &mut TrainArgs) -> Result<(), Failure> {
    client::check_model(args)?;
    args.job.tasks.tasks = TasksName::On;
    check::check(&args.job)?;
    let line = check::line(&args.job, None)?;
    let client = args.job.data_server.feed.clone().unwrap_or_default();
    let own = WorkerConfig { servers: vec![client.clone()], ..line.config.clone() };
    let mut link = DataLink::connect(line.net.clone(), own)?;
    let offer = link.offer()?;
    let nonsense = || {
        Failure::input(format!(
            "the client {client} describes its data in a way that this version does not know: run the same version of gannet everywhere"
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
    lr_worker::run(args, Some(DataClient { link, plan, line }))
}

impl DataClient {
    /// The client's plan of the job.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// The names of the client's files.
    pub fn files(&self) -> Vec<String> {
        self.plan.files.iter().map(|file| file.name.clone()).collect()
    }

    /// The fingerprints of these files, as the client reported them.
    pub fn fingerprints(&self) -> Vec<FileFingerprint> {
        self.plan
            .files
            .iter()
            .map(|file| FileFingerprint::remote(file.bytes, file.print, file.whole))
            .collect()
    }

    /// The connection of this worker. The client knows its incarnation already.
    pub fn line(&self) -> WorkerConnection {
        self.line.clone()
    }

    /// The source of the worker's data.
    pub fn into_texts(self) -> RemoteTexts<Transports> {
        RemoteTexts::new(self.link, self.plan.files)
    }
}
