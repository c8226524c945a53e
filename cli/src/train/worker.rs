//! A worker of a job. It trains its share of the data against the servers. One worker of the job, the chief, evaluates
//! and saves the model. What a model does in its own way is a [`Learner`].

use crate::checkpoint::saver::CheckpointSaver;
use crate::failure::Failure;
use crate::flags::{JobArgs, ModelName, OptimizerName, TasksName, TrainArgs};
use crate::job::connection::{self, WorkerConnection};
use crate::metrics::Metrics;
use crate::model::notes::of_job;
use crate::report::account::Account;
use crate::report::progress::ProgressDisplay;
use crate::runs::begin::{AGAIN_ALONE, AGAIN_IN_A_JOB, notes};
use crate::runs::in_run::{self, InRun};
use crate::runs::{fixed_share, settings};
use crate::signals;
use crate::train::ending::{Results, Validated, learned_something};
use crate::train::feed::data_client::DataClient;
use crate::train::normalize;
use crate::train::start_rows;
use crate::train::tasks::{self, InJob};
use crate::train::trained::{Summary, Trained};
use crate::train::validation::{noted_best, validate_job};
use gannet::runs::RunSetting;
use gannet::sync::SyncConfig;
use gannet::table::{Admission, TableId};
use gannet::train::models::Measured;
use gannet::train::saved::BATCH_TABLES;
use gannet::train::saved::load_model;
use gannet::train::{BadLines, Data, Options, Share, start_table};
use gannet::{Schema, Transports, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The settings and the state of a worker, of any model.
pub struct JobWorker<'a> {
    pub args: &'a TrainArgs,
    pub options: Options,
    /// The test set. The chief reads it when all workers are done; the training does not.
    pub held_out: Option<Data>,
    pub sync: SyncConfig,
    /// Whether this worker evaluates and saves. With a scheduler that is known after the training.
    pub is_chief: bool,
    /// The number of this worker's start, from [`run`](Self::run) on.
    pub incarnation: u64,
    /// Whether each of several workers has a fixed share of the data.
    fixed_shares: bool,
    pub stop: Arc<AtomicBool>,
    pub metrics: Metrics,
}

/// What a model's worker does in its own way.
pub trait Learner {
    /// Whether the checkpoints of the job name the tables, because each batch pushes to all of them.
    const BATCHES_PUSH_TO_ALL: bool;

    /// Whether a worker learns batches, and is done with its share before others are. Otherwise all workers look at all
    /// of their data in each step, and end together.
    const LEARNS_BATCHES: bool = true;

    /// The tables at the servers.
    type Tables;

    /// The results of a training.
    type Trained: Trained;

    /// The schemas of the tables at the servers.
    fn schemas(&self) -> Vec<Schema>;

    /// The notes about the structure of the model, if a checkpoint of the job can score examples.
    fn shape_notes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Takes the fields that the readers of the run's data say.
    fn take_fields(&mut self, data: &Data) -> Result<(), Failure> {
        let _ = data;
        Ok(())
    }

    /// Opens the tables. In a `run` without a scheduler this worker has a fixed share of the data.
    fn open(
        &self,
        own: &JobWorker<'_>,
        worker: Worker<Transports>,
        run: Option<&InRun>,
    ) -> Result<Self::Tables, Failure>;

    /// Trains. Returns the results, and the validations on the way.
    fn train(
        &mut self,
        own: &JobWorker<'_>,
        tables: &mut Self::Tables,
        run: &InRun,
        in_job: Option<&InJob>,
    ) -> Result<(Self::Trained, Validated), Failure>;

    /// Ends this worker's pushes. Returns its connection, and the table at which other workers see that.
    fn close<'t>(
        &self,
        tables: &'t mut Self::Tables,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure>;

    /// The quality on this data of the rows that all workers have trained. Models that are not validated have none.
    fn score(&mut self, tables: &mut Self::Tables, data: &Data) -> Result<Option<Measured>, Failure> {
        let _ = (tables, data);
        Ok(None)
    }

