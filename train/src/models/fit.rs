//! The training loop of the models. For each batch, this thread pulls the rows of all tables together, learns the
//! examples one by one, and pushes.

use super::{BatchRows, BatchStep, Example, Measured, Measures, Model, Objective};
use crate::backend::error::BackendError;
use crate::backend::tables::{TableIndex, Tables};
use crate::batch::batches::{Batches, OpenData, ReadPlan};
use crate::batch::first::await_first;
use crate::batch::{Batch, BatchKeys};
use crate::learn::gradient::Reduce;
use crate::learn::options::Options;
use crate::learn::pending::{Pending, Pushing, test_at_end};
use crate::learn::push_content::PushContent;
use crate::learn::report::{Progress, Report, StepReport, TrainError, no_rows};
use crate::models::score;
use crate::read::reader::Reader;
use gannet_optim::Rule;
use std::ops::ControlFlow;
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
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, TrainError> {
    fit_watched(options, model, tables, stop, progress, &mut |_, _, _| ControlFlow::Continue(()))
}

/// Called after each step, and before the first step of each later pass, with the model and its tables. `Break` ends
/// the training like the stop flag.
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
    progress: &mut dyn FnMut(&Progress),
    watch: &mut FitWatch<'_, T>,
) -> Result<Report, TrainError> {
    options.check_threads()?;
    let push = push_of(options, model)?;
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch")?;
    }
    let start = Instant::now();
    let source = options.splits.as_ref().map(|(source, _)| &**source);
    let opened = OpenData::new(&options.data, options.batch, options.share, source)?;
    let (format, columns) = opened.format();
    Reader::check_test(options.test.as_ref(), &options.data, format)?;
    let mut learner = ModelLearner::new(options, model, tables, push)?;
    let skip = learner.tables.batches_before();
    let plan = ReadPlan { skip, ..ReadPlan::of(options, learner.model.sparse().shards) };
    let preparer = learner.tables.preparer(0)?;
    let mut batches = Batches::start(opened, plan, options.threads > 1, preparer)?;
    let mut watched = |learner: &mut ModelLearner<'_, T>, epoch| {
        let (number, (mass, loss)) = (learner.steps, learner.sums());
        let step = StepReport { number, epoch, mass, loss, format, columns: columns.as_ref() };
        watch(&step, learner.model, learner.tables)
    };
    let learned = learner.run(&mut batches, stop, start, options, progress, &mut watched);
    let (mut stopped, summary) = batches.close(learned)?;
    learner.end()?;
    learner.tables.leave()?;
    learner.give_up();
    let seconds = start.elapsed().as_secs_f64();
    let test =
        test_at_end(options.test.as_ref(), &mut stopped, |data| score(data, learner.model, learner.tables))?;
    let (rows, bytes) = sizes(learner.model, learner.tables)?;
    let report = learner.report(summary, push, seconds);
    let last_pass = learner.passes.last_mut().and_then(Measures::measured);
    Ok(Report {
        examples: learner.examples,
        steps: learner.steps,
        progressive: learner.passes[0].measured(),
        last_loss: last_pass.as_ref().map(Measured::loss),
        last_pass,
        test,
        rows,
        bytes,
        repeated_keys: learner.repeated_keys,
        not_finite: report.not_finite + learner.not_finite,
        stopped,
        ..report
    })
}

/// Rows and bytes of a model's tables.
///
/// # Errors
/// The servers are lost.
pub fn sizes<T: Tables>(model: &dyn Model, tables: &mut T) -> Result<(u64, u64), BackendError> {
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

/// A model that learns batches in its tables.
pub(super) struct ModelLearner<'a, T> {
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
    repeated_keys: u64,
    not_finite: u64,
    /// What it still owes.
    pending: Pending,
}

impl<'a, T: Tables> ModelLearner<'a, T> {
    pub fn new(
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
            repeated_keys: 0,
            not_finite: 0,
            pending: Pending::new(options.splits.as_ref().map(|(source, _)| source.clone())),
        })
    }

    /// Learns until the data ends or `stop` is set. Returns true when it was stopped.
    fn run(
        &mut self,
        batches: &mut Batches,
        stop: &AtomicBool,
        start: Instant,
        options: &Options,
        progress: &mut dyn FnMut(&Progress),
        watched: &mut dyn FnMut(&mut Self, u32) -> ControlFlow<()>,
    ) -> Result<bool, TrainError> {
        let mut reported = start;
        while !stop.load(Relaxed) {
            let Some(batch) = self.next(batches)? else { return Ok(stop.load(Relaxed)) };
            match batch.split.filter(|split| split.end.is_some()) {
                Some(split) => self.end_split(&split)?,
                None => {
                    let begins_pass = batch.epoch != self.epoch && self.steps > 0;
                    if begins_pass && watched(self, batch.epoch).is_break() {
                        break;
                    }
                    self.step(&batch)?;
                    if watched(self, batch.epoch).is_break() {
                        break;
                    }
                }
            }
            if reported.elapsed() >= options.progress_every {
                reported = Instant::now();
                progress(&self.progress(&batch, start));
            }
            if let Some(spare) = self.keep(batch) {
                batches.recycle(spare);
            }
        }
        Ok(true)
    }

    /// The next batch.
    fn next(&mut self, batches: &mut Batches) -> Result<Option<Batch>, TrainError> {
        if self.pending.splits.is_some() {
            return self.next_of_splits(batches);
        }
        if self.steps == 0 && self.tables.batches_before() > 0 {
            return Ok(await_first(batches, || self.tables.stay_in_touch())?);
        }
        Ok(batches.next())
    }

    /// Learns a batch: pulls its rows, learns its examples and pushes.
    pub fn step(&mut self, batch: &Batch) -> Result<(), TrainError> {
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
        self.pending.last_pushed = batch.split;
        self.steps += 1;
        self.repeated_keys += batch.merged as u64;
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
        self.pending.pushed(batch);
        self.rows.iter_mut().try_for_each(|rows| rows.push(self.tables, batch.split.as_ref()))
    }

    /// Sums of importance and losses over all examples so far.
    pub fn sums(&self) -> (f64, f64) {
        let sums = self.passes.iter().map(Measures::sums);
        sums.fold(self.between, |(mass, loss), (m, l)| (mass + m, loss + l))
    }

    /// Examples learned so far.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// A mean loss as reports show it.
    pub fn mean(&self, loss: f64) -> f64 {
        self.task.mean(loss)
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

    fn progress(&self, batch: &Batch, start: Instant) -> Progress {
        Progress {
            epoch: batch.epoch,
            examples: self.examples,
            steps: self.steps,
            bytes_read: batch.bytes_read,
            bytes_total: batch.bytes_total,
            loss: self.passes.last().map_or(f64::NAN, Measures::loss),
            seconds: start.elapsed().as_secs_f64(),
            bad_lines: batch.bad_lines,
            ..Progress::default()
        }
    }
}

impl<T: Tables> Pushing for ModelLearner<'_, T> {
    type Rows = T;

    fn rows(&mut self) -> &mut T {
        self.tables
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn take_late(&mut self, late: &mut Vec<u64>) {
        self.tables.take_late(0, late);
    }

    fn take_late_of_all(&mut self, late: &mut Vec<u64>) {
        (0..self.rows.len()).for_each(|table| self.tables.take_late(table, late));
    }

    fn push_again(&mut self, batch: &Batch) -> Result<(), TrainError> {
        self.pull(batch)?;
        self.learn(batch, false)?;
        Ok(self.push(batch)?)
    }
}
