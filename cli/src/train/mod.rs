//! `gannet train`: in this process, or as one process of a job.

pub mod feed;
pub mod input_check;
pub mod lbfgs;
pub mod lr_worker;
pub mod models;
pub mod tasks;
pub mod validation;

use crate::checkpoint::restore;
use crate::failure::{Failure, INPUT, PEER, STOPPED, SYSTEM};
use crate::flags::{JobName, ModelName, TrainArgs};
use crate::job::backups::Membership;
use crate::job::{backups, check, end, sync, wire};
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::lr::Notes;
use crate::model::{lr, optimizer, row_type, saves, warm_start};
use crate::report::training;
use crate::report::training::ProgressDisplay;
use crate::runs::in_run;
use crate::runs::in_run::{Account, LocalRun};
use crate::server::Serving;
use crate::train::feed::{client, worker};
use crate::train::validation::Validator;
use crate::{input, launched, server, signals};
use gannet::Schema;
use gannet::table::Admission;
use gannet::train::models::Objective;
use gannet::train::{
    Backend, BackendError, BadLines, Embedded, FlatTable, Options, Progress, PushContent, Quality, ReadError,
    Report, Share, StepReport, TrainError, train_watched,
};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The table of a logistic regression.
pub const TABLE: &str = "lr";

/// Runs the command.
pub fn run(mut args: TrainArgs) -> Result<(), Failure> {
    launched::watch();
    tasks::settle(&mut args);
    check::check_role(&args, launched::is_launched())?;
    models::check(&args.model)?;
    let lbfgs = lbfgs::is_chosen(&args)?;
    warm_start::check(&args, lbfgs)?;
    wire::check(&args, lbfgs)?;
    row_type::check(&args, lbfgs)?;
    server::check_folders(args.out.as_deref(), args.job.data_dir.as_deref())?;
    match args.job.job_name {
        Some(JobName::Client) => client::client(&mut args),
        Some(JobName::Worker) if args.job.data_server.feed.is_some() => worker::worker(&mut args),
        None if lbfgs => lbfgs::embedded(&args),
        None if args.model.model == ModelName::Lr => embedded(&args),
        None => models::embedded(&args),
        Some(JobName::Ps) => {
            check::check(&args.job)?;
            let serving = Serving {
                listen: args.job.listen.as_deref().unwrap_or_else(|| backups::listens_at(&args.job)),
                threads: args.threads,
                data_dir: args.job.data_dir.as_deref(),
                memory: &args.memory,
                sessions: &args.sessions,
                net: args.job.transport.transport.net(args.job.io),
                security: &args.job.security,
                metrics: &args.metrics,
                tls_server: &args.job.tls_server,
                scheduler_only: false,
                checkpoints: args.job.checkpoint.checkpoint.as_deref(),
                restore: restore::newest(&args.job)?,
                tls_client: &args.job.tls_client,
                membership: Membership::of(&args.job),
            };
            end::watch(&args.job)?;
            server::serve(&serving)
        }
        Some(JobName::Worker) if lbfgs => lbfgs::worker(&args),
        Some(JobName::Worker) if args.model.model == ModelName::Lr => lr_worker::worker(&args),
        Some(JobName::Worker) => models::worker::worker(&args),
    }
}

/// The schema that the flags choose.
pub fn schema(args: &TrainArgs) -> Result<Schema, Failure> {
    let mut schema = optimizer::schema(TABLE, &args.optimizer)?;
    schema.admission = args.admission.admission();
    schema.shards = args.job.table.shards.unwrap_or(schema.shards);
    schema.check().map_err(|e| Failure::input(e.to_string()))?;
    Ok(schema)
}

/// The options of the training.
pub fn options(args: &TrainArgs, share: Share, with_test: bool) -> Result<Options, Failure> {
    let mut data = input::data(&args.data, &args.input, !args.no_intercept)?;
    data.labels = models::labels(&args.model, &args.input, data.labels)?;
    let mut options = Options::new(data);
    if with_test && !args.test.is_empty() {
        options.test = Some(input::data(&args.test, &args.input, !args.no_intercept)?);
    }
    // With --feed a worker has no data. A worker that neither tests nor saves finds errors when it reads.
    if !args.data.is_empty() && (with_test || args.input.scale.is_some()) {
        let tells = with_test && args.job.task_index == 0 && !args.json;
        input_check::look(args, &mut options.data, options.test.as_mut(), tells)?;
    }
    options.epochs = args.epochs;
    options.threads = args.threads.unwrap_or(2) as usize;
    options.share = share;
    options.push = optimizer::push(&args.optimizer).or(sync::push(&args.job));
    options.batch = match args.model.model {
        ModelName::Lr => batch(args, options.push)?,
        _ => args.batch.unwrap_or(MODEL_BATCH) as usize,
    };
    options.reduce = optimizer::reduce(&args.optimizer);
    Ok(options)
}

