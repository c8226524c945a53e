//! A worker of a job that trains a model other than logistic regression. It trains its share of the data against the
//! servers. One worker of the job, the chief, evaluates and saves the model.

use crate::checkpoint::saver::CheckpointSaver;
use crate::failure::{Failure, backend_failure, train_failure};
use crate::flags::{ModelName, TasksName, TrainArgs};
use crate::job::{check, connection, wire};
use crate::metrics::Metrics;
use crate::model::shape::Shape;
use crate::report::account::Account;
use crate::report::models;
use crate::report::warnings::warn_of_no_positive;
use crate::runs::in_run::InRun;
use crate::runs::{fixed_share, in_run, settings};
use crate::signals;
use crate::train::ending::{ended_early, learned_something};
use crate::train::models::learn::{finish, learn};
use crate::train::models::plan::{keep_step, membership, model, options_of, preflight, schemas_of};
use crate::train::models::topics;
use crate::train::tasks;
use crate::train::tasks::InJob;
use crate::train::validation::Validator;
use gannet::Transports;
use gannet::sync::SyncConfig;
use gannet::train::models::{Fitted, Model, push_of, score};
use gannet::train::{Data, Options, ReadError, Reduce, RemoteTables, Share, TrainError};
use gannet::worker::WireType;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Trains as a worker of a job.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    let job = &args.job;
    check::check(job)?;
    if job.damping.damping.is_some() {
        return Err(Failure::input("--damping: works only with --model lr; leave it out"));
    }
    if args.model.model == ModelName::Lda {
        return topics::worker(args);
    }
    let mut own = ModelWorker::new(args)?;
    let scheduled = tasks::are_wanted(args, &own.options)?;
    let mut line = connection::line(job, Some(&own.metrics))?;
    let schemas = schemas_of(&*own.model);
    let names: Vec<&str> = schemas.iter().map(|schema| schema.name.as_str()).collect();
    let settings = settings::settings(args, &own.options.data.files, None, Some(&own.options))?;
    let of_run = (settings.clone(), &own.options.data.scale);
    let joined = in_run::join(args, &mut line, of_run, &names, job.task_index)?;
    let Some(run) = joined else { return Ok(()) };
    run.scale(&mut own.options.data, own.held_out.as_mut());
    // A worker joins before it connects, for the reason in lr_worker.rs.
    let in_job = match scheduled {
        true => Some(tasks::join(args, &mut own.options, &schemas, &line, None, (&settings, &run))?),
        false => None,
    };
    if let Some(in_job) = &in_job {
        in_job.check_number(&run)?;
    }
    own.fixed_shares = in_job.is_none() && own.sync.workers > 1;
    if own.fixed_shares {
        run.print_missing_workers()?;
    }
    let mut tables = RemoteTables::new(line.connect(&own.metrics)?);
    keep_step(&mut tables, own.sync);
    tables.set_wire_type(own.wire);
    if let Some(in_job) = &in_job {
        in_job.open_tables(tables.worker())?;
        in_job.start_together(job, &own.stop)?;
    } else {
        let worker = tables.worker();
        let ids = schemas.iter().map(|schema| worker.open_table(schema)).collect::<Result<Vec<_>, _>>()?;
        if let Some(share) = fixed_share::begin(args, &run, worker, &ids)? {
            tables.train_share(share);
        }
    }
    let saver = CheckpointSaver::start(args, &line, &names)?;
    let (mut fitted, validations) = own.train(&mut tables, &run, in_job.as_ref())?;
    let account = own.close(&mut tables, &run, in_job.as_ref(), &mut fitted)?;
    CheckpointSaver::save_trained(saver.as_ref(), fitted.stopped);
    own.evaluate(&mut tables, &mut fitted)?;
    own.report(&mut tables, &run, (&fitted, &account), validations)?;
    if let Some(in_job) = in_job {
        let loss = fitted.progressive.as_ref().map(models::loss);
        in_job.end(&mut own.options, (fitted.examples, loss, fitted.seconds), own.is_chief);
    }
    // The last checkpoint says that the run is finished.
    CheckpointSaver::end(saver, fitted.stopped);
    ended_early(fitted.stopped, fitted.examples)?;
    if !scheduled && account.batches_before == 0 {
        learned_something(fitted.examples, &fitted.bad_lines)?;
    }
    run.ended(&account, args.out.as_deref().filter(|_| own.is_chief))
}

/// The settings and the state of this worker.
struct ModelWorker<'a> {
    args: &'a TrainArgs,
    model: Box<dyn Model>,
    shape: Shape,
    options: Options,
    /// The test set. The chief reads it when all workers are done; the training does not.
    held_out: Option<Data>,
    sync: SyncConfig,
    wire: WireType,
    /// Whether each of several workers has a fixed share of the data.
    fixed_shares: bool,
    /// Whether this worker evaluates and saves. With a scheduler that is known after the training.
    is_chief: bool,
    stop: Arc<AtomicBool>,
    metrics: Metrics,
}

