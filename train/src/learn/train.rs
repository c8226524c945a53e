//! Trains logistic regression: checks the options, runs the training loop, tests, and reports.

use crate::backend::Backend;
use crate::batch::batches::{Batches, OpenData, ReadPlan};
use crate::learn::evaluate::evaluate;
use crate::learn::gradient::{Gradients, Reduce};
use crate::learn::measures::Measured;
use crate::learn::options::Options;
use crate::learn::pending::{Pushing, test_at_end};
use crate::learn::push_content::PushContent;
use crate::learn::replay::Replay;
use crate::learn::report::{Progress, Report, StepObserver, TrainError, no_rows};
use crate::learn::training_loop::TrainingLoop;
use crate::learn::update_mode::UpdateMode;
use crate::limits::DEPTH_MAX;
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::reader::Reader;
use gannet_core::Schema;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Trains logistic regression. The table's rule and the content of pushes decide how it learns. It checks `stop`
/// between batches: when it is set, it pushes what it has learned and reports that the training was stopped.
/// ([`Data::stop`](crate::Data::stop) ends waits for the bytes of a pipe.)
///
/// # Errors
/// The data cannot be read, the table's rule or dimension does not fit, or the rows cannot be read or written.
pub fn train<B: Backend>(
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, TrainError> {
    train_watched(options, backend, stop, progress, &mut |_, _| ControlFlow::Continue(()))
}

/// [`train`], with an observer that is called after each step.
///
/// # Errors
/// As for [`train`].
pub fn train_watched<B: Backend>(
    options: &Options,
    backend: &mut B,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
    watch: &mut StepObserver<'_, B>,
) -> Result<Report, TrainError> {
    let schema = backend.schema().clone();
    let push = PushContent::choose(options.push, &schema)?;
    check(options)?;
    let depth = backend.depth().min(DEPTH_MAX);
    let in_place = push == PushContent::Replay && backend.in_place().is_some();
    let start = Instant::now();
    let source = options.splits.as_ref().map(|(source, _)| &**source);
    let opened = OpenData::new(&options.data, options.batch, options.share, source)?;
    let data_format = opened.format();
    Reader::check_test(options.test.as_ref(), &options.data, data_format.0)?;
    if let Some(begin) = &options.begin {
        no_rows(backend.stats()?.rows)?;
        begin.rows(0, &mut |keys, rows| backend.restore(keys, rows))?;
    }
    let plan = ReadPlan {
        // A gradient holds for the weights that the pull returned, so no own pushes are added to them.
        links: if push == PushContent::Replay { depth } else { 0 },
        in_place,
        skip: backend.batches_before(),
        ..ReadPlan::of(options, schema.shards)
    };
    let mode = update_mode(options, backend, &schema, push, in_place);
    let splits = options.splits.as_ref().map(|(source, _)| source.clone());
    let mut run = TrainingLoop::new(backend, mode, depth, start, splits, data_format);
    let mut batches = Batches::start(opened, plan, options.threads > 1, None)?;
    let learned = run.run(&mut batches, stop, options.progress_every, progress, watch);
    let (mut stopped, summary) = batches.close(learned)?;
    run.end()?;
    run.give_up();
    let wire = run.backend.counters();
    let seconds = start.elapsed().as_secs_f64();
    let evaluate =
        |data: &Data| Ok(evaluate(data, run.backend)?.map(|quality| Measured::Click(quality.into())));
    let test = test_at_end(options.test.as_ref(), &mut stopped, evaluate)?;
    let stats = run.backend.stats()?;
    let report = run.report(summary, push, seconds);
    let (progressive, last_loss) = run.sums.quality();
    Ok(Report {
        examples: run.sums.examples,
        steps: run.steps,
        progressive: progressive.map(|quality| Measured::Click(quality.into())),
        last_loss,
        test,
        rows: stats.rows,
        bytes: stats.bytes,
        repeated_keys: run.sums.merged,
        not_finite: report.not_finite + run.mode.not_finite(),
        wire,
        stopped,
        ..report
    })
}

/// Checks the number of epochs and of threads.
fn check(options: &Options) -> Result<(), ReadError> {
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch")?;
    }
    options.check_threads()?;
    if options.epochs == 0 {
        return Err(ReadError::Limit { what: "the number of epochs", value: 0, max: u32::MAX.into() });
    }
    Ok(())
}

/// How pulled rows become pushes.
fn update_mode<B: Backend>(
    options: &Options,
    backend: &B,
    schema: &Schema,
    push: PushContent,
    in_place: bool,
) -> UpdateMode {
    match (push, Replay::new(schema)) {
        _ if in_place => UpdateMode::InPlace,
        (PushContent::Replay, Some(replay)) => {
            let (planes, damped) = (schema.floats(), backend.is_damped());
            // Changes that are not applied yet are added to pulled rows, so rows as a whole need a pull that has all.
            let whole = backend.is_alone() && backend.depth() == 0;
            UpdateMode::Replay { replay, planes, damped, whole, changes: VecDeque::new() }
        }
        _ => UpdateMode::Gradient(Gradients::new(options.reduce.unwrap_or(Reduce::suits(&schema.rule)))),
    }
}
