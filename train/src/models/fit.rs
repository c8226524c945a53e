//! The training loop of the models. For each batch, this thread pulls the rows of all tables together, learns the
//! examples one by one, and pushes.

use super::{BatchRows, BatchStep, Example, Fitted, Fitting, Measured, Measures, Model, Objective};
use crate::backend::BackendError;
use crate::backend::tables::{TableIndex, Tables};
use crate::batch::batches::{Batches, OpenData, ReadPlan, ReadSummary};
use crate::batch::first::await_first;
use crate::batch::{Batch, BatchKeys, InSplit};
use crate::learn::gradient::Reduce;
use crate::learn::options::Options;
use crate::learn::push_content::PushContent;
use crate::learn::report::{StepReport, TrainError, no_rows};
use crate::limits::REST_AFTER;
use crate::models::score;
use crate::read::error::ReadError;
use crate::read::reader::Reader;
use crate::read::splits::split::{Splits, report_done};
use gannet_optim::Rule;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Trains `model` with rows in `tables`. It opens the model's tables there, in the model's order, from table 0 on. It
/// checks `stop` between batches.
///
/// # Errors
/// The data cannot be read or is not of the model's shape, the rule does not fit, or the rows cannot be read.
///
/// # Panics
/// When `tables` has open tables of another model.
pub fn fit<T: Tables>(
    options: &Options,
    model: &mut dyn Model,
    tables: &mut T,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Fitting),
) -> Result<Fitted, TrainError> {
    fit_watched(options, model, tables, stop, progress, &mut |_, _, _| ControlFlow::Continue(()))
}

/// Called after each step, with the model and its tables. `Break` ends the training like the stop flag.
pub type FitWatch<'w, T> = dyn FnMut(&StepReport<'_>, &mut dyn Model, &mut T) -> ControlFlow<()> + 'w;

/// [`fit`], with an observer that is called after each step.
///
/// # Errors
/// As for [`fit`].
///
/// # Panics
/// As [`fit`].
pub fn fit_watched<T: Tables>(
    options: &Options,
    model: &mut dyn Model,
    tables: &mut T,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Fitting),
    watch: &mut FitWatch<'_, T>,
) -> Result<Fitted, TrainError> {
    options.check_threads()?;
    let push = push_of(options, model)?;
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch")?;
    }
    let start = Instant::now();
    let reader = Reader::open(&options.data, options.batch, options.share)?;
    let (format, columns) = (reader.format(), reader.columns().cloned());
    Reader::check_test(options.test.as_ref(), &options.data, format)?;
    let mut learner = ModelLearner::new(options, model, tables, push)?;
    let skip = learner.tables.batches_before();
    let plan = ReadPlan { skip, ..ReadPlan::of(options, learner.model.sparse().shards) };
    let preparer = learner.tables.preparer(0)?;
    let opened = OpenData::Reader(Box::new(reader));
    let mut batches = Batches::start(opened, plan, options.threads > 1, preparer)?;
    let mut watched = |learner: &mut ModelLearner<'_, T>| {
        let (number, (mass, loss)) = (learner.steps, learner.sums());
        let step = StepReport { number, mass, loss, format, columns: columns.as_ref() };
        watch(&step, learner.model, learner.tables)
    };
    let learned = learner.run(&mut batches, stop, start, options, progress, &mut watched);
    let mut stopped = match learned {
        Ok(stopped) => stopped,
        Err(error) => {
            batches.abandon();
            return Err(error);
        }
    };
    let summary = batches.finish()?;
    // The worker must settle late pushes before it leaves, because a worker that has left gets no report of them.
    learner.settle()?;
    learner.tables.drain()?;
    learner.count_late();
    learner.tables.leave()?;
    learner.give_up();
    let seconds = start.elapsed().as_secs_f64();
    let test = score_test(options, &mut learner, &mut stopped)?;
    let fitted = learner.fitted(summary, seconds, push)?;
    Ok(Fitted { test, stopped, ..fitted })
}

