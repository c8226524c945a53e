//! A worker of a job that trains logistic regression. It trains its share of the data against the servers. One worker
//! of the job, the chief, evaluates and saves the model.

use crate::checkpoint::saver::CheckpointSaver;
use crate::failure::Failure;
use crate::flags::{TasksName, TrainArgs};
use crate::job::{cache, check, connection, sync, wire};
use crate::metrics::Metrics;
use crate::report::account::Account;
use crate::report::{training, warnings};
use crate::runs::in_run::InRun;
use crate::runs::{fixed_share, in_run, settings};
use crate::train::feed::data_client::DataClient;
use crate::train::tasks::InJob;
use crate::train::validation::Validator;
use crate::train::{ending, lr, options, tasks};
use crate::{failure, signals};
use gannet::sync::{SyncConfig, SyncMode};
use gannet::train::models::Objective;
use gannet::train::{
    Backend, Data, Options, Progress, PushContent, Quality, ReadError, Reduce, RemoteBackend, Report, Share,
    TrainError, evaluate,
};
use gannet::worker::{CacheConfig, WireType};
use gannet::{Read, Schema, Transports, Worker};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Batches that are pulled before the current batch is learned. On one machine a second one gained nothing.
const DEPTH: usize = 1;

/// Runs a worker that reads the data itself.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    run(args, None)
}

/// Runs a worker. With `client` its data comes from a client, which then evaluates and saves.
pub fn run(args: &TrainArgs, client: Option<DataClient>) -> Result<(), Failure> {
    let job = &args.job;
    let mut own = LrWorker::new(args, client.as_ref())?;
    let scheduled = tasks::are_wanted(args, &own.options)?;
    let mut line = match &client {
        Some(client) => client.line(),
        None => connection::line(job, Some(&own.metrics))?,
    };
    let files = client.as_ref().map(|client| &client.plan().files[..]);
    let settings = settings::settings(args, &own.options.data.files, files, Some(&own.options))?;
    let stored = own.stored_schema();
    let of_run = (settings.clone(), &own.options.data.scale);
    let joined = in_run::join(args, &mut line, of_run, &[&stored.name], job.task_index)?;
    let Some(run) = joined else { return Ok(()) };
    run.scale(&mut own.options.data, own.held_out.as_mut());
    // The worker joins the job before it connects: a second process with this index is refused before it can replace
    // the first one at the servers.
    let in_job = match scheduled {
        true => Some(tasks::join(args, &mut own.options, &[stored], &line, client, (&settings, &run))?),
        false => None,
    };
    if let Some(in_job) = &in_job {
        in_job.check_number(&run)?;
    }
    let mut worker = line.connect(&own.metrics)?;
    own.fixed_shares = in_job.is_none() && own.sync.workers > 1;
    if own.fixed_shares {
        run.print_missing_workers()?;
    }
    if let Some(in_job) = &in_job {
        in_job.open_tables(&mut worker)?;
    }
    let mut backend = own.open(worker, in_job.is_none().then_some(&run))?;
    if let Some(in_job) = &in_job {
        in_job.start_together(job, &own.stop)?;
    }
    let saver = CheckpointSaver::start(args, &line, &[])?;
    let (mut trained, validations) = own.train(&mut backend, &run, in_job.as_ref())?;
    let account = own.close(&mut backend, &run, in_job.as_ref(), &mut trained)?;
    CheckpointSaver::save_trained(saver.as_ref(), trained.stopped);
    let test = own.evaluate(&mut backend, &mut trained)?;
    own.report(&mut backend, &run, &trained, (test.as_ref(), &account), validations)?;
    if let Some(in_job) = in_job {
        let loss = trained.progressive.as_ref().map(|quality| quality.log_loss);
        in_job.end(&mut own.options, (trained.examples, loss, trained.seconds), own.is_chief);
    }
    // The last checkpoint says that the run is finished.
    CheckpointSaver::end(saver, trained.stopped);
    lr::ended(&trained)?;
    if !scheduled && account.batches_before == 0 {
        ending::learned_something(trained.examples, &trained.bad_lines)?;
    }
    run.ended(&account, args.out.as_deref().filter(|_| own.is_chief))
}

/// The settings and the state of this worker.
struct LrWorker<'a> {
    args: &'a TrainArgs,
    schema: Schema,
    options: Options,
    /// The test set. The chief reads it when all workers are done; the training does not.
    held_out: Option<Data>,
    /// Whether the servers damp changes by those of other workers.
    damped: bool,
    sync: SyncConfig,
    cache: Option<CacheConfig>,
    wire: WireType,
    /// Whether each of several workers has a fixed share of the data.
    fixed_shares: bool,
    /// Whether this worker evaluates and saves. With a scheduler that is known after the training.
    is_chief: bool,
    stop: Arc<AtomicBool>,
    metrics: Metrics,
}

