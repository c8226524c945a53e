//! The settings that every process of a run must share, flag by flag: all that shapes the model.

use crate::failure::Failure;
use crate::flags::{
    AdmissionArgs, DataArgs, EvictionArgs, FollowArgs, InputArgs, JobArgs, JobName, LbfgsArgs, ModelArgs,
    ModelName, OptimizerArgs, OptimizerName, OutputArgs, SyncName, TasksName, TrainArgs,
};
use crate::input;
use crate::job::{servers, sync};
use crate::model::labels::rate;
use crate::model::optimizer::{self, spelt};
use crate::report::words::counted;
use crate::train::normalize;
use crate::train::validation::held_out_share;
use gannet::job::PlanFile;
use gannet::runs::RunSetting;
use gannet::table::{Admission, Capacity, SHARDS_DEFAULT};
use gannet::train::{FileFingerprint, Holdout, KeptNegatives, Options, ReadError, plan_files};
use std::fmt::Display;

/// The most files that are compared one by one. More files are compared together.
const FILES_NAMED: usize = 24;

/// The most characters of a list of columns that are shown.
const LIST_SHOWN: usize = 200;

/// Flags that may change when the rows are trained further.
const NOT_OF_ROWS: [&str; 7] =
    ["--push", "--damping", "--reduce", "--skip-bad-lines", "--history", "--max-iter", "--tolerance"];

fn yes_or_no(is_set: bool) -> &'static str {
    if is_set { "yes" } else { "no" }
}

