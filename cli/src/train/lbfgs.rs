//! `gannet train --optimizer lbfgs`: in this process, or as a worker of a job, whose worker 0 leads.

use crate::checkpoint::saver::CheckpointSaver;
use crate::failure::{Failure, STOPPED};
use crate::flags::{ModelName, OptimizerName, SyncArgs, SyncName, TaskArgs, TasksName, TrainArgs};
use crate::job::{check, connection};
use crate::metrics::Metrics;
use crate::model::{folder, lr, optimizer, saves};
use crate::report::account::Account;
use crate::report::measures::{measured, put_line};
use crate::report::numbers::Numbers;
use crate::report::words::put_size;
use crate::report::{warnings, words};
use crate::runs::alone::LocalRun;
use crate::runs::{alone, in_run, settings};
use crate::server::store;
use crate::train::ending::Learned;
use crate::train::input_check;
use crate::{input, signals};
use gannet::storage::Stats;
use gannet::train::lbfgs::{
    self, Chief, Columns, Examples, Layout, LbfgsSettings, LearnedWeights, LoadedData, LocalColumns,
    RemoteColumns, Trained, follow,
};
use gannet::train::models::Measured;
use gannet::train::{Backend, Data, Share, StopFlag, TrainedRows, evaluate, test_at_end};
use gannet::{Rule, Schema};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The name of the table in a saved model.
const TABLE: &str = "lr";

/// The names of the tables at the servers.
const TABLES: [&str; 2] = [lbfgs::TABLE, lbfgs::CELLS_TABLE];

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
struct LbfgsPlan {
    settings: LbfgsSettings,
    layout: Layout,
    data: Data,
    test: Option<Data>,
    threads: usize,
    data_bytes: u64,
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

fn plan(args: &TrainArgs, workers: u32) -> Result<LbfgsPlan, Failure> {
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
    let test = match args.test.is_empty() {
        true => None,
        false => Some(input::data(&args.test, &args.input, !args.no_intercept)?),
    };
    let mut data = input::data(&args.data, &args.input, !args.no_intercept)?;
    let mut test = test;
    let chief = args.job.task_index == 0;
    if chief || args.input.scale.is_some() || args.lbfgs.warm_start.is_some() {
        input_check::look(args, &mut data, test.as_mut(), chief && !args.json)?;
    }
    Ok(LbfgsPlan {
        settings: LbfgsSettings {
            l1,
            l2,
            intercept: !args.no_intercept,
            iterations: own.iterations.unwrap_or(ITERATIONS),
            tolerance,
            workers,
            patience: Duration::from_secs_f64(seconds),
        },
        layout: Layout { history: own.history.unwrap_or(HISTORY) },
        data,
        test,
        threads: args.threads.unwrap_or(2) as usize,
        data_bytes: own.data_memory.map_or(DATA_BYTES, |size| size.as_u64()),
    })
}

/// Finds errors before the training that would otherwise stop it at the end.
fn preflight(args: &TrainArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.lbfgs.warm_start {
        lr::check_warm_start(folder)?;
    }
    if let Some(folder) = &args.out {
        folder::may_write(folder, &Schema::scalar(TABLE, Rule::Add(gannet::optim::Add)))?;
    }
    Ok(())
}

/// Trains in this process.
pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let mut plan = plan(args, 1)?;
    preflight(args)?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    let store = store::own_store(args.job.data_dir.as_deref(), &args.memory)?;
    metrics.add_store(&store);
    let settings = || settings::settings(args, &plan.data.files, None, None);
    let run = alone::alone(args, &store, (settings, &plan.data.scale), &TABLES)?;
    if let Some(run) = &run {
        run.scale(&mut plan.data, plan.test.as_mut());
    }
    let account = run.as_ref().map(LocalRun::account).unwrap_or_default();
    let mut columns = LocalColumns::open_in(run.as_ref().map(LocalRun::id), &store, plan.layout)?;
    let (stopped, rows) = lead(args, plan, &mut columns, &stop, &account)?;
    columns.close()?;
    ended(stopped)?;
    run.map_or(Ok(()), |run| run.finish(rows))
}

