//! A worker of a job that trains a model other than logistic regression.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::job::check::check_job;
use crate::job::{sync, wire};
use crate::model::warm_start;
use crate::report::account::Account;
use crate::report::models;
use crate::report::warnings::warn_of_no_positive;
use crate::runs::fixed_share;
use crate::runs::in_run::InRun;
use crate::train::ending::Validated;
use crate::train::models::learn::{finish, learn};
use crate::train::models::plan::{PlannedModel, keep_step, membership, model, preflight};
use crate::train::models::topics::{TopicModel, documents, topic_model};
use crate::train::options::options;
use crate::train::tasks::InJob;
use crate::train::validation::Validator;
use crate::train::worker::{JobWorker, Learner, may_test, share};
use gannet::sync::SyncConfig;
use gannet::table::TableId;
use gannet::train::models::{Measured, push_of, score, sizes};
use gannet::train::saved::schemas_of;
use gannet::train::{Data, Options, PushContent, Reduce, RemoteTables, Report, test_at_end};
use gannet::worker::WireType;
use gannet::{Schema, Transports, Worker};

/// Trains as a worker of a job.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    let is_chief = args.job.task_index == 0;
    if args.model.model == ModelName::Lda {
        let (options, sync, topics) = planned_topics(args)?;
        return JobWorker::new(args, options, sync, is_chief)?.run(topics, None);
    }
    let (options, sync, learner) = planned(args)?;
    JobWorker::new(args, options, sync, is_chief)?.run(learner, None)
}

/// The checks of a worker before it connects.
pub fn check(args: &TrainArgs) -> Result<(), Failure> {
    match args.model.model {
        ModelName::Lda => planned_topics(args).map(drop),
        _ => planned(args).map(drop),
    }
}

/// What a worker learns that samples topics, and how it keeps step, as its flags and its data say.
fn planned_topics(args: &TrainArgs) -> Result<(Options, SyncConfig, TopicModel), Failure> {
    let job = &args.job;
    check_job(job)?;
    let topics = topic_model(&args.model)?;
    let options = documents(options(args, share(job), false)?)?;
    // The servers add up the workers' counts.
    let sync = membership(job, "lda", 2, PushContent::Gradient, Reduce::Sum)?;
    if job.task_index == 0 {
        topics.preflight(args.output.out.as_deref())?;
    }
    Ok((options, sync, topics))
}

/// What a worker learns, and how it keeps step, as its flags, its data and the model from which it starts say.
fn planned(args: &TrainArgs) -> Result<(Options, SyncConfig, ModelLearner), Failure> {
    let job = &args.job;
    check_job(job)?;
    let is_chief = job.task_index == 0;
    let (rows, warm) = ((args.row_type, &args.admission), args.lbfgs.warm_start.as_deref());
    let mut options = options(args, share(job), may_test(job, is_chief))?;
    let planned = model(&args.model, &args.optimizer, rows, warm, (&job.sync, &options.data))?;
    let model = &*planned.model;
    options.push = options.push.or(sync::push_of_many(job));
    let push = push_of(&options, model)?;
    options.push = Some(push);
    options.begin = warm_start::begin(warm, &schemas_of(model), &planned.shape)?;
    let wire = wire::of_training(job, push)?;
    let reduce = options.reduce.unwrap_or(Reduce::suits(&model.sparse().rule));
    let sync = membership(job, model.name(), 1 + model.dense().len(), push, reduce)?;
    if is_chief {
        preflight(args.output.out.as_deref(), &options, model)?;
    }
    args.eviction.eviction()?;
    Ok((options, sync, ModelLearner { planned, wire }))
}

/// Learns a model of tables.
struct ModelLearner {
    planned: PlannedModel,
    wire: WireType,
}

impl Learner for ModelLearner {
    const BATCHES_PUSH_TO_ALL: bool = true;
    type Tables = RemoteTables<Transports>;
    type Trained = Report;

    fn schemas(&self) -> Vec<Schema> {
        schemas_of(&*self.planned.model)
    }

    fn shape_notes(&self) -> Vec<(&'static str, String)> {
        self.planned.shape.notes()
    }

    fn take_fields(&mut self, data: &Data) -> Result<(), Failure> {
        self.planned.take_fields(data)
    }

    fn open(
        &self,
        own: &JobWorker<'_>,
        worker: Worker<Transports>,
        run: Option<&InRun>,
    ) -> Result<RemoteTables<Transports>, Failure> {
        let mut tables = RemoteTables::new(worker);
        keep_step(&mut tables, own.sync);
        tables.set_wire_type(self.wire);
        if let Some(run) = run {
            let worker = tables.worker();
            let schemas = self.schemas();
            let ids =
                schemas.iter().map(|schema| worker.open_table(schema)).collect::<Result<Vec<_>, _>>()?;
            if let Some(share) = fixed_share::begin(&own.args.job, run, worker, &ids)? {
                tables.train_share(share);
            }
        }
        Ok(tables)
    }

    fn train(
        &mut self,
        own: &JobWorker<'_>,
        tables: &mut RemoteTables<Transports>,
        run: &InRun,
        in_job: Option<&InJob>,
    ) -> Result<(Report, Validated), Failure> {
        let is_chief = || in_job.map_or(own.is_chief, InJob::is_chief);
        let (count_batches, end_job) =
            (|batches| run.trained(batches), || in_job.into_iter().for_each(InJob::train_no_more));
        let mut validator =
            Validator::new(own.results(), own.held_out.as_ref(), self.planned.model.task(), &is_chief)
                .with_validation(own.options.validation.as_ref())
                .in_run(run.tag())
                .ends_job(&end_job)
                .on_step(&count_batches);
        let of = (own.display(), &own.metrics, in_job);
        let PlannedModel { model, shape, .. } = &mut self.planned;
        let trained = learn(&own.options, (&mut **model, shape), tables, &own.stop, of, &mut validator)?;
        Ok((trained, validator.end_of_worker()))
    }

    fn close<'t>(
        &self,
        tables: &'t mut RemoteTables<Transports>,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure> {
        tables.close_pusher()?;
        let table = tables.id(0);
        Ok((tables.worker(), table))
    }

    fn score(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        data: &Data,
    ) -> Result<Option<Measured>, Failure> {
        Ok(score(data, &mut *self.planned.model, tables)?)
    }

    fn measure(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        trained: &mut Report,
        test: Option<Data>,
    ) -> Result<(), Failure> {
        let model = &mut *self.planned.model;
        trained.test = test_at_end(test.as_ref(), &mut trained.stopped, |data| score(data, model, tables))?;
        (trained.rows, trained.bytes) = sizes(model, tables)?;
        Ok(())
    }

    fn report(
        &self,
        own: &JobWorker<'_>,
        tables: &mut RemoteTables<Transports>,
        (trained, account): (&mut Report, &Account),
        validated: Validated,
    ) -> Result<(), Failure> {
        let (results, model) = (own.results(), &*self.planned.model);
        if !own.is_chief {
            warn_of_no_positive(trained.examples);
            results.report(
                (trained, account),
                &models::weights(model, tables, trained)?,
                &Validated::default(),
            );
            return Ok(());
        }
        finish(results, &self.planned.shape, model, tables, (trained, account), validated)
    }
}
