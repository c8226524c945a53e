//! `gannet train --optimizer lbfgs`: in this process, or as a worker of a job, whose worker 0 leads.

pub mod plan;
pub mod report;

use crate::failure::Failure;
use crate::flags::{JobArgs, OutputArgs, TrainArgs};
use crate::job::check::check_job;
use crate::job::sync;
use crate::metrics::Metrics;
use crate::model::lr::TABLE;
use crate::model::{lr, saves};
use crate::report::account::Account;
use crate::report::measures::measured;
use crate::report::{warnings, words};
use crate::runs::in_run::InRun;
use crate::runs::settings::of_run;
use crate::signals;
use crate::train::ending::{Learned, Results, Validated};
use crate::train::in_store::train_in_store;
use crate::train::lbfgs::plan::{LbfgsPlan, options, plan, preflight};
use crate::train::lbfgs::report::{LbfgsResults, Led};
use crate::train::tasks::InJob;
use crate::train::worker::{JobWorker, Learner, share};
use crate::train::{class_weight, normalize};
use gannet::job::PlanFile;
use gannet::storage::Stats;
use gannet::sync::SyncConfig;
use gannet::table::TableId;
use gannet::train::lbfgs::{
    self, Chief, Columns, Examples, Layout, LearnedWeights, LoadedData, LocalColumns, RemoteColumns, Trained,
    follow,
};
use gannet::train::{Backend, Data, Options, PushContent, Reduce, Share, evaluate, test_at_end};
use gannet::{Schema, Transports, Worker};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The names of the tables at the servers.
const TABLES: [&str; 2] = [lbfgs::TABLE, lbfgs::CELLS_TABLE];

/// Trains in this process.
pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let (data, job, is_json) = (&args.data, &args.job, args.output.json);
    let (warm, out) = (args.lbfgs.warm_start.as_deref(), args.output.out.as_deref());
    let plan = plan(&args.lbfgs, &args.optimizer, !data.no_intercept, 1)?;
    let mut options = options(data, warm, args.passes.threads, Share::ALL, is_json)?;
    options.normalize(&normalize::of_training(args)?);
    class_weight::weigh(args, &mut options)?;
    preflight(warm, out)?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    let (own, results) = ((job, &args.memory), Results::of(args));
    let settings = |files: &[PlanFile], _: &Options| of_run(args, files, None);
    train_in_store(own, &metrics, options, settings, (&TABLES, ""), |store, options, run, account| {
        let mut columns = LocalColumns::open_in(run, &store, plan.layout)?;
        let mut learned = lead(results.output, (&plan, options), &mut columns, &stop)?;
        if !learned.stopped {
            test(&mut columns, &mut learned, options.test.as_ref())?;
        }
        finish(results, job, &plan, &mut columns, (&mut learned, account))?;
        columns.close()?;
        Ok(learned)
    })
}

/// Trains as a worker of a job.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    let (options, sync, learner) = planned(args)?;
    JobWorker::new(args, options, sync, args.job.task_index == 0)?.run(learner, None)
}

/// The checks of a worker before it connects.
pub fn check(args: &TrainArgs) -> Result<(), Failure> {
    planned(args).map(drop)
}

/// What a worker learns, and how, as its flags, its data and the model from which it starts say.
fn planned(args: &TrainArgs) -> Result<(Options, SyncConfig, LbfgsLearner), Failure> {
    let job = &args.job;
    let (share, warm) = (share(job), args.lbfgs.warm_start.as_deref());
    let plan = plan(&args.lbfgs, &args.optimizer, !args.data.no_intercept, share.workers)?;
    let mut options = options(&args.data, warm, args.passes.threads, share, args.output.json)?;
    options.normalize(&normalize::of_training(args)?);
    class_weight::weigh(args, &mut options)?;
    check_job(job)?;
    if job.task_index == 0 {
        preflight(warm, args.output.out.as_deref())?;
    }
    let sync = sync::membership(&job.sync, job.task_index, share.workers, PushContent::Gradient, Reduce::Sum);
    Ok((options, sync, LbfgsLearner { plan }))
}

/// Learns by L-BFGS, as the chief or as a worker that follows it.
struct LbfgsLearner {
    plan: LbfgsPlan,
}

impl Learner for LbfgsLearner {
    const BATCHES_PUSH_TO_ALL: bool = false;
    const LEARNS_BATCHES: bool = false;
    type Tables = RemoteColumns<Transports>;
    type Trained = LbfgsResults;

    fn schemas(&self) -> Vec<Schema> {
        vec![self.plan.layout.schema(), Layout::cells()]
    }

    fn open(
        &self,
        _: &JobWorker<'_>,
        worker: Worker<Transports>,
        _: Option<&InRun>,
    ) -> Result<RemoteColumns<Transports>, Failure> {
        Ok(RemoteColumns::open(worker, self.plan.layout)?)
    }