/// Trains as a worker of a job.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    let index = args.job.task_index;
    let mut plan = plan(args, args.job.worker_hosts.len() as u32)?;
    check::check_job(&args.job)?;
    if index == 0 {
        preflight(args)?;
    }
    let stop = signals::stop_flag()?;
    let metrics = Metrics::start(&args.metrics, "worker")?;
    let mut line = connection::line(&args.job, Some(&metrics))?;
    let settings = settings::settings(args, &plan.data.files, None, None)?;
    let joined = in_run::join(args, &mut line, (settings, &plan.data.scale), &TABLES, index)?;
    let Some(run) = joined else { return Ok(()) };
    run.scale(&mut plan.data, plan.test.as_mut());
    run.print_missing_workers()?;
    let account = run.account();
    let worker = line.connect(&metrics)?;
    let mut columns = RemoteColumns::open(worker, plan.layout)?;
    let saver = CheckpointSaver::start(args, &line, &[])?;
    let stopped = match index {
        0 => {
            let (stopped, rows) = lead(args, plan, &mut columns, &stop, &account)?;
            if !stopped {
                run.done()?;
                run.finish(rows, &account)?;
            }
            stopped
        }
        _ => {
            let (mut examples, loaded, _) = read_share(&plan, index, &stop)?;
            let patience = plan.settings.patience;
            let done =
                follow(&mut columns, &mut examples, (index, line.config.incarnation), patience, &stop)?;
            if !done.stopped {
                run.done()?;
            }
            warnings::warn_of_bad_lines(&loaded.bad_lines);
            let mut report = Numbers::default();
            report.line("");
            report.words(format_args!("worker {index}: "));
            report.show_count("passes", done.passes, "pass", "passes");
            report.words(" over ");
            report.show("examples", examples.len(), " examples");
            report.add("stopped", done.stopped);
            account.put(&mut report);
            report.print(args.json);
            done.stopped
        }
    };
    CheckpointSaver::end(saver, stopped);
    columns.close()?;
    ended(stopped)
}

fn ended(stopped: bool) -> Result<(), Failure> {
    match stopped {
        true => Err(Failure::new(STOPPED, "stopped by a signal".to_owned())),
        false => Ok(()),
    }
}

/// Reads a worker's share. Also returns the seconds that it took.
fn read_share(
    plan: &LbfgsPlan,
    worker: u32,
    stop: &Arc<AtomicBool>,
) -> Result<(Examples, LoadedData, f64), Failure> {
    let mut data = plan.data.clone();
    data.stop = StopFlag::from(stop.clone());
    let share = Share { worker, workers: plan.settings.workers };
    let (start, shards) = (Instant::now(), plan.layout.schema().shards);
    let read = Examples::read(&data, share, shards, plan.threads, plan.data_bytes);
    let (examples, loaded) = read?;
    Ok((examples, loaded, start.elapsed().as_secs_f64()))
}

/// Reads, leads the training, evaluates, saves and reports. Returns whether a signal ended it, and the number of
/// rows.
fn lead<C: Columns>(
    args: &TrainArgs,
    plan: LbfgsPlan,
    columns: &mut C,
    stop: &Arc<AtomicBool>,
    account: &Account,
) -> Result<(bool, u64), Failure> {
    let (mut examples, loaded, load_seconds) = read_share(&plan, 0, stop)?;
    let one_class = examples.one_class();
    if let (0, 1, Some(folder)) = (examples.len(), plan.settings.workers, &args.out) {
        saves::may_save(folder, (0, 0, true), false, &loaded.bad_lines)?;
    }
    let start = Instant::now();
    let mut chief = Chief::new(columns, &mut examples, plan.settings.clone(), stop)?;
    if let Some(folder) = &args.lbfgs.warm_start {
        let rows = chief.begin_from(|page| lr::warm_start(folder, plan.settings.intercept, page))?;
        tracing::info!(rows, folder = %folder.display(), "beginning from the weights of a model");
    }
    let quiet = args.json;
    let trained = chief.train(&mut |t| print_iteration(t, quiet))?;
    let seconds = start.elapsed().as_secs_f64();
    warnings::warn_of_bad_lines(&loaded.bad_lines);
    let mut learned = LearnedWeights::new(columns, TABLE)?;
    // A signal that only ends the test leaves a finished training.
    let mut untested = trained.stopped;
    let test =
        test_at_end(plan.test.as_ref(), &mut untested, |data| evaluate(data, &mut learned))?.map(measured);
    let saving = Learned {
        examples: trained.examples,
        rows: 0,
        stopped: trained.stopped,
        bad_lines: &loaded.bad_lines,
        format: loaded.format,
        columns: loaded.columns.as_ref(),
        intercept: plan.settings.intercept,
        missing: &account.missing,
    };
    let saved = saving.save(args, |folder, notes| lr::save_lr(folder, &mut learned, notes))?;
    if let Some(label) = one_class {
        warnings::warn_of_one_class(label);
    }
    let nonzero = if plan.settings.l1 > 0.0 { Some(count(&mut learned)?) } else { None };
    let stats = learned.stats()?;
    let stopped = trained.stopped;
    let is_kept = args.job.job_name.is_some() || args.job.data_dir.is_some();
    let (loaded, plan) = (&loaded, &plan);
    let summary =
        LbfgsSummary { one_class, trained, seconds, load_seconds, nonzero, test, loaded, plan, is_kept };
    let rows = stats.rows;
    let mut report = summary.report(learned.transport(), stats);
    account.put(&mut report);
    report.print(args.json);
    if let Some((folder, rows)) = saved.0.filter(|_| !args.json) {
        say!("model        {rows} rows in {}{}", folder.display(), saves::before(folder));
    }
    Ok((stopped, rows))
}