impl<'a> ModelWorker<'a> {
    /// Checks the flags and the data, before anything is connected.
    fn new(args: &'a TrainArgs) -> Result<ModelWorker<'a>, Failure> {
        let job = &args.job;
        let (model, shape) = model(args)?;
        let share = Share { worker: job.task_index, workers: job.worker_hosts.len() as u32 };
        let is_chief = job.task_index == 0;
        // With a scheduler any worker may become the chief.
        let mut options = options_of(args, &*model, share, is_chief || job.tasks.tasks == TasksName::On)?;
        let push = push_of(&options, &*model).map_err(backend_failure)?;
        options.push = Some(push);
        let wire = wire::of_training(args, push)?;
        let reduce = options.reduce.unwrap_or(Reduce::suits(&model.sparse().rule));
        let sync = membership(job, model.name(), 1 + model.dense().len(), push, reduce)?;
        if is_chief {
            preflight(args, &options, &*model)?;
        }
        let stop = signals::stop_flag()?;
        options.stop_on(&stop);
        let held_out = options.test.take();
        let metrics = Metrics::start(&args.metrics, "worker")?;
        let fixed_shares = false;
        Ok(ModelWorker {
            args,
            model,
            shape,
            options,
            held_out,
            sync,
            wire,
            fixed_shares,
            is_chief,
            stop,
            metrics,
        })
    }

    /// Trains. Returns the report and the validations on the way.
    fn train(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
    ) -> Result<(Fitted, Option<Vec<Value>>), Failure> {
        let worker_0 = self.is_chief;
        let is_chief = || in_job.map_or(worker_0, InJob::is_chief);
        let count_batches = |batches| run.trained(batches);
        let mut validator = Validator::new(self.args, self.held_out.as_ref(), self.model.task(), &is_chief)
            .on_step(&count_batches);
        let of = (self.args, &self.metrics, in_job);
        let model: &mut dyn Model = &mut *self.model;
        let fitted = learn(&self.options, (model, &self.shape), tables, &self.stop, of, &mut validator);
        let fitted = fitted.map_err(|failure| match in_job {
            Some(in_job) => in_job.failed(failure),
            None => failure,
        })?;
        Ok((fitted, validator.into_validations()))
    }

    /// Ends this worker's pushes, finds out who the chief is, and waits for the other workers if shares are fixed.
    fn close(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
        fitted: &mut Fitted,
    ) -> Result<Account, Failure> {
        tables.close_pusher().map_err(backend_failure)?;
        if !fitted.stopped {
            run.done()?;
        }
        if let Some(in_job) = in_job {
            self.is_chief = in_job.sums_up(&self.stop)?;
        }
        if !self.fixed_shares || fitted.stopped {
            return Ok(run.account());
        }
        let (batches, epochs, workers) = (fitted.batches, self.args.epochs, self.sync.workers);
        let share = |rank| Some(fixed_share::share(batches, epochs, rank, workers));
        let table = tables.id(0);
        let account = run.wait_for_shares(tables.worker(), table, &share, &self.stop)?;
        fitted.stopped = self.stop.load(Relaxed);
        Ok(account)
    }

    /// Measures the quality on the test set and the sizes of the tables, if this worker is the chief.
    fn evaluate(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        fitted: &mut Fitted,
    ) -> Result<(), Failure> {
        if self.is_chief && !fitted.stopped {
            if let Some(data) = self.held_out.take() {
                match score(&data, &mut *self.model, tables) {
                    // A signal that ends the wait for the test set does not discard the model.
                    Err(TrainError::Read(ReadError::Stopped { .. })) => fitted.stopped = true,
                    tested => fitted.test = tested.map_err(train_failure)?,
                }
            }
            fitted.measure(&*self.model, tables).map_err(backend_failure)?;
        }
        Ok(())
    }

    /// Prints the report. The chief saves the model first, and finishes the run.
    fn report(
        &self,
        tables: &mut RemoteTables<Transports>,
        run: &InRun,
        (fitted, account): (&Fitted, &Account),
        validations: Option<Vec<Value>>,
    ) -> Result<(), Failure> {
        let (args, model) = (self.args, &*self.model);
        if !self.is_chief {
            warn_of_no_positive(fitted.examples);
            let weights = models::weights(model, tables, fitted)?;
            models::print(args, (fitted, account), &weights, None);
            return Ok(());
        }
        finish(args, &self.shape, model, tables, (fitted, account), validations)?;
        if !fitted.stopped {
            run.finish(fitted.rows, account)?;
        }
        Ok(())
    }
}
