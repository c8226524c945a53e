//! `gannet train --model` of any model but logistic regression, in this process.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::metrics::Metrics;
use crate::model::kinds::schemas_of;
use crate::model::shape::Shape;
use crate::model::warm_start;
use crate::report::account::Account;
use crate::signals;
use crate::train::ending::ended_early;
use crate::train::in_store::train_in_store;
use crate::train::models::learn::{finish, learn};
use crate::train::models::plan::{model, options_of, preflight};
use crate::train::models::topics;
use crate::train::validation::Validator;
use gannet::table::Admission;
use gannet::train::models::{Model, push_of};
use gannet::train::{FlatTables, LocalTables, Options, PushContent, Report, Share, Tables};
use std::sync::atomic::AtomicBool;

/// Trains in this process.
pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    if args.model.model == ModelName::Lda {
        return topics::embedded(args);
    }
    let (mut model, shape) = model(args)?;
    let mut options = options_of(args, &*model, Share::ALL, true)?;
    preflight(args, &options, &*model)?;
    options.begin = warm_start::begin(args, &schemas_of(&*model), &shape)?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    let push = push_of(&options, &*model)?;
    // Rows that must survive the process, or need admission, and gradients are for shards. Otherwise tables for one
    // process are faster.
    let is_flat = args.job.data_dir.is_none() && model.sparse().admission == Admission::All;
    if is_flat && push == PushContent::Replay {
        let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
        let mut tables = FlatTables::within(limit);
        let account = Account::default();
        let fitted =
            train_in(args, &options, (&mut *model, &shape), &mut tables, (&stop, &metrics), &account)?;
        return ended_early(fitted.stopped, fitted.examples);
    }
    let schemas = schemas_of(&*model);
    let names: Vec<&str> = schemas.iter().map(|schema| schema.name.as_str()).collect();
    train_in_store(args, &metrics, options, (&names, true), |store, options, run, account| {
        // Each training from the model of the one before has push names of its own, by which its steps are rounded.
        let tables = LocalTables::of_run(store, run.cloned(), 1);
        let mut tables = tables.with_incarnation(1 + shape.generation);
        let fitted = train_in(args, options, (&mut *model, &shape), &mut tables, (&stop, &metrics), account)?;
        tables.close()?;
        Ok(fitted)
    })
}

/// Trains in these tables of this process, saves the model and prints the report.
fn train_in<T: Tables>(
    args: &TrainArgs,
    options: &Options,
    (model, shape): (&mut dyn Model, &Shape),
    tables: &mut T,
    (stop, metrics): (&AtomicBool, &Metrics),
    account: &Account,
) -> Result<Report, Failure> {
    let mut validator = Validator::new(args, options.test.as_ref(), model.task(), &|| true);
    let trained = learn(options, (&mut *model, shape), tables, stop, (args, metrics, None), &mut validator)?;
    finish(args, shape, model, tables, (&trained, account), validator.into_validations())?;
    Ok(trained)
}