/// The quality on the test set, if there is one and the training was not stopped.
fn score_test<T: Tables>(
    options: &Options,
    learner: &mut ModelLearner<'_, T>,
    stopped: &mut bool,
) -> Result<Option<Measured>, TrainError> {
    match &options.test {
        Some(data) if !*stopped => match score(data, learner.model, learner.tables) {
            // A signal that ends the wait for the test set does not discard what was learned.
            Err(TrainError::Read(ReadError::Stopped { .. })) => {
                *stopped = true;
                Ok(None)
            }
            tested => tested,
        },
        _ => Ok(None),
    }
}

/// Rows and bytes of a model's tables.
///
/// # Errors
/// The servers are lost.
pub(crate) fn sizes<T: Tables>(model: &dyn Model, tables: &mut T) -> Result<(u64, u64), BackendError> {
    (0..=model.dense().len()).try_fold((0, 0), |(rows, bytes), table| {
        let stats = tables.stats(table)?;
        Ok((rows + stats.rows, bytes + stats.bytes))
    })
}

/// The content of pushes to the model's tables.
///
/// # Errors
/// The options request a content that the model's rule does not support.
pub fn push_of(options: &Options, model: &dyn Model) -> Result<PushContent, BackendError> {
    let schema = model.sparse();
    if matches!(schema.rule, Rule::Add(_)) {
        let name = model.name();
        return Err(BackendError::Schema(format!("model {name}: rule add does not learn; choose another")));
    }
    let replays = schema.replays() && model.dense().iter().all(|(schema, _)| schema.replays());
    let push = PushContent::of_rows(options.push, &schema, replays)?;
    if push == PushContent::Replay && options.reduce.is_some() {
        let what = "--reduce says what becomes of gradients; it needs --push gradient";
        return Err(BackendError::Schema(what.to_owned()));
    }
    Ok(push)
}

struct ModelLearner<'a, T> {
    model: &'a mut dyn Model,
    tables: &'a mut T,
    task: Objective,
    /// The rows of the batch, then those of the dense tables.
    rows: Vec<BatchRows>,
    /// The keys of the dense tables.
    dense: Vec<Vec<u64>>,
    /// Measures of the first pass and, when there are more, of the current pass.
    passes: Vec<Measures>,
    /// Sums of importance and losses over the passes between those two.
    between: (f64, f64),
    epoch: u32,
    examples: u64,
    steps: u64,
    not_finite: u64,
    /// The number of examples of each push, and the numbers of late pushes that are not counted yet.
    pushed: Vec<u32>,
    late: Vec<u64>,
    late_examples: u64,
    /// The source of splits, and the position of the last batch that was pushed.
    splits: Option<Arc<dyn Splits>>,
    place: Option<InSplit>,
    /// That batch, as long as its synchronous step may be applied without it.
    unsettled: Option<Batch>,
}

impl<'a, T: Tables> ModelLearner<'a, T> {
    fn new(
        options: &Options,
        model: &'a mut dyn Model,
        tables: &'a mut T,
        push: PushContent,
    ) -> Result<Self, BackendError> {
        let (sparse, dense, task) = (model.sparse(), model.dense(), model.task());
        let mut rows = Vec::new();
        for (number, schema) in [&sparse].into_iter().chain(dense.iter().map(|d| &d.0)).enumerate() {
            let table: TableIndex = tables.open(schema)?;
            assert_eq!(table, number, "the model's tables are the first");
            let reduce = options.reduce.unwrap_or(Reduce::suits(&schema.rule));
            rows.push(BatchRows::new(table, schema, push, reduce));
        }
        for table in options.begin.iter().flat_map(|begin| (0..=dense.len()).map(move |table| (begin, table)))
        {
            let (begin, table) = table;
            no_rows(tables.stats(table)?.rows)?;
            begin.rows(table, &mut |keys, rows| tables.restore(table, keys, rows))?;
        }
        tables.join()?;
        Ok(ModelLearner {
            model,
            tables,
            task,
            rows,
            dense: dense.iter().map(|&(_, rows)| (0..rows).collect()).collect(),
            passes: vec![Measures::new(task, false)],
            between: (0.0, 0.0),
            epoch: 0,
            examples: 0,
            steps: 0,
            not_finite: 0,
            pushed: Vec::new(),
            late: Vec::new(),
            late_examples: 0,
            splits: options.splits.as_ref().map(|(source, _)| source.clone()),
            place: None,
            unsettled: None,
        })
    }