fn count<B: Backend>(learned: &mut B) -> Result<u64, Failure> {
    let mut count = 0;
    learned.scan(&mut |keys, _| count += keys.len() as u64)?;
    Ok(count)
}

fn print_iteration(t: &Trained, quiet: bool) {
    let Trained { objective, iterations, passes, slope, .. } = *t;
    tracing::debug!(iterations, passes, objective, slope, "iteration");
    if !quiet && is_printed(iterations) {
        let (gradient, passes) = (t.mean_slope(), words::counted(passes, "pass", "passes"));
        notice!(
            "iteration {iterations}  objective {objective:.6}  length of the mean gradient {gradient:.1e}  {passes}"
        );
    }
}

/// Whether an iteration is printed: 0, 1, 2, 5, 10, 20, 50 and so on, so that no run fills more than a screen.
fn is_printed(iteration: u64) -> bool {
    let power = 10u64.pow(iteration.checked_ilog10().unwrap_or(0));
    matches!(iteration / power, 0 | 1 | 2 | 5) && iteration.is_multiple_of(power)
}

/// The final report.
struct LbfgsSummary<'a> {
    one_class: Option<u8>,
    trained: Trained,
    seconds: f64,
    load_seconds: f64,
    nonzero: Option<u64>,
    test: Option<Measured>,
    loaded: &'a LoadedData,
    plan: &'a LbfgsPlan,
    /// Whether the rows outlive the process.
    is_kept: bool,
}

impl LbfgsSummary<'_> {
    /// How to train beyond --max-iter.
    fn further(&self) -> &'static str {
        match self.is_kept {
            true => "--continue with a larger --max-iter goes on",
            false => {
                "a larger --max-iter starts again and goes further (with --data-dir DIR the training could continue)"
            }
        }
    }

    fn report(&self, transport: String, stats: Stats) -> Numbers {
        let (t, mut report) = (&self.trained, Numbers::default());
        report.line("objective");
        report.show_float("objective", t.objective, 6, "  training log loss ");
        report.show_float("logloss", t.loss / t.importance, 6, "  length of the mean gradient ");
        report.words(format_args!("{:.1e}", t.mean_slope()));
        if !t.converged && !t.stopped {
            let LbfgsSettings { iterations, tolerance, .. } = self.plan.settings;
            let further = self.further();
            report.line("limit");
            report.words(format_args!(
                "stopped at --max-iter {iterations}, before the gradient was {tolerance:.0e} (--tolerance): {further}"
            ));
        }
        report.line("");
        report.show_count("examples", t.examples, "example", "examples");
        report.words(", ");
        report.show_count("iterations", t.iterations, "iteration", "iterations");
        report.words(", ");
        report.show_count("passes", t.passes, "pass", "passes");
        report.words(" in ");
        report.show_float("seconds", self.seconds, 2, " s after ");
        report.show_float("load_seconds", self.load_seconds, 2, " s of reading (");
        report.show("transport", transport, ", ");
        report.show("format", self.loaded.format, ", ");
        report.words(match (t.stopped, t.converged) {
            (true, _) => "stopped)",
            (_, true) => "converged)",
            _ => "not converged)",
        });
        report.add_all(json!({
            "loss": t.loss, "gradient": t.slope, "mean_gradient": t.mean_slope(), "tries": t.tries,
            "resumed_at": t.resumed_at, "converged": t.converged, "stopped": t.stopped,
            "workers": self.plan.settings.workers, "one_class": self.one_class.is_some(),
            "bad_lines": self.loaded.bad_lines.count, "nonzero": self.nonzero,
        }));
        put_line(&mut report, "test", "test_", self.test.as_ref(), true);
        if let Some(nonzero) = self.nonzero {
            report.line("weights");
            report.show("nonzero", nonzero, " are not 0");
        }
        put_size(&mut report, "table", stats.rows, stats.bytes);
        report
    }
}
