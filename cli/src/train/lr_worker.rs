//! A worker of a job that trains logistic regression.

use crate::failure::Failure;
use crate::flags::TrainArgs;
use crate::job::check::check_job;
use crate::job::{cache, sync, wire};
use crate::model::warm_start;
use crate::report::account::Account;
use crate::report::measures::measured;
use crate::report::warnings;
use crate::runs::fixed_share;
use crate::runs::in_run::InRun;
use crate::train::ending::Validated;
use crate::train::feed::data_client::DataClient;
use crate::train::tasks::InJob;
use crate::train::validation::Validator;
use crate::train::worker::{JobWorker, Learner, may_test, share};
use crate::train::{lr, options};
use gannet::sync::{SyncConfig, SyncMode};
use gannet::table::TableId;
use gannet::train::models::{Measured, Objective};
use gannet::train::saved::Shape;
use gannet::train::{
    Backend, Data, Options, Progress, PushContent, Reduce, RemoteBackend, Report, evaluate, test_at_end,
};
use gannet::worker::{CacheConfig, WireType};
use gannet::{Read, Schema, Transports, Worker};

/// Batches that are pulled before the current batch is learned. On one machine a second one gained nothing.
const DEPTH: usize = 1;

/// Runs a worker. With `client` its data comes from a client, which then evaluates and saves.
pub fn run_lr_worker(args: &TrainArgs, client: Option<DataClient>) -> Result<(), Failure> {
    let (options, sync, learner) = planned(args, client.as_ref())?;
    let is_chief = args.job.task_index == 0 && client.is_none();
    JobWorker::new(args, options, sync, is_chief)?.run(learner, client)
}

/// The checks of a worker before it connects.
pub fn check(args: &TrainArgs) -> Result<(), Failure> {
    planned(args, None).map(drop)
}

/// What a worker learns, and how it keeps step, as its flags, its data and the model from which it starts say.
fn planned(
    args: &TrainArgs,
    client: Option<&DataClient>,
) -> Result<(Options, SyncConfig, LrLearner), Failure> {
    let job = &args.job;
    check_job(job)?;
    let schema = options::schema(&args.optimizer, &args.admission, &job.table)?;
    let share = share(job);
    let is_chief = job.task_index == 0 && client.is_none();
    let mut options = options::options(args, share, may_test(job, is_chief))?;
    let push = PushContent::choose(options.push, &schema)?;
    options.push = Some(push);
    let damped = sync::is_damped(job, push)?;
    let wire = wire::of_training(job, push)?;
    if let Some(client) = client {
        options.data.files = client.files();
    }
    let warm = args.lbfgs.warm_start.as_deref();
    options.begin = warm_start::begin(warm, std::slice::from_ref(&schema), &Shape::lr())?;
    if is_chief {
        options::preflight(args.output.out.as_deref(), &options, &schema)?;
    }
    let reduce = options.reduce.unwrap_or(Reduce::suits(&schema.rule));
    let sync = sync::membership(&job.sync, job.task_index, share.workers, push, reduce);
    let cache = cache::of_training(job, &schema, push, sync.mode)?;
    if damped && cache.is_some() {
        return Err(Failure::input(
            "--cache-bytes cannot be combined with damped replay, because only the servers know what a damped push \
             makes of a row: leave --cache-bytes out, or add --damping off",
        ));
    }
    if args.eviction.eviction()?.is_some() && cache.is_some() {
        return Err(Failure::input(
            "--cache-bytes cannot be combined with rows that die (--evict-after, --evict-below, --capacity), because only \
             the servers know which rows have died: leave --cache-bytes out",
        ));
    }
    Ok((options, sync, LrLearner { schema, damped, cache, wire }))
}

/// Learns logistic regression.
struct LrLearner {
    schema: Schema,
    /// Whether the servers damp changes by those of other workers.
    damped: bool,
    cache: Option<CacheConfig>,
    wire: WireType,
}