    /// Learns until the data ends or `stop` is set. Returns true when it was stopped.
    fn run(
        &mut self,
        batches: &mut Batches,
        stop: &AtomicBool,
        start: Instant,
        options: &Options,
        progress: &mut dyn FnMut(&Fitting),
        watched: &mut dyn FnMut(&mut Self) -> ControlFlow<()>,
    ) -> Result<bool, TrainError> {
        let mut reported = start;
        while !stop.load(Relaxed) {
            let Some(batch) = self.next(batches)? else { return Ok(stop.load(Relaxed)) };
            match batch.split.filter(|split| split.end.is_some()) {
                Some(split) => self.end_split(&split)?,
                None => {
                    self.step(&batch)?;
                    if watched(self).is_break() {
                        break;
                    }
                }
            }
            if reported.elapsed() >= options.progress_every {
                reported = Instant::now();
                progress(&self.fitting(&batch, start));
            }
            if let Some(spare) = self.keep(batch) {
                batches.recycle(spare);
            }
        }
        Ok(true)
    }

    /// The next batch. While other workers have all that is left of the data, no worker waits for this one.
    fn next(&mut self, batches: &mut Batches) -> Result<Option<Batch>, TrainError> {
        if self.splits.is_none() {
            if self.steps == 0 && self.tables.batches_before() > 0 {
                return Ok(await_first(batches, || self.tables.stay_in_touch())?);
            }
            return Ok(batches.next());
        }
        let mut rests = false;
        loop {
            match batches.next_within(REST_AFTER) {
                Ok(batch) => {
                    if rests && batch.is_some() {
                        self.tables.resume()?;
                    }
                    return Ok(batch);
                }
                Err(_) if !rests => {
                    rests = true;
                    // A worker that has left gets no report of late pushes.
                    self.settle()?;
                    self.tables.rest()?;
                }
                Err(_) => {}
            }
        }
    }

    /// Ends a split that is learned completely. The servers may forget its pushes only when no worker can get it
    /// again.
    fn end_split(&mut self, split: &InSplit) -> Result<(), TrainError> {
        self.settle()?;
        self.tables.drain()?;
        self.place = None;
        if let (Some(splits), Some(examples)) = (&self.splits, split.end) {
            let tables = &mut self.tables;
            report_done::<TrainError, _>(&**splits, (split.index, examples), || tables.stay_in_touch())?;
        }
        Ok(self.tables.forget_split(split)?)
    }

    /// Reports the last pushed batch of the current split, so that another worker can continue the split. Every push
    /// must have been acknowledged.
    fn give_up(&mut self) {
        if let (Some(splits), Some(split)) = (&self.splits, self.place) {
            splits.acked(split.index, split.seq);
        }
    }

    /// Learns a batch: pulls its rows, learns its examples and pushes.
    fn step(&mut self, batch: &Batch) -> Result<(), TrainError> {
        if batch.epoch != self.epoch {
            self.epoch = batch.epoch;
            if let Some(pass) = self.passes.drain(1..).next() {
                let (mass, loss) = pass.sums();
                self.between = (self.between.0 + mass, self.between.1 + loss);
            }
            self.passes.push(Measures::new(self.task, false));
        }
        self.pull(batch)?;
        if self.is_late()? {
            // The shards accept the batches of a split in order only, so the batch before is pushed again first.
            self.settle_late()?;
            self.pull(batch)?;
        }
        self.learn(batch, true)?;
        self.push(batch)?;
        self.place = batch.split;
        self.steps += 1;
        self.count_late();
        Ok(())
    }

    fn pull(&mut self, batch: &Batch) -> Result<(), BackendError> {
        let dense = self.dense.iter().map(|keys| BatchKeys::unsorted(keys));
        let keys = || std::iter::once(batch.sorted_keys()).chain(dense.clone());
        self.rows.iter().zip(keys()).try_for_each(|(rows, keys)| rows.begin(self.tables, keys))?;
        self.rows.iter_mut().try_for_each(|rows| rows.finish(self.tables))
    }

    fn push(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.pushed.push(batch.block.len() as u32);
        self.rows.iter_mut().try_for_each(|rows| rows.push(self.tables, batch.split.as_ref()))
    }