    /// Measures the quality on the test set and the size of the tables, as the chief.
    fn measure(
        &mut self,
        tables: &mut Self::Tables,
        trained: &mut Self::Trained,
        test: Option<Data>,
    ) -> Result<(), Failure>;

    /// Prints the report. The chief saves the model first, before it pulls weights for the report.
    fn report(
        &self,
        own: &JobWorker<'_>,
        tables: &mut Self::Tables,
        results: (&mut Self::Trained, &Account),
        validated: Validated,
    ) -> Result<(), Failure>;
}

/// The share of the data that the flags give to this worker.
pub fn share(job: &JobArgs) -> Share {
    Share { worker: job.task_index, workers: job.worker_hosts.len() as u32 }
}

/// Whether this worker may test: it is the chief, or a scheduler may choose it.
pub fn may_test(job: &JobArgs, is_chief: bool) -> bool {
    is_chief || job.tasks.tasks == TasksName::On
}

/// Why a worker failed. In a job with a scheduler the others may have to know.
fn failed(failure: Failure, in_job: Option<&InJob>) -> Failure {
    match in_job {
        Some(in_job) => in_job.failed(failure),
        None => failure,
    }
}

impl<'a> JobWorker<'a> {
    /// A worker whose flags and data are checked, before anything is connected.
    pub fn new(
        args: &'a TrainArgs,
        mut options: Options,
        sync: SyncConfig,
        is_chief: bool,
    ) -> Result<JobWorker<'a>, Failure> {
        let stop = signals::stop_flag()?;
        options.stop_on(&stop);
        let (held_out, incarnation, fixed_shares) = (options.test.take(), 0, false);
        let metrics = Metrics::start(&args.metrics, "worker")?;
        Ok(JobWorker { args, options, held_out, sync, is_chief, incarnation, fixed_shares, stop, metrics })
    }

    /// Where its results go.
    pub fn results(&self) -> Results<'a> {
        Results::of(self.args)
    }

    /// A display of its progress.
    pub fn display(&self) -> ProgressDisplay {
        ProgressDisplay::of(&self.args.job, self.args.output.json)
    }

    /// Runs the worker. With `client` its data comes from a client, which then evaluates and saves.
    pub fn run<L: Learner>(mut self, mut learner: L, client: Option<DataClient>) -> Result<(), Failure> {
        let (args, job) = (self.args, &self.args.job);
        let scheduled = tasks::are_wanted(job, &self.options)?;
        let mut line = match &client {
            Some(client) => client.line(),
            None => connection::line(job, Some(&self.metrics))?,
        };
        self.incarnation = line.config.incarnation;
        let (settings, planned) = (self.settings(client.as_ref(), L::LEARNS_BATCHES)?, learner.schemas());
        let names: Vec<&str> = planned.iter().map(|schema| schema.name.as_str()).collect();
        learner.take_fields(&self.options.data)?;
        let of_run = (settings.clone(), self.notes(&learner, &names)?);
        let mut all = normalize::with_table(&names);
        all.extend(self.options.begin.iter().map(|_| start_table(names[0])));
        let joined =
            in_run::join(job, args.output.json, &mut line, of_run, &all, (job.task_index, self.again()))?;
        let Some(run) = joined else { return Ok(()) };
        run.keep_reading(&mut self.options.data, self.held_out.as_mut());
        learner.take_fields(&self.options.data)?;
        let schemas = learner.schemas();
        // The worker joins the job before it connects: a second process with this index is refused before it can
        // replace the first one at the servers.
        let of_job = (job, &args.data, &self.metrics);
        let in_job = match scheduled {
            true => Some(tasks::join(of_job, &mut self.options, &schemas, &line, client, (&settings, &run))?),
            false => None,
        };
        if let Some(in_job) = &in_job {
            in_job.check_number(&run)?;
        }
        self.fixed_shares = in_job.is_none() && self.sync.workers > 1;
        if self.fixed_shares {
            run.print_missing_workers()?;
        }
        let worker = self.connect((&run, in_job.as_ref()), &line, &schemas)?;
        let mut tables = self.open(&learner, worker, in_job.is_none().then_some(&run), &line)?;
        if let Some(in_job) = &in_job {
            in_job.start_together(job, &self.stop)?;
        }
        let of_each_batch = if L::BATCHES_PUSH_TO_ALL { &names[..] } else { &[] };
        let noted = (of_each_batch, &learner.shape_notes()[..]);
        let saver = CheckpointSaver::start(job, (&args.data, &self.options.data), &line, noted)?;
        let trained = learner.train(&self, &mut tables, &run, in_job.as_ref());
        let (mut trained, mut validated) = trained.map_err(|failure| failed(failure, in_job.as_ref()))?;
        let account = self.close(&learner, &mut tables, (&run, in_job.as_ref()), &mut trained)?;
        CheckpointSaver::save_trained(saver.as_ref(), trained.summary().stopped);
        if self.is_chief && !trained.summary().stopped {
            self.measure(&mut learner, &mut tables, (&mut trained, &mut validated), &run)?;
        }
        learner.report(&self, &mut tables, (&mut trained, &account), validated)?;
        let Summary { examples, seconds, loss, rows, stopped, bad_lines, .. } = trained.summary();
        if self.is_chief && !stopped {
            run.finish(rows, &account)?;
        }
        if let Some(in_job) = in_job {
            in_job.end(&mut self.options, (examples, loss, seconds), self.is_chief);
        }
        // The last checkpoint says that the run is finished.
        CheckpointSaver::end(saver, stopped);
        trained.ended()?;
        if account.batches_before == 0 {
            self.learned_something((examples, rows), bad_lines, scheduled)?;
        }
        run.ended(&account, args.output.out.as_deref().filter(|_| self.is_chief))
    }

    /// The notes of the run, if this worker begins it.
    fn notes<L: Learner>(&self, learner: &L, names: &[&str]) -> Result<String, Failure> {
        let data = &self.options.data;
        let mut of_model = of_job(&self.args.data, data, &learner.shape_notes())?;
        if L::BATCHES_PUSH_TO_ALL && !of_model.is_empty() {
            of_model.push((BATCH_TABLES.to_owned(), names.join(" ")));
        }
        Ok(notes(data, of_model))
    }

    /// Connects to the servers. In a job that starts from a model, the rows of these tables are there afterwards.
    fn connect(
        &mut self,
        (run, in_job): (&InRun, Option<&InJob>),
        line: &WorkerConnection,
        schemas: &[Schema],
    ) -> Result<Worker<Transports>, Failure> {
        let mut worker = line.connect(&self.metrics)?;
        if let Some(eviction) = self.args.eviction.eviction()? {
            // The first table has the features, also in models of several tables.
            worker.evict_rows(&schemas[0].name, eviction)?;
        }
        if let Some(in_job) = in_job {
            in_job.open_tables(&mut worker)?;
        }
        if let Some(begin) = self.options.begin.take() {
            let begun =
                start_rows::begin(&*begin, (self.args, schemas), (run, line, &mut worker), &self.stop);
            begun.map_err(|failure| failed(failure, in_job))?;
        }
        Ok(worker)
    }

    /// Validates and tests what all workers have trained, as the chief.
    fn measure<L: Learner>(
        &mut self,
        learner: &mut L,
        tables: &mut L::Tables,
        (trained, validated): (&mut L::Trained, &mut Validated),
        run: &InRun,
    ) -> Result<(), Failure> {
        if validated.best.is_none() {
            // This worker has become the chief when all was trained.
            validated.best = noted_best(&self.args.output, &run.tag());
        }
        self.validate(learner, tables, validated)?;
        // The rows of the servers are not those of the best model any more.
        let held_out = self.held_out.take();
        let test = held_out.clone().filter(|_| validated.best.is_none());
        learner.measure(tables, trained, test)?;
        if let Some(best) = &validated.best {
            trained.set_test(match (&self.args.output.out, &held_out) {
                (Some(folder), Some(test)) => load_model(folder)?.measure(test)?,
                _ => best.test.clone(),
            });
        }
        Ok(())
    }

    /// Validates the rows that all workers have trained, unless the patience is over: then they are no better.
    fn validate<L: Learner>(
        &self,
        learner: &mut L,
        tables: &mut L::Tables,
        validated: &mut Validated,
    ) -> Result<(), Failure> {
        let Some(data) = self.options.validation.as_ref().filter(|_| !validated.is_over) else {
            return Ok(());
        };
        let measured = learner.score(tables, data)?;
        validate_job(validated, measured.as_ref(), self.args.output.json);
        Ok(())
    }

    /// An error if this worker or, as its chief knows by the rows, the whole job learned nothing.
    fn learned_something(
        &self,
        (examples, rows): (u64, u64),
        bad_lines: Option<&BadLines>,
        scheduled: bool,
    ) -> Result<(), Failure> {
        let has_all_rows = self.args.admission.admission() == Admission::All;
        let is_whole = self.is_chief && rows == 0 && has_all_rows;
        learned_something(examples, bad_lines.filter(|_| is_whole || !scheduled), is_whole)
    }

    /// Opens the tables, and agrees with the other workers on how values are normalized.
    fn open<L: Learner>(
        &self,
        learner: &L,
        worker: Worker<Transports>,
        run: Option<&InRun>,
        line: &WorkerConnection,
    ) -> Result<L::Tables, Failure> {
        let tables = learner.open(self, worker, run)?;
        let TrainArgs { job, data, .. } = self.args;
        let reads_files = job.data_server.feed.is_none() && !data.follow.grows();
        let (at, table) = ((&line.net, &line.config), &learner.schemas()[0].name);
        normalize::agree_at_servers(&self.options.data, at, table, reads_files)?;
        Ok(tables)
    }

    /// The settings of the run.
    fn settings(
        &self,
        client: Option<&DataClient>,
        learns_batches: bool,
    ) -> Result<Vec<RunSetting>, Failure> {
        let files = match client {
            Some(client) => client.plan().files.clone(),
            None => settings::local_files(&self.options.data.files)?,
        };
        Ok(settings::of_run(self.args, &files, learns_batches.then_some(&self.options)))
    }

    /// Which data is trained again when this worker is started again.
    fn again(&self) -> &'static str {
        let TrainArgs { job, optimizer, model, .. } = self.args;
        match (job.tasks.tasks, optimizer.optimizer, model.model) {
            // L-BFGS keeps its own state in the tables.
            (_, Some(OptimizerName::Lbfgs), _) => "",
            // The workers of this model keep the topics of their words, so splits cannot move between workers.
            (_, _, ModelName::Lda) => AGAIN_ALONE,
            // With checkpoints the worker says later where it begins (fixed_share.rs).
            (TasksName::Off, ..) if job.checkpoint.checkpoint.is_none() => AGAIN_IN_A_JOB,
            _ => "",
        }
    }

    /// Ends this worker's pushes, finds out who the chief is, and waits for the other workers if shares are fixed.
    fn close<L: Learner>(
        &mut self,
        learner: &L,
        tables: &mut L::Tables,
        (run, in_job): (&InRun, Option<&InJob>),
        trained: &mut L::Trained,
    ) -> Result<Account, Failure> {
        let (worker, table) = learner.close(tables)?;
        let Summary { stopped, batches, .. } = trained.summary();
        if !stopped {
            run.done()?;
        }
        if let Some(in_job) = in_job {
            self.is_chief = in_job.sums_up(&self.stop)?;
        }
        if !self.fixed_shares || !L::LEARNS_BATCHES || stopped {
            return Ok(run.account());
        }
        let (epochs, workers) = (self.args.passes.epochs, self.sync.workers);
        let share = |rank| batches.map(|batches| fixed_share::share(batches, epochs, rank, workers));
        let account = run.wait_for_shares(worker, table, &share, &self.stop)?;
        trained.set_stopped(self.stop.load(Relaxed));
        Ok(account)
    }
}