    fn train(
        &mut self,
        own: &JobWorker<'_>,
        columns: &mut RemoteColumns<Transports>,
        _: &InRun,
        _: Option<&InJob>,
    ) -> Result<(LbfgsResults, Validated), Failure> {
        let (plan, options, stop) = (&self.plan, &own.options, &*own.stop);
        if own.is_chief {
            return Ok((lead(&own.args.output, (plan, options), columns, stop)?, Validated::default()));
        }
        let (mut examples, loaded) = read_share(plan, options)?;
        let number = (own.args.job.task_index, own.incarnation);
        let done = follow(columns, &mut examples, number, plan.settings.patience, stop)?;
        warnings::warn_of_bad_lines(&loaded.bad_lines);
        warnings::warn_of_crosses(options);
        let (examples, passes, stopped) = (examples.len() as u64, done.passes, done.stopped);
        Ok((LbfgsResults { examples, passes, stopped, loaded, led: None }, Validated::default()))
    }

    fn close<'t>(
        &self,
        columns: &'t mut RemoteColumns<Transports>,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure> {
        columns.close()?;
        let table = columns.table();
        Ok((columns.worker(), table))
    }

    fn measure(
        &mut self,
        columns: &mut RemoteColumns<Transports>,
        results: &mut LbfgsResults,
        data: Option<Data>,
    ) -> Result<(), Failure> {
        test(columns, results, data.as_ref())
    }

    fn report(
        &self,
        own: &JobWorker<'_>,
        columns: &mut RemoteColumns<Transports>,
        (results, account): (&mut LbfgsResults, &Account),
        _: Validated,
    ) -> Result<(), Failure> {
        finish(own.results(), &own.args.job, &self.plan, columns, (results, account))
    }
}

/// Reads a worker's share.
fn read_share(plan: &LbfgsPlan, options: &Options) -> Result<(Examples, LoadedData), Failure> {
    let Options { data, share, threads, .. } = options;
    Ok(Examples::read(data, *share, plan.layout.schema().shards, *threads, plan.data_bytes)?)
}

/// Reads the chief's share, and leads the training.
fn lead<C: Columns>(
    output: &OutputArgs,
    (plan, options): (&LbfgsPlan, &Options),
    columns: &mut C,
    stop: &AtomicBool,
) -> Result<LbfgsResults, Failure> {
    let start = Instant::now();
    let (mut examples, loaded) = read_share(plan, options)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let one_class = examples.one_class();
    if let (0, 1, Some(folder)) = (examples.len(), plan.settings.workers, &output.out) {
        saves::may_save(folder, (0, 0, true), false, &loaded.bad_lines)?;
    }
    let start = Instant::now();
    let mut chief = Chief::new(columns, &mut examples, plan.settings.clone(), stop)?;
    if let Some(folder) = &plan.warm {
        let rows = chief.begin_from(|page| lr::warm_start(folder, plan.settings.intercept, page))?;
        tracing::info!(rows, folder = %folder.display(), "beginning from the weights of a model");
    }
    let quiet = output.json;
    let trained = chief.train(&mut |t| print_iteration(t, quiet))?;
    let seconds = start.elapsed().as_secs_f64();
    warnings::warn_of_bad_lines(&loaded.bad_lines);
    warnings::warn_of_crosses(options);
    let Trained { passes, stopped, .. } = trained;
    let (transport, stats) = (columns.transport(), Stats::default());
    let led = Led { trained, one_class, seconds, load_seconds, transport, test: None, nonzero: None, stats };
    Ok(LbfgsResults { examples: examples.len() as u64, passes, stopped, loaded, led: Some(led) })
}

/// Measures the quality on the test set, if there is one.
fn test<C: Columns>(columns: &mut C, results: &mut LbfgsResults, data: Option<&Data>) -> Result<(), Failure> {
    let mut learned = LearnedWeights::new(columns, TABLE)?;
    // A signal that only ends the test leaves a finished training.
    let mut untested = results.stopped;
    let test = test_at_end(data, &mut untested, |data| evaluate(data, &mut learned))?;
    if let Some(led) = &mut results.led {
        led.test = test.map(measured);
    }
    Ok(())
}

/// Prints the report. The chief saves the model first.
fn finish<C: Columns>(
    results: Results<'_>,
    job: &JobArgs,
    plan: &LbfgsPlan,
    columns: &mut C,
    (trained, account): (&mut LbfgsResults, &Account),
) -> Result<(), Failure> {
    let is_json = results.output.json;
    let LbfgsResults { loaded, led: Some(led), .. } = trained else {
        trained.print(job, is_json, plan, account);
        return Ok(());
    };
    let mut learned = LearnedWeights::new(columns, TABLE)?;
    let saving = Learned {
        examples: led.trained.examples,
        rows: 0,
        stopped: led.trained.stopped,
        bad_lines: &loaded.bad_lines,
        format: loaded.format,
        columns: loaded.columns.as_ref(),
        intercept: plan.settings.intercept,
        missing: &account.missing,
    };
    let saved = results.save(&saving, |folder, notes| lr::save_lr(folder, &mut learned, notes))?;
    if let Some(label) = led.one_class {
        warnings::warn_of_one_class(label);
    }
    if plan.settings.l1 > 0.0 {
        led.nonzero = Some(count(&mut learned)?);
    }
    led.stats = learned.stats()?;
    trained.print(job, is_json, plan, account);
    if let Some((folder, rows)) = saved.filter(|_| !is_json) {
        say!("model        {rows} rows in {}{}", folder.display(), saves::before(folder));
    }
    Ok(())
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
