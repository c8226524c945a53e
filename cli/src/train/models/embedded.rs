//! `gannet train --model` of any model but logistic regression, in this process.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::metrics::Metrics;
use crate::model::warm_start;
use crate::report::account::Account;
use crate::report::progress::ProgressDisplay;
use crate::runs::begin::AGAIN_ALONE;
use crate::runs::settings::of_run;
use crate::signals;
use crate::train::ending::Results;
use crate::train::follow;
use crate::train::in_store::train_in_store;
use crate::train::models::learn::{InTables, finish, learn};
use crate::train::models::plan::{PlannedModel, model, preflight};
use crate::train::models::topics::{documents, sample_alone, topic_model};
use crate::train::options::options;
use crate::train::tasks::InJob;
use crate::train::trained::Trained;
use crate::train::validation::Validator;
use gannet::job::PlanFile;
use gannet::table::Admission;
use gannet::train::models::push_of;
use gannet::train::saved::schemas_of;
use gannet::train::{FlatTables, LocalTables, Options, PushContent, Report, Share, Tables};
use std::sync::atomic::AtomicBool;

/// Trains in this process.
pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let (job, out, warm) = (&args.job, args.output.out.as_deref(), args.lbfgs.warm_start.as_deref());
    let display = ProgressDisplay::of(job, args.output.json);
    let (own, results) = ((job, &args.memory), Results::of(args));
    let settings = |files: &[PlanFile], options: &Options| of_run(args, files, Some(options));
    if args.model.model == ModelName::Lda {
        let topics = topic_model(&args.model)?;
        let options = documents(options(args, Share::ALL, false)?)?;
        topics.preflight(out)?;
        let metrics = Metrics::start(&args.metrics, "train")?;
        return sample_alone(own, options, settings, &topics, results, (display, &metrics));
    }
    let rows = (args.row_type, &args.admission);
    let mut options = options(args, Share::ALL, true)?;
    let mut planned = model(&args.model, &args.optimizer, rows, warm, (&job.sync, &options.data))?;
    preflight(out, &options, &*planned.model)?;
    options.begin = warm_start::begin(warm, &schemas_of(&*planned.model), &planned.shape)?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    follow::train_alone(&args.data, &job.tasks, &mut options, &metrics)?;
    let push = push_of(&options, &*planned.model)?;
    let eviction = args.eviction.eviction()?;
    // Rows that must survive the process, need admission, or may die, and gradients are for shards. Otherwise tables
    // for one process are faster.
    let is_flat =
        job.data_dir.is_none() && planned.model.sparse().admission == Admission::All && eviction.is_none();
    if is_flat && push == PushContent::Replay {
        let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
        let mut tables = FlatTables::within(limit);
        let account = Account::default();
        let of = (display, &metrics, None);
        let fitted = train_in(results, &options, &mut planned, &mut tables, &stop, of, &account)?;
        return fitted.ended_alone();
    }
    let schemas = schemas_of(&*planned.model);
    let names: Vec<&str> = schemas.iter().map(|schema| schema.name.as_str()).collect();
    train_in_store(own, &metrics, options, settings, (&names, AGAIN_ALONE), |store, options, run, account| {
        // Each training from the model of the one before has push names of its own, by which its steps are rounded.
        let tables = LocalTables::of_run(store, run.cloned(), 1);
        let mut tables = tables.with_incarnation(1 + planned.shape.generation);
        if let Some(eviction) = eviction {
            tables = tables.evicting(&planned.model.sparse().name, eviction);
        }
        planned.take_fields(&options.data)?;
        let of = (display, &metrics, None);
        let fitted = train_in(results, options, &mut planned, &mut tables, &stop, of, account)?;
        tables.close()?;
        Ok(fitted)
    })
}

/// Trains in these tables of this process, saves the model and prints the report.
fn train_in<T: Tables>(
    results: Results<'_>,
    options: &Options,
    planned: &mut PlannedModel,
    tables: &mut T,
    stop: &AtomicBool,
    of: (ProgressDisplay, &Metrics, Option<&InJob>),
    account: &Account,
) -> Result<Report, Failure> {
    let (model, shape) = (&mut *planned.model, &planned.shape);
    let mut validator = Validator::new(results, options.test.as_ref(), model.task(), &|| true)
        .with_validation(options.validation.as_ref());
    let mut trained = learn(options, (&mut *model, shape), tables, stop, of, &mut validator)?;
    let validated = validator.end(&mut InTables { model, shape, tables }, &mut trained)?;
    finish(results, shape, model, tables, (&trained, account), validated)?;
    Ok(trained)
}