    /// Keeps the last batch of a split as long as its step may be applied without it. Returns a batch that is no
    /// longer needed.
    fn keep(&mut self, batch: Batch) -> Option<Batch> {
        let to_keep = self.settles() && batch.split.is_some_and(|split| split.end.is_none());
        if to_keep { self.unsettled.replace(batch) } else { Some(batch) }
    }

    /// Whether batches of splits may arrive too late for their synchronous step.
    fn settles(&self) -> bool {
        self.splits.is_some() && self.tables.may_be_late()
    }

    /// Whether some of the last batch of a split arrived after its step was applied without it, in any table. That
    /// happens when the other workers have seen this worker leave. Waits until that is known.
    fn is_late(&mut self) -> Result<bool, BackendError> {
        if !self.settles() || self.unsettled.is_none() {
            return Ok(false);
        }
        self.tables.drain()?;
        (0..self.rows.len()).for_each(|table| self.tables.take_late(table, &mut self.late));
        Ok(!std::mem::take(&mut self.late).is_empty())
    }

    /// Makes sure that the rows include the last batch of a split. If it came too late for its step, it is pushed in
    /// a later step under the same name, so that shards that have applied it drop it.
    fn settle(&mut self) -> Result<(), TrainError> {
        if self.is_late()? { self.settle_late() } else { Ok(()) }
    }

    fn settle_late(&mut self) -> Result<(), TrainError> {
        while let Some(batch) = self.unsettled.take() {
            tracing::warn!(
                split = batch.split.map(|split| split.index),
                "a synchronous step was applied without a batch of this worker: pushing the batch in a later step"
            );
            self.pull(&batch)?;
            self.learn(&batch, false)?;
            self.push(&batch)?;
            self.unsettled = Some(batch);
            if !self.is_late()? {
                break;
            }
        }
        Ok(())
    }

    /// Sums of importance and losses over all examples so far.
    fn sums(&self) -> (f64, f64) {
        let sums = self.passes.iter().map(Measures::sums);
        sums.fold(self.between, |(mass, loss), (m, l)| (mass + m, loss + l))
    }

    /// Counts the examples of pushes that came too late and were dropped. (Late pushes of splits are sent again
    /// instead.)
    fn count_late(&mut self) {
        if self.settles() {
            return;
        }
        self.tables.take_late(0, &mut self.late);
        for push in self.late.drain(..) {
            self.late_examples += self.pushed.get(push as usize).copied().map_or(0, u64::from);
        }
    }

    /// Learns the examples of a batch. With `first_time` they count in the reports.
    fn learn(&mut self, batch: &Batch, first_time: bool) -> Result<(), TrainError> {
        let ModelLearner { model, rows, passes, examples, not_finite, .. } = self;
        for i in 0..batch.block.len() {
            *examples += u64::from(first_time);
            let number = *examples;
            model.check(Example::of(batch, i)).map_err(|what| TrainError::Example { number, what })?;
        }
        let measures = passes.last_mut().filter(|_| first_time);
        Ok(model.learn(BatchStep { batch, rows, measures, not_finite })?)
    }

    fn fitting(&self, batch: &Batch, start: Instant) -> Fitting {
        Fitting {
            epoch: batch.epoch,
            examples: self.examples,
            steps: self.steps,
            bytes_read: batch.bytes_read,
            bytes_total: batch.bytes_total,
            loss: self.passes.last().map_or(f64::NAN, Measures::loss),
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    /// The results, without a test and not stopped.
    fn fitted(self, summary: ReadSummary, seconds: f64, push: PushContent) -> Result<Fitted, BackendError> {
        let ModelLearner { model, tables, mut passes, examples, steps, not_finite, late_examples, .. } = self;
        let (rows, bytes) = sizes(model, tables)?;
        Ok(Fitted {
            examples,
            steps,
            seconds,
            progressive: passes[0].measured(),
            last_pass: passes.last_mut().and_then(Measures::measured),
            test: None,
            rows,
            bytes,
            transport: tables.transport(),
            push,
            format: summary.format,
            columns: summary.columns,
            batches: summary.batches,
            bad_lines: summary.bad_lines,
            not_finite: not_finite + tables.not_finite(),
            not_admitted: tables.not_admitted(),
            pulls_by_staleness: tables.pulls_by_staleness(),
            dropped_late: (late_examples, tables.late_rows()),
            stopped: false,
        })
    }
}
