//! `gannet train --model lr`: in this process, and what its workers share with that.

use crate::failure::Failure;
use crate::flags::TrainArgs;
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::lr::TABLE;
use crate::model::notes::Notes;
use crate::model::shape::Shape;
use crate::model::{lr, warm_start};
use crate::report::account::Account;
use crate::report::progress::ProgressDisplay;
use crate::report::warnings;
use crate::signals;
use crate::train::ending::{ended_early, save_and_report};
use crate::train::in_store::train_in_store;
use crate::train::options::{options, preflight, schema};
use crate::train::validation::Validator;
use gannet::table::Admission;
use gannet::train::models::Objective;
use gannet::train::{
    Backend, Embedded, FlatTable, Options, Progress, Report, Share, StepReport, train_watched,
};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let schema = schema(args)?;
    let mut options = options(args, Share::ALL, true)?;
    preflight(args, &options, &schema)?;
    options.begin = warm_start::begin(args, std::slice::from_ref(&schema), &Shape::lr())?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    let in_shards = args.job.data_dir.is_some() || schema.admission != Admission::All;
    match in_shards {
        // Rows that must survive the process, or need admission, are in shards. Otherwise a table for one process is
        // faster.
        true => train_in_store(args, &metrics, options, (&[TABLE], true), |store, options, run, account| {
            let mut backend = Embedded::open_in(run, &store, &schema, (1, 1))?;
            let trained = train_and_save(args, options, &mut backend, (&stop, &metrics), account)?;
            backend.close()?;
            Ok(trained)
        }),
        false => {
            let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
            let mut backend = FlatTable::within(&schema, limit)?;
            let account = Account::default();
            let trained = train_and_save(args, &options, &mut backend, (&stop, &metrics), &account)?;
            ended_early(trained.stopped, trained.examples)
        }
    }
}

fn train_and_save<B: Backend>(
    args: &TrainArgs,
    options: &Options,
    backend: &mut B,
    (stop, metrics): (&AtomicBool, &Metrics),
    account: &Account,
) -> Result<Report, Failure> {
    let mut validator = Validator::new(args, options.test.as_ref(), Objective::Click, &|| true);
    let trained = learn(options, backend, stop, (args, metrics), &mut |_| {}, &mut validator)?;
    finish(args, backend, &trained, account, validator.into_validations())?;
    Ok(trained)
}

/// Trains with a progress display.
pub fn learn<B: Backend>(
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    (args, metrics): (&TrainArgs, &Metrics),
    on_progress: &mut dyn FnMut(&Progress),
    validator: &mut Validator<'_>,
) -> Result<Report, Failure> {
    let mut display = ProgressDisplay::of(args);
    let training = Arc::new(Training::new(true));
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let mut progress = |p: &Progress| {
        training.progress(p);
        display.update_lr(p, args.epochs);
        on_progress(p);
    };
    let mut watch = |step: &StepReport<'_>, mut backend: &mut B| validator.step(step, &mut backend);
    let trained = train_watched(options, backend, stop, &mut progress, &mut watch);
    display.finish();
    validator.failed()?;
    let trained = trained?;
    training.finish(&trained, args.epochs);
    warnings::warn_of_bad_lines(&trained.bad_lines);
    Ok(trained)
}

/// Saves the model and prints the report.
pub fn finish<B: Backend>(
    args: &TrainArgs,
    backend: &mut B,
    trained: &Report,
    account: &Account,
    validations: Option<Vec<Value>>,
) -> Result<(), Failure> {
    let save = |folder: &Path, notes: &Notes<'_>| lr::save_lr(folder, backend, notes);
    save_and_report(args, (trained, account), save, || Ok(Vec::new()), validations)
}