impl<'a> LrWorker<'a> {
    /// Checks the flags and the data, before anything is connected.
    fn new(args: &'a TrainArgs, client: Option<&DataClient>) -> Result<LrWorker<'a>, Failure> {
        let job = &args.job;
        check::check(job)?;
        let schema = options::schema(args)?;
        let workers = job.worker_hosts.len() as u32;
        let share = Share { worker: job.task_index, workers };
        let is_chief = job.task_index == 0 && client.is_none();
        // With a scheduler any worker may become the chief.
        let mut options = options::options(args, share, is_chief || job.tasks.tasks == TasksName::On)?;
        let push = PushContent::choose(options.push, &schema).map_err(failure::backend_failure)?;
        options.push = Some(push);
        let damped = sync::is_damped(job, push)?;
        let wire = wire::of_training(args, push)?;
        if let Some(client) = client {
            options.data.files = client.files();
        }
        if is_chief {
            options::preflight(args, &options, &schema)?;
        }
        let stop = signals::stop_flag()?;
        options.stop_on(&stop);
        let held_out = options.test.take();
        let metrics = Metrics::start(&args.metrics, "worker")?;
        let reduce = options.reduce.unwrap_or(Reduce::suits(&schema.rule));
        let sync = sync::membership(&job.sync, job.task_index, workers, push, reduce);
        let cache = cache::of_training(args, &schema, push, sync.mode)?;
        if damped && cache.is_some() {
            return Err(Failure::input(
                "--cache-bytes cannot be combined with damped replay, because only the servers know what a damped push \
                 makes of a row: leave --cache-bytes out, or add --damping off",
            ));
        }
        let fixed_shares = false;
        Ok(LrWorker {
            args,
            schema,
            options,
            held_out,
            damped,
            sync,
            cache,
            wire,
            fixed_shares,
            is_chief,
            stop,
            metrics,
        })
    }

    /// The schema of the table at the servers.
    fn stored_schema(&self) -> Schema {
        if self.damped { self.schema.counting() } else { self.schema.clone() }
    }

    /// Opens the table. In a `run` without a scheduler this worker has a fixed share of the data.
    fn open(
        &self,
        worker: Worker<Transports>,
        run: Option<&InRun>,
    ) -> Result<RemoteBackend<Transports>, Failure> {
        let backend = if self.damped {
            RemoteBackend::open_damped(worker, &self.schema, DEPTH)
        } else {
            RemoteBackend::open(worker, &self.schema, DEPTH)
        };
        let mut backend = backend.map_err(failure::backend_failure)?;
        backend.set_wire_type(self.wire).map_err(failure::backend_failure)?;
        if let Some(cache) = self.cache {
            backend.cache(Read::State, cache).map_err(failure::backend_failure)?;
        }
        let table = backend.table();
        if let Some(run) = run
            && let Some(share) = fixed_share::begin(self.args, run, backend.worker(), &[table])?
        {
            backend.train_share(share);
        }
        // A single asynchronous worker has nobody to keep step with.
        if self.sync.workers > 1 || self.sync.mode != SyncMode::Asp {
            backend.join(self.sync).map_err(failure::backend_failure)?;
        }
        Ok(backend)
    }

    /// Trains. Returns the report and the validations on the way.
    fn train(
        &self,
        backend: &mut RemoteBackend<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
    ) -> Result<(Report, Option<Vec<Value>>), Failure> {
        let is_chief = || in_job.map_or(self.is_chief, InJob::is_chief);
        let count_batches = |batches| run.trained(batches);
        let mut validator = Validator::new(self.args, self.held_out.as_ref(), Objective::Click, &is_chief)
            .on_step(&count_batches);
        let mut report_progress = |p: &Progress| {
            if let Some(in_job) = in_job {
                in_job.report_progress(p.examples, p.log_loss, p.seconds);
            }
        };
        let of = (self.args, &self.metrics);
        let trained = lr::learn(&self.options, backend, &self.stop, of, &mut report_progress, &mut validator);
        let trained = trained.map_err(|failure| match in_job {
            Some(in_job) => in_job.failed(failure),
            None => failure,
        })?;
        Ok((trained, validator.into_validations()))
    }

    /// Ends this worker's pushes, finds out who the chief is, and waits for the other workers if shares are fixed.
    fn close(
        &mut self,
        backend: &mut RemoteBackend<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
        trained: &mut Report,
    ) -> Result<Account, Failure> {
        let table = backend.table();
        backend.leave().map_err(failure::backend_failure)?;
        backend.worker().close_pusher(table)?;
        if !trained.stopped {
            run.done()?;
        }
        if let Some(in_job) = in_job {
            self.is_chief = in_job.sums_up(&self.stop)?;
        }
        if !self.fixed_shares || trained.stopped {
            return Ok(run.account());
        }
        let (batches, epochs, workers) = (trained.batches, self.args.epochs, self.sync.workers);
        let share = |rank| Some(fixed_share::share(batches, epochs, rank, workers));
        let account = run.wait_for_shares(backend.worker(), table, &share, &self.stop)?;
        trained.stopped = self.stop.load(Relaxed);
        Ok(account)
    }

    /// Measures the quality on the test set and the size of the table, if this worker is the chief.
    fn evaluate(
        &mut self,
        backend: &mut RemoteBackend<Transports>,
        trained: &mut Report,
    ) -> Result<Option<Quality>, Failure> {
        let mut test = None;
        if self.is_chief && !trained.stopped {
            if let Some(data) = self.held_out.take() {
                match evaluate(&data, backend) {
                    // A signal that ends the wait for the test set does not discard the model.
                    Err(TrainError::Read(ReadError::Stopped { .. })) => trained.stopped = true,
                    tested => test = tested.map_err(failure::train_failure)?,
                }
            }
            let stats = backend.stats().map_err(failure::backend_failure)?;
            trained.rows = stats.rows;
            trained.bytes_per_row = stats.bytes as f64 / stats.rows.max(1) as f64;
        }
        Ok(test)
    }

    /// Prints the report. The chief saves the model first, and finishes the run.
    fn report(
        &self,
        backend: &mut RemoteBackend<Transports>,
        run: &InRun,
        trained: &Report,
        (test, account): (Option<&Quality>, &Account),
        validations: Option<Vec<Value>>,
    ) -> Result<(), Failure> {
        if !self.is_chief {
            warnings::warn_of_no_positive(trained.examples);
            training::print_or_json(self.args.json, trained, account);
            return Ok(());
        }
        lr::finish(self.args, backend, trained, (test, account), validations)?;
        if !trained.stopped {
            run.finish(trained.rows, account)?;
        }
        Ok(())
    }
}