/// Examples in a batch, for models other than logistic regression.
const MODEL_BATCH: u32 = 256;

/// Examples in a batch. With replay the loss does not depend on it, and a larger batch pulls and pushes fewer unique
/// keys for each example.
fn batch(args: &TrainArgs, push: Option<PushContent>) -> Result<usize, Failure> {
    const GRADIENTS: usize = 256;
    const REPLAY_IN_A_JOB: usize = 2048;
    let push = PushContent::choose(push, &schema(args)?).map_err(backend_failure)?;
    Ok(match (args.batch, &args.job.job_name) {
        (Some(batch), _) => batch as usize,
        (None, Some(_)) if push == PushContent::Replay => REPLAY_IN_A_JOB,
        (None, _) => GRADIENTS,
    })
}

fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let schema = schema(args)?;
    let mut options = options(args, Share::ALL, true)?;
    preflight(args, &options, &schema)?;
    options.begin = warm_start::begin(args, std::slice::from_ref(&schema), None)?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    let in_shards = args.job.data_dir.is_some() || schema.admission != Admission::All;
    match in_shards {
        // Rows that must survive the process, or need admission, are in shards. Otherwise a table for one process is
        // faster.
        true => {
            let store = server::own_store(args.job.data_dir.as_deref(), &args.memory)?;
            metrics.add_store(&store);
            let settings = || in_run::settings(args, &options.data.files, None, Some(&options));
            let run = in_run::alone(args, &store, (settings, &options.data.scale), &[TABLE])?;
            if let Some(run) = &run {
                run.scale(&mut options.data, options.test.as_mut());
            }
            let id = run.as_ref().map(LocalRun::id);
            let mut backend = Embedded::open_in(id, &store, &schema, (1, 1)).map_err(backend_failure)?;
            let account = run.as_ref().map(LocalRun::account).unwrap_or_default();
            let trained = train_and_save(args, &options, &mut backend, (&stop, &metrics), &account)?;
            backend.close().map_err(backend_failure)?;
            ended(&trained)?;
            run.map_or(Ok(()), |run| run.finish(trained.rows))
        }
        false => {
            let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
            let mut backend = FlatTable::within(&schema, limit).map_err(backend_failure)?;
            in_run::none(&args.job.run)?;
            ended(&train_and_save(args, &options, &mut backend, (&stop, &metrics), &Account::default())?)
        }
    }
}

fn train_and_save<B: Backend>(
    args: &TrainArgs,
    options: &Options,
    backend: &mut B,
    (stop, metrics): (&AtomicBool, &Metrics),
    account: &Account,
) -> Result<Report, Failure> {
    let mut validator = Validator::new(args, options.test.as_ref(), Objective::Click, &|| true);
    let trained = learn(options, backend, stop, (args, metrics), &mut |_| {}, &mut validator)?;
    finish(args, backend, &trained, (trained.test.as_ref(), account), validator.into_validations())?;
    Ok(trained)
}

/// Finds errors that would otherwise show only after the training, such as a folder that cannot be written. The
/// [data](crate::train::input_check::look) is checked separately.
pub fn preflight(args: &TrainArgs, options: &Options, schema: &Schema) -> Result<(), Failure> {
    if options.epochs > 1 {
        let once = options.data.must_be_files("a second epoch");
        once.map_err(|e| Failure::input(e.to_string()))?;
    }
    if let Some(folder) = &args.out {
        lr::may_write(folder, schema)?;
    }
    Ok(())
}

/// Says where the model was saved, and whether the training was stopped early.
pub fn print_saved(args: &TrainArgs, stopped: bool, saved: Option<(&Path, u64)>) {
    let early = if stopped { "stopped early, so this is the model so far: " } else { "" };
    match saved {
        Some((folder, rows)) if !args.json => {
            say!("model        {early}{rows} rows in {}{}", folder.display(), saves::before(folder))
        }
        Some((folder, rows)) => {
            notice!("gannet: {early}{rows} rows saved in {}{}", folder.display(), saves::before(folder))
        }
        None if stopped => notice!("gannet: {early}no --out was given, so no model was saved"),
        None => {}
    }
}

