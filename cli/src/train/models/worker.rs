//! A worker of a job that trains a model other than logistic regression.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::job::{check, wire};
use crate::model::kinds::schemas_of;
use crate::model::shape::Shape;
use crate::report::account::Account;
use crate::report::models;
use crate::report::training::print_report;
use crate::report::warnings::warn_of_no_positive;
use crate::runs::fixed_share;
use crate::runs::in_run::InRun;
use crate::train::models::learn::{finish, learn};
use crate::train::models::plan::{keep_step, membership, model, options_of, preflight};
use crate::train::models::topics;
use crate::train::tasks::InJob;
use crate::train::validation::Validator;
use crate::train::worker::{JobWorker, Learner, may_test, share};
use gannet::table::TableId;
use gannet::train::models::{Model, push_of, score, sizes};
use gannet::train::{Data, Reduce, RemoteTables, Report, test_at_end};
use gannet::worker::WireType;
use gannet::{Schema, Transports, Worker};
use serde_json::Value;

/// Trains as a worker of a job.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    let job = &args.job;
    check::check_job(job)?;
    if args.model.model == ModelName::Lda {
        return topics::worker(args);
    }
    let (model, shape) = model(args)?;
    let is_chief = job.task_index == 0;
    let mut options = options_of(args, &*model, share(args), may_test(args, is_chief))?;
    let push = push_of(&options, &*model)?;
    options.push = Some(push);
    let wire = wire::of_training(job, push)?;
    let reduce = options.reduce.unwrap_or(Reduce::suits(&model.sparse().rule));
    let sync = membership(job, model.name(), 1 + model.dense().len(), push, reduce)?;
    if is_chief {
        preflight(args, &options, &*model)?;
    }
    JobWorker::new(args, options, sync, is_chief)?.run(ModelLearner { model, shape, wire }, None)
}

/// Learns a model of tables.
struct ModelLearner {
    model: Box<dyn Model>,
    shape: Shape,
    wire: WireType,
}

impl Learner for ModelLearner {
    const BATCHES_PUSH_TO_ALL: bool = true;
    type Tables = RemoteTables<Transports>;
    type Trained = Report;

    fn schemas(&self) -> Vec<Schema> {
        schemas_of(&*self.model)
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
            if let Some(share) = fixed_share::begin(own.args, run, worker, &ids)? {
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
    ) -> Result<(Report, Option<Vec<Value>>), Failure> {
        let is_chief = || in_job.map_or(own.is_chief, InJob::is_chief);
        let count_batches = |batches| run.trained(batches);
        let mut validator = Validator::new(own.args, own.held_out.as_ref(), self.model.task(), &is_chief)
            .on_step(&count_batches);
        let of = (own.args, &own.metrics, in_job);
        let model: &mut dyn Model = &mut *self.model;
        let trained = learn(&own.options, (model, &self.shape), tables, &own.stop, of, &mut validator)?;
        Ok((trained, validator.into_validations()))
    }

    fn close<'t>(
        &self,
        tables: &'t mut RemoteTables<Transports>,
    ) -> Result<(&'t mut Worker<Transports>, TableId), Failure> {
        tables.close_pusher()?;
        let table = tables.id(0);
        Ok((tables.worker(), table))
    }

    fn measure(
        &mut self,
        tables: &mut RemoteTables<Transports>,
        trained: &mut Report,
        test: Option<Data>,
    ) -> Result<(), Failure> {
        let model = &mut *self.model;
        trained.test = test_at_end(test.as_ref(), &mut trained.stopped, |data| score(data, model, tables))?;
        (trained.rows, trained.bytes) = sizes(model, tables)?;
        Ok(())
    }

    fn report(
        &self,
        own: &JobWorker<'_>,
        tables: &mut RemoteTables<Transports>,
        (trained, account): (&mut Report, &Account),
        validations: Option<Vec<Value>>,
    ) -> Result<(), Failure> {
        let (args, model) = (own.args, &*self.model);
        if !own.is_chief {
            warn_of_no_positive(trained.examples);
            print_report(args, (trained, account), &models::weights(model, tables, trained)?, None);
            return Ok(());
        }
        finish(args, &self.shape, model, tables, (trained, account), validations)
    }
}
