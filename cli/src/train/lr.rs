//! `gannet train --model lr`: in this process, and what its workers share with that.

use crate::failure::Failure;
use crate::flags::TrainArgs;
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::lr::TABLE;
use crate::model::notes::Notes;
use crate::model::{lr, warm_start};
use crate::report::account::Account;
use crate::report::progress::ProgressDisplay;
use crate::report::warnings;
use crate::runs::begin::AGAIN_ALONE;
use crate::runs::settings::of_run;
use crate::signals;
use crate::train::ending::{Results, Validated};
use crate::train::follow;
use crate::train::in_store::train_in_store;
use crate::train::options::{options, preflight, schema};
use crate::train::trained::Trained;
use crate::train::validation::Validator;
use gannet::job::PlanFile;
use gannet::table::Admission;
use gannet::train::models::Objective;
use gannet::train::saved::Shape;
use gannet::train::{
    Backend, Embedded, FlatTable, Options, Progress, Report, Share, StepReport, train_watched,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    let (job, out, warm) = (&args.job, args.output.out.as_deref(), args.lbfgs.warm_start.as_deref());
    let schema = schema(&args.optimizer, &args.admission, &job.table)?;
    let mut options = options(args, Share::ALL, true)?;
    preflight(out, &options, &schema)?;
    options.begin = warm_start::begin(warm, std::slice::from_ref(&schema), &Shape::lr())?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    follow::train_alone(&args.data, &job.tasks, &mut options, &metrics)?;
    let results = Results::of(args);
    let display = ProgressDisplay::of(job, args.output.json);
    let eviction = args.eviction.eviction()?;
    let in_shards = job.data_dir.is_some() || schema.admission != Admission::All || eviction.is_some();
    match in_shards {
        // Rows that must survive the process, need admission, or may die, are in shards. Otherwise a table for one
        // process is faster.
        true => {
            let settings = |files: &[PlanFile], options: &Options| of_run(args, files, Some(options));
            let (own, tables) = ((job, &args.memory), (&[TABLE][..], AGAIN_ALONE));
            train_in_store(own, &metrics, options, settings, tables, |store, options, run, account| {
                let mut backend = Embedded::open_in(run, &store, &schema, (1, 1))?;
                eviction.map_or(Ok(()), |eviction| backend.evict(eviction))?;
                let of = (display, &metrics);
                let trained = train_and_save(results, options, &mut backend, &stop, of, account)?;
                backend.close()?;
                Ok(trained)
            })
        }
        false => {
            let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
            let mut backend = FlatTable::within(&schema, limit)?;
            let account = Account::default();
            let of = (display, &metrics);
            let trained = train_and_save(results, &options, &mut backend, &stop, of, &account)?;
            trained.ended_alone()
        }
    }
}

fn train_and_save<B: Backend>(
    results: Results<'_>,
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    of: (ProgressDisplay, &Metrics),
    account: &Account,
) -> Result<Report, Failure> {
    let mut validator = Validator::new(results, options.test.as_ref(), Objective::Click, &|| true)
        .with_validation(options.validation.as_ref());
    let mut trained = learn(options, backend, stop, of, &mut |_| {}, &mut validator)?;
    let validated = validator.end(&mut &mut *backend, &mut trained)?;
    finish(results, backend, &trained, account, validated)?;
    Ok(trained)
}

/// Trains with a progress display.
pub fn learn<B: Backend>(
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    (mut display, metrics): (ProgressDisplay, &Metrics),
    on_progress: &mut dyn FnMut(&Progress),
    validator: &mut Validator<'_>,
) -> Result<Report, Failure> {
    let training = Arc::new(Training::new(true));
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let mut progress = |p: &Progress| {
        training.progress(p);
        display.update_lr(p, options.epochs);
        on_progress(p);
    };
    let mut watch = |step: &StepReport<'_>, mut backend: &mut B| validator.step(step, &mut backend);
    let trained = train_watched(options, backend, stop, &mut progress, &mut watch);
    display.finish();
    validator.failed()?;
    let trained = trained?;
    training.finish(&trained, options.epochs);
    warnings::warn_of_bad_lines(&trained.bad_lines);
    warnings::warn_of_crosses(options);
    Ok(trained)
}

/// Saves the model and prints the report.
pub fn finish<B: Backend>(
    results: Results<'_>,
    backend: &mut B,
    trained: &Report,
    account: &Account,
    validated: Validated,
) -> Result<(), Failure> {
    let save = |folder: &Path, notes: &Notes<'_>| lr::save_lr(folder, backend, notes);
    results.save_and_report((trained, account), save, || Ok(Vec::new()), validated)
}