/// Trains with a progress display.
pub fn learn<B: Backend>(
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    (args, metrics): (&TrainArgs, &Metrics),
    on_progress: &mut dyn FnMut(&Progress),
    validator: &mut Validator<'_>,
) -> Result<Report, Failure> {
    let mut display = ProgressDisplay::of(args);
    let training = Arc::<Training>::default();
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let mut progress = |p: &Progress| {
        training.progress(p);
        display.update(p, args.epochs);
        on_progress(p);
    };
    let mut watch = |step: &StepReport<'_>, mut backend: &mut B| validator.step(step, &mut backend);
    let trained = train_watched(options, backend, stop, &mut progress, &mut watch);
    display.finish();
    validator.failed()?;
    let trained = trained.map_err(train_failure)?;
    training.finish(&trained, args.epochs);
    training::warn_of_bad_lines(&trained.bad_lines);
    Ok(trained)
}

/// Saves the model and prints the report.
pub fn finish<B: Backend>(
    args: &TrainArgs,
    backend: &mut B,
    trained: &Report,
    (test, account): (Option<&Quality>, &Account),
    validations: Option<Vec<Value>>,
) -> Result<(), Failure> {
    let alone = args.job.job_name.is_none();
    let learned = (trained.examples, trained.rows, alone);
    let may_save = |folder: &Path| saves::may_save(folder, learned, trained.stopped, &trained.bad_lines);
    let saved = match &args.out {
        Some(folder) if may_save(folder)? => {
            let (format, columns) = (trained.format, trained.columns.as_ref());
            let counts = input::counts(&args.input);
            let ended = lr::ended_how(trained.stopped, trained.examples, &account.missing);
            let notes = Notes { format, columns, counts, intercept: !args.no_intercept, ended };
            let rows = lr::save(folder, backend, &notes)?;
            Some((folder.as_path(), rows))
        }
        _ => None,
    };
    training::warn_of_quality(trained.progressive.as_ref(), test, trained.columns.as_ref());
    if args.json {
        let mut object = training::json(trained, test, account);
        if let Some(validations) = validations {
            object["validations"] = validations.into();
        }
        say!("{object}");
    } else {
        training::print(trained, test);
    }
    if saved.is_some() || args.out.is_none() {
        print_saved(args, trained.stopped, saved);
    }
    Ok(())
}

/// The result of a training that a signal may have stopped.
pub fn ended(trained: &Report) -> Result<(), Failure> {
    ended_early(trained.stopped, trained.examples)
}

/// The result of a training of any model that a signal may have stopped.
pub fn ended_early(stopped: bool, examples: u64) -> Result<(), Failure> {
    if stopped {
        let text = format!("stopped by a signal after {examples} examples");
        return Err(Failure::new(STOPPED, text));
    }
    Ok(())
}

/// An error if this worker's share had bad lines only, so that it learned nothing.
pub fn learned_something(examples: u64, bad: &BadLines) -> Result<(), Failure> {
    match &bad.first[..] {
        [first, ..] if examples == 0 => Err(Failure::input(format!(
            "0 examples were learned: all lines of this worker's share are bad ({} were skipped), the first: {first}",
            bad.count
        ))),
        _ => Ok(()),
    }
}

/// A failed training, with its exit code.
pub fn train_failure(error: TrainError) -> Failure {
    match error {
        TrainError::Read(error @ ReadError::Stopped { .. }) => Failure::new(STOPPED, error.to_string()),
        TrainError::Read(ReadError::Splits(why)) => Failure::new(PEER, why),
        // The fault is on this machine. Other workers may be able to read the same data.
        TrainError::Read(error @ ReadError::Stalled { .. }) => Failure::new(SYSTEM, error.to_string()),
        TrainError::Read(error) => Failure::new(INPUT, error.to_string()),
        TrainError::Backend(error) => backend_failure(error),
        error @ TrainError::Example { .. } => Failure::new(INPUT, error.to_string()),
        other => Failure::new(SYSTEM, other.to_string()),
    }
}

/// A failed backend, with its exit code.
pub fn backend_failure(error: BackendError) -> Failure {
    match error {
        BackendError::Worker(error) => error.into(),
        BackendError::Open(error) => error.into(),
        BackendError::Schema(text) => Failure::new(INPUT, text),
        BackendError::Pull(error) => Failure::new(PEER, error.to_string()),
        other => Failure::new(SYSTEM, other.to_string()),
    }
}