impl Learner for LrLearner {
    const BATCHES_PUSH_TO_ALL: bool = false;
    type Tables = RemoteBackend<Transports>;
    type Trained = Report;

    fn schemas(&self) -> Vec<Schema> {
        vec![if self.damped { self.schema.counting() } else { self.schema.clone() }]
    }

    fn shape_notes(&self) -> Vec<(&'static str, String)> {
        Shape::lr().notes()
    }

    fn open(
        &self,
        own: &JobWorker<'_>,
        worker: Worker<Transports>,
        run: Option<&InRun>,
    ) -> Result<RemoteBackend<Transports>, Failure> {
        let backend = if self.damped {
            RemoteBackend::open_damped(worker, &self.schema, DEPTH)
        } else {
            RemoteBackend::open(worker, &self.schema, DEPTH)
        };
        let mut backend = backend?;
        backend.set_wire_type(self.wire)?;
        if let Some(cache) = self.cache {
            backend.cache(Read::State, cache)?;
        }
        let table = backend.table();
        if let Some(run) = run
            && let Some(share) = fixed_share::begin(&own.args.job, run, backend.worker(), &[table])?
        {
            backend.train_share(share);
        }
        // A single asynchronous worker has nobody to keep step with.
        if own.sync.workers > 1 || own.sync.mode != SyncMode::Asp {
            backend.join(own.sync)?;
        }
        Ok(backend)
    }

    fn train(
        &mut self,
        own: &JobWorker<'_>,
        backend: &mut RemoteBackend<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
    ) -> Result<(Report, Validated), Failure> {
        let is_chief = || in_job.map_or(own.is_chief, InJob::is_chief);
        let (count_batches, end_job) =
            (|batches| run.trained(batches), || in_job.into_iter().for_each(InJob::train_no_more));
        let mut validator = Validator::new(own.results(), own.held_out.as_ref(), Objective::Click, &is_chief)
            .with_validation(own.options.validation.as_ref())
            .in_run(run.tag())
            .ends_job(&end_job)
            .on_step(&count_batches);
        let mut report_progress = |p: &Progress| {
            if let Some(in_job) = in_job {
                in_job.report_progress(p.examples, p.loss, p.seconds);
            }
        };
        let of = (own.display(), &own.metrics);
        let trained = lr::learn(&own.options, backend, &own.stop, of, &mut report_progress, &mut validator)?;
        Ok((trained, validator.end_of_worker()))
    }

    fn close<'t>(
        &self,
        backend: &'t mut RemoteBackend<Transports>,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure> {
        let table = backend.table();
        backend.leave()?;
        backend.worker().close_pusher(table)?;
        Ok((backend.worker(), table))
    }

    fn score(
        &mut self,
        backend: &mut RemoteBackend<Transports>,
        data: &Data,
    ) -> Result<Option<Measured>, Failure> {
        Ok(evaluate(data, backend)?.map(measured))
    }

    fn measure(
        &mut self,
        backend: &mut RemoteBackend<Transports>,
        trained: &mut Report,
        test: Option<Data>,
    ) -> Result<(), Failure> {
        let tested = test_at_end(test.as_ref(), &mut trained.stopped, |data| evaluate(data, backend));
        trained.test = tested?.map(measured);
        let stats = backend.stats()?;
        (trained.rows, trained.bytes) = (stats.rows, stats.bytes);
        Ok(())
    }

    fn report(
        &self,
        own: &JobWorker<'_>,
        backend: &mut RemoteBackend<Transports>,
        (trained, account): (&mut Report, &Account),
        validated: Validated,
    ) -> Result<(), Failure> {
        if !own.is_chief {
            warnings::warn_of_no_positive(trained.examples);
            own.results().report((trained, account), &[], &Validated::default());
            return Ok(());
        }
        lr::finish(own.results(), backend, trained, account, validated)
    }
}