fn or_none<T: Display>(value: Option<T>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

/// Names of columns. Of a long list the first ones are shown.
fn list(flag: &str, names: &[String]) -> RunSetting {
    let all = if names.is_empty() { "none".into() } else { names.join(",") };
    if all.len() <= LIST_SHOWN {
        return RunSetting::new(flag, all);
    }
    let digest = all.bytes().fold(0xCBF2_9CE4_8422_2325u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    let first: String = all.chars().take(LIST_SHOWN).collect();
    let shown = format!("{} columns ({first}...; digest {digest:016x})", names.len());
    RunSetting { shown, ..RunSetting::new(flag, format!("{} {digest:016x}", names.len())) }
}

/// All settings. `options` has the data, the batch and the content of pushes, for a model that learns batches.
pub fn of_run(args: &TrainArgs, files: &[PlanFile], options: Option<&Options>) -> Vec<RunSetting> {
    let mut all = vec![RunSetting::new("--model", spelt(&args.model.model)).of_rows()];
    all.extend(growing(&args.data.follow).unwrap_or_else(|| data(files)));
    all.extend(of_job(&args.job, &args.output, &args.data));
    if let (Some(begin), Some(folder)) = (options.and_then(|of| of.begin.as_ref()), &args.lbfgs.warm_start)
        && args.job.job_name.is_some()
    {
        let (name, shown) = (format!("{:016x}", begin.name()), folder.display().to_string());
        let shown = format!("{shown} (saved as {name})");
        all.push(RunSetting { flag: "--warm-start".into(), value: name, shown, of_rows: false });
    }
    let mut of_rows = of_model(&args.model);
    of_rows.extend(of_reading(&args.data));
    // Runs of earlier versions have no such setting: their values are as they are.
    of_rows.extend(normalize::is_on().then(|| RunSetting::new("--normalize", "on")));
    of_rows.push(RunSetting::new("--shards", args.job.table.shards.unwrap_or(SHARDS_DEFAULT)));
    of_rows.extend(of_admission(&args.admission));
    of_rows.push(RunSetting::new("--row-type", args.row_type.name()));
    of_rows.extend(of_optimizer(args.model.model, &args.optimizer));
    of_rows.extend(of_lbfgs(&args.lbfgs));
    if let (Some(options), None) = (options, &args.job.data_server.feed) {
        of_rows.push(RunSetting::new("--push", options.push.map_or("by the rule", |push| push.name())));
    }
    let damping = args.job.damping.damping.map_or("by the number of workers".into(), |name| spelt(&name));
    of_rows.push(RunSetting::new("--damping", damping));
    all.extend(of_rows.into_iter().map(|setting| match NOT_OF_ROWS.contains(&setting.flag.as_str()) {
        true => setting,
        false => setting.of_rows(),
    }));
    all.extend(of_eviction(&args.eviction));
    if let Some(options) = options {
        all.push(RunSetting::new("--batch", options.batch));
    }
    all.push(RunSetting::new("--epochs", args.passes.epochs));
    all
}

/// The files as this process sees them. A file that cannot be read again has only a name.
pub fn local_files(names: &[String]) -> Result<Vec<PlanFile>, Failure> {
    let file = |name: &String| -> Result<PlanFile, Failure> {
        match FileFingerprint::of(name) {
            Ok(fingerprint) => Ok(plan_files(std::slice::from_ref(name), &[fingerprint]).swap_remove(0)),
            Err(ReadError::ReadOnce { .. }) => {
                Ok(PlanFile { name: name.clone(), bytes: 0, print: 0, whole: true })
            }
            Err(error) => Err(Failure::input(error.to_string())),
        }
    };
    names.iter().map(file).collect()
}

/// A setting with a number of things.
fn number(flag: &str, n: usize, one: &str, many: &str) -> RunSetting {
    RunSetting::new(flag, counted(n as u64, one, many))
}

/// The files. They are compared by length and a hash of both ends, and shown with their lengths. The registry of runs
/// adds the hashes if the lengths are equal.
fn data(files: &[PlanFile]) -> Vec<RunSetting> {
    let shown = |file: &PlanFile| match (file.name.as_str(), file.bytes) {
        ("-", _) => "standard input".to_owned(),
        (name, 0) => name.to_owned(),
        (name, bytes) => format!("{name} ({bytes} bytes)"),
    };
    let value = |file: &PlanFile| match (file.name.as_str(), file.bytes) {
        ("-", _) => "-".to_owned(),
        (_, bytes) => format!("{bytes} {:x}", file.print),
    };
    let mut all = vec![number("DATA", files.len(), "file", "files")];
    if files.len() > FILES_NAMED {
        let print = files.iter().fold(0u64, |all, file| all.rotate_left(5) ^ file.print ^ file.bytes);
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let (value, shown) = (format!("{bytes} {print:x}"), format!("{bytes} bytes"));
        all.push(RunSetting { flag: "DATA (all files)".into(), value, shown, of_rows: false });
        return all;
    }
    let file = |(at, file): (usize, &PlanFile)| RunSetting {
        flag: format!("DATA file {}", at + 1),
        value: value(file),
        shown: shown(file),
        of_rows: false,
    };
    all.extend(files.iter().enumerate().map(file));
    all
}

/// Data that grows.
fn growing(follow: &FollowArgs) -> Option<Vec<RunSetting>> {
    let of = |flag: &str, value: String, shown: String| RunSetting {
        flag: flag.into(),
        value,
        shown,
        of_rows: false,
    };
    if let Some(folder) = &follow.follow {
        // Which files it has changes, and the scheduler knows which are trained.
        let folder = of("--follow", "a folder that grows".into(), folder.display().to_string());
        return Some(vec![folder, RunSetting::new("--follow-order", spelt(&follow.follow_order))]);
    }
    // The brokers may have other names, also in a later part of the job.
    let topic = follow.topic.as_ref()?;
    let place = topic.split_once('?').map_or(topic.as_str(), |(place, _)| place);
    let name = place.rsplit_once('/').map_or(place, |(_, name)| name);
    Some(vec![of("DATA", format!("topic {name}"), topic.clone())])
}

/// The settings of the job. With a client they leave out the flags of splits and of keeping step: the client decides
/// the splits, and its workers compare the other flags among themselves.
fn of_job(job: &JobArgs, output: &OutputArgs, data: &DataArgs) -> Vec<RunSetting> {
    let remote = job.data_server.feed.is_some();
    if job.job_name.is_none() {
        return Vec::new();
    }
    let mut all = vec![
        number("--worker-hosts", job.worker_hosts.len(), "worker", "workers"),
        RunSetting::new("--tasks", spelt(&job.tasks.tasks)),
    ];
    if job.tasks.tasks == TasksName::On {
        all.push(RunSetting::new("--start-together", yes_or_no(job.tasks.start_together)));
    }
    if job.tasks.tasks == TasksName::On && !remote && job.job_name != Some(JobName::Client) {
        all.push(RunSetting::new("--worker-timeout", sync::timeout(&job.sync).as_secs_f64()));
        let bytes = job.tasks.task_bytes.map(|size| format!("{} bytes", size.as_u64()));
        all.push(RunSetting::new("--task-bytes", bytes.unwrap_or("by the size of the data".into())));
        // Another server would hand out the data a second time.
        let named = servers::named_scheduler(job)
            .unwrap_or("none, so it is the server that keeps the run's registry");
        all.push(RunSetting::new("--scheduler", named));
        // Any worker may be the one that tests and saves.
        all.push(RunSetting::new("--out", if output.out.is_some() { "a folder" } else { "none" }));
        all.push(RunSetting::new("--test", if data.test.is_empty() { "none" } else { "given" }));
    }
    if !remote {
        let sync = match (job.sync.sync, sync::is_bsp(&job.sync)) {
            (_, true) => "bsp".to_owned(),
            (Some(SyncName::Ssp(bound)), _) => format!("ssp:{bound}"),
            _ => "asp".to_owned(),
        };
        all.push(RunSetting::new("--sync", sync));
        all.push(RunSetting::new("--replicas-to-aggregate", or_none(job.sync.replicas_to_aggregate)));
        all.push(RunSetting::new("--deterministic", yes_or_no(job.sync.deterministic)));
    }
    all
}

/// The model.
fn of_model(of: &ModelArgs) -> Vec<RunSetting> {
    let hidden: Vec<String> = of.hidden().iter().map(u32::to_string).collect();
    vec![
        RunSetting::new("--classes", of.classes.unwrap_or(10)),
        RunSetting::new("--loss", of.loss.map_or("by the model".into(), |loss| loss.to_string())),
        RunSetting::new("--factors", of.factors()),
        RunSetting::new("--deviation", of.deviation()),
        RunSetting::new("--hidden", hidden.join(",")),
        RunSetting::new("--seed", of.seed.unwrap_or(1)),
        RunSetting::new("--topics", of.topics.unwrap_or(20)),
        RunSetting::new("--document-prior", of.document_prior.unwrap_or(0.1)),
        RunSetting::new("--word-prior", of.word_prior.unwrap_or(0.01)),
    ]
}

/// How the data is read.
fn of_reading(data: &DataArgs) -> Vec<RunSetting> {
    let input = &data.input;
    let (crosses, (quadratic, cubic)) = crosses(input);
    vec![
        RunSetting::new("--format", spelt(&input.format)),
        RunSetting::new("--label", or_none(input.label.as_ref())),
        list("--categorical", &input.categorical),
        list("--numeric", &input.numeric),
        list("--both", &input.both),
        list("--ignore", &input.ignore),
        RunSetting::new(
            "--delimiter",
            input.delimiter.map_or("none".into(), |byte| char::from(byte).to_string()),
        ),
        RunSetting::new("--no-header", yes_or_no(input.no_header)),
        list("--columns", &input.columns),
        RunSetting::new("--offset", or_none(input.offset.as_ref())),
        RunSetting::new("--importance", or_none(input.importance.as_ref())),
        list("--cross", &crosses),
        list("--quadratic", &quadratic),
        list("--cubic", &cubic),
        RunSetting::new(
            "--criteo-counts",
            input.criteo_counts.map_or("none".into(), |counts| spelt(&counts)),
        ),
        RunSetting::new("--positive", or_none(input.positive.as_ref())),
        RunSetting::new("--scale", spelt(&input.scale)),
        RunSetting::new("--skip-bad-lines", input.skip_bad_lines),
        RunSetting::new("--class-weight", or_none(data.class_weight.as_ref())),
        RunSetting::new("--validate", or_none(held_out_share(&data.validate).map(Holdout::share))),
        RunSetting::new("--keep-negatives", or_none(data.keep_negatives.map(KeptNegatives::share))),
        RunSetting::new("--no-intercept", yes_or_no(data.no_intercept)),
    ]
}

/// The crosses of names, and of two and of more letters, each in one spelling: `a,b` and `b,a` are one cross.
fn crosses(input: &InputArgs) -> (Vec<String>, (Vec<String>, Vec<String>)) {
    match input::crosses(input) {
        Ok(crosses) => {
            let (named, lettered) = crosses.texts();
            (named, lettered.into_iter().partition(|letters| letters.len() == 2))
        }
        // The reader of the data refuses them.
        Err(_) => (input.cross.clone(), (input.quadratic.clone(), input.cubic.clone())),
    }
}

/// Which keys get rows.
fn of_admission(admission: &AdmissionArgs) -> [RunSetting; 3] {
    let (count, chance) = match admission.admission() {
        Admission::All => (1, 1.0),
        Admission::Count { pushes, .. } => (pushes, 1.0),
        Admission::Probability(chance) => (1, chance),
    };
    [
        RunSetting::new("--admit-count", count),
        RunSetting::new("--admit-sketch", admission.admit_sketch),
        RunSetting::new("--admit-probability", chance),
    ]
}

/// Which rows die. They are no settings of rows: a run may go on with others. Runs of earlier versions have none.
fn of_eviction(eviction: &EvictionArgs) -> Vec<RunSetting> {
    let EvictionArgs { evict_after, evict_below, capacity, evict_floor } = eviction;
    let capacity = capacity.map(|capacity| match capacity {
        Capacity::Rows(rows) => format!("{rows} rows"),
        Capacity::Bytes(bytes) => format!("{bytes} bytes"),
    });
    let after = evict_after.map(|after| RunSetting::new("--evict-after", format!("{} s", after.as_secs())));
    let below = evict_below.map(|below| RunSetting::new("--evict-below", below));
    let capacity = capacity.map(|capacity| RunSetting::new("--capacity", capacity));
    let floor = evict_floor.map(|floor| RunSetting::new("--evict-floor", floor));
    [after, below, capacity, floor].into_iter().flatten().collect()
}

/// The update rule of a model.
fn of_optimizer(model: ModelName, optimizer: &OptimizerArgs) -> Vec<RunSetting> {
    match model {
        ModelName::Lda => Vec::new(),
        ModelName::Lr => optimizer::run_settings(optimizer, OptimizerName::Ftrl, None),
        _ => optimizer::run_settings(optimizer, OptimizerName::Adagrad, Some(rate(model))),
    }
}

/// L-BFGS.
fn of_lbfgs(own: &LbfgsArgs) -> [RunSetting; 3] {
    [
        RunSetting::new("--history", own.history.map_or(10, u32::from)),
        RunSetting::new("--max-iter", own.iterations.unwrap_or(100)),
        RunSetting::new("--tolerance", own.tolerance.unwrap_or(1e-4)),
    ]
}
