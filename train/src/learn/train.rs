//! The training loop of logistic regression: batches come from a feed; this thread pulls, learns, pushes.

use crate::backend::{Backend, BackendError, PulledRows};
use crate::batch::batches::{Batches, OpenData, ReadPlan, SplitQueue};
use crate::batch::{Batch, InSplit};
use crate::learn::evaluate::evaluate;
use crate::learn::gradient::{Gradients, Reduce};
use crate::learn::metrics::Metrics;
use crate::learn::options::Options;
use crate::learn::push_content::PushContent;
use crate::learn::replay::{Replay, overlay};
use crate::learn::report::{Progress, Report, StepObserver, StepReport, TrainError, no_rows};
use crate::learn::update_mode::UpdateMode;
use crate::limits::{DEPTH_MAX, REST_AFTER};
use crate::read::columns::Columns;
use crate::read::error::ReadError;
use crate::read::reader::Reader;
use crate::read::split::Splits;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Trains logistic regression. The learning itself is set by the table's rule and by what pushes carry. `stop` is
/// looked at between batches: what has been learned is then pushed, and the report says so. (Waits for the bytes of a
/// pipe are ended by [`Data::stop`](crate::Data::stop_flag).)
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

/// The same, with somebody who looks on after each step.
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
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch")?;
    }
    if options.threads == 0 {
        return Err(ReadError::Limit { what: "the number of threads", value: 0, max: u64::MAX }.into());
    }
    if options.epochs == 0 {
        return Err(ReadError::Limit { what: "the number of epochs", value: 0, max: u32::MAX.into() }.into());
    }
    let depth = backend.depth().min(DEPTH_MAX);
    let in_place = push == PushContent::Replay && backend.in_place().is_some();
    let start = Instant::now();
    let by = options.pieces.as_ref().map(|(by, _)| &**by);
    let opened = OpenData::new(&options.data, options.batch, options.share, by)?;
    let found = opened.found();
    Reader::check_test(options.test.as_ref(), &options.data, found.0)?;
    if let Some(begin) = &options.begin {
        no_rows(backend.stats()?.rows)?;
        begin.rows(0, &mut |keys, rows| backend.restore(keys, rows))?;
    }
    let Options { data, batch, epochs, share, .. } = options;
    let plan = ReadPlan {
        data: data.clone(),
        batch: *batch,
        share: *share,
        epochs: *epochs,
        shards: schema.shards,
        // Gradients are of the weights that a pull has seen: nothing is overlaid.
        links: if push == PushContent::Replay { depth } else { 0 },
        in_place,
        pieces: options
            .pieces
            .as_ref()
            .map(|(by, files)| SplitQueue { by: by.clone(), files: files.clone() }),
    };
    let way = match (push, Replay::new(&schema)) {
        _ if in_place => UpdateMode::InPlace,
        (PushContent::Replay, Some(replay)) => {
            let (planes, damped) = (schema.floats(), backend.is_damped());
            UpdateMode::Replay { replay, planes, damped, changes: VecDeque::new() }
        }
        _ => UpdateMode::Gradient(Gradients::new(options.reduce.unwrap_or(Reduce::suits(&schema.rule)))),
    };
    let pieces = options.pieces.as_ref().map(|(by, _)| by.clone());
    let mut learner = Loop::new(backend, way, depth, start, pieces, found);
    let mut feed = Batches::start(opened, plan, options.threads > 1)?;
    let learned = learner.run(&mut feed, stop, options.progress_every, progress, watch);
    let mut stopped = match learned {
        Ok(stopped) => stopped,
        Err(error) => {
            feed.abandon();
            return Err(error);
        }
    };
    let found = feed.finish()?;
    learner.settle()?;
    learner.backend.drain()?;
    learner.count_late();
    learner.give_up();
    let Loop { backend, way, mut first_pass, later, examples, merged, late_examples, .. } = learner;
    let progressive = first_pass.quality();
    let (seconds, wire) = (start.elapsed().as_secs_f64(), backend.counters());
    let test = match &options.test {
        Some(data) if !stopped => match evaluate(data, backend) {
            // Whoever ends the wait for the test set keeps what was learned.
            Err(TrainError::Read(ReadError::Stopped { .. })) => {
                stopped = true;
                None
            }
            tested => tested?,
        },
        _ => None,
    };
    let stats = backend.stats()?;
    Ok(Report {
        examples,
        seconds,
        examples_per_second: examples as f64 / seconds,
        last_pass: if later.1 > 0.0 {
            Some(later.2 / later.1)
        } else {
            progressive.as_ref().map(|q| q.log_loss)
        },
        progressive,
        passes: *epochs,
        test,
        rows: stats.rows,
        bytes: stats.bytes,
        bytes_per_row: if stats.rows > 0 { stats.bytes as f64 / stats.rows as f64 } else { 0.0 },
        transport: backend.transport(),
        push,
        format: found.format,
        columns: found.columns,
        batches: found.batches,
        bad_lines: found.bad_lines,
        repeated_keys: merged,
        not_finite: way.not_finite() + backend.not_finite(),
        not_admitted: backend.not_admitted(),
        pulls_by_staleness: backend.pulls_by_staleness(),
        dropped_late: (late_examples, backend.late_rows()),
        wire,
        stopped,
    })
}

struct Loop<'a, B> {
    backend: &'a mut B,
    way: UpdateMode,
    depth: usize,
    start: Instant,
    /// Batches whose pulls are under way, the oldest first.
    flying: VecDeque<Batch>,
    /// There is nothing more to pull.
    ended: bool,
    margins: Vec<f32>,
    first_pass: Metrics,
    /// Log loss of a later pass: its number, the examples' importance and the sum.
    later: (u32, f64, f64),
    /// The same of passes between the first and that one.
    between: (f64, f64),
    /// Steps made, and how the data is read.
    steps: u64,
    found: (&'static str, Option<Columns>),
    pieces: Option<Arc<dyn Splits>>,
    /// A batch that was waited for.
    awaited: Option<Batch>,
    /// The place of the last batch that was pushed.
    place: Option<InSplit>,
    /// That batch, while its step may be made without it.
    unsettled: Option<Batch>,
    examples: u64,
    merged: u64,
    /// Examples of each push, and those of pushes that came too late.
    pushed: Vec<u32>,
    late_examples: u64,
    late: Vec<u64>,
}

impl<'a, B: Backend> Loop<'a, B> {
    fn new(
        backend: &'a mut B,
        way: UpdateMode,
        depth: usize,
        start: Instant,
        pieces: Option<Arc<dyn Splits>>,
        found: (&'static str, Option<Columns>),
    ) -> Self {
        Loop {
            backend,
            way,
            depth,
            start,
            flying: VecDeque::new(),
            ended: false,
            margins: Vec::new(),
            first_pass: Metrics::streaming(),
            later: (0, 0.0, 0.0),
            between: (0.0, 0.0),
            steps: 0,
            found,
            pieces,
            awaited: None,
            place: None,
            unsettled: None,
            examples: 0,
            merged: 0,
            pushed: Vec::new(),
            late_examples: 0,
            late: Vec::new(),
        }
    }

    /// Pulls `depth` batches ahead, learns the oldest, until the feed ends or `stop`; true when stopped.
    ///
    /// A batch is pulled as early as it can be, before the one before it is learned; but where rows are read at once,
    /// after that and before its push: the push before is then applied, and its rows need not be asked for.
    fn run(
        &mut self,
        feed: &mut Batches,
        stop: &AtomicBool,
        every: Duration,
        progress: &mut dyn FnMut(&Progress),
        watch: &mut StepObserver<'_, B>,
    ) -> Result<bool, TrainError> {
        let (mut told, mut broken) = (self.start, false);
        loop {
            if self.pieces.is_some() && self.flying.is_empty() {
                self.await_batch(feed)?;
            }
            let early = if self.backend.is_near(self.way.push().read()) { 0 } else { self.depth };
            self.pull_ahead(feed, stop, early)?;
            let Some(batch) = self.flying.pop_front() else { break };
            match batch.piece.filter(|piece| piece.end.is_some()) {
                Some(piece) => self.end_piece(&piece)?,
                None => {
                    self.learn(&batch, feed, stop)?;
                    if self.watched(watch).is_break() {
                        (self.ended, broken) = (true, true);
                    }
                }
            }
            if told.elapsed() >= every {
                told = Instant::now();
                progress(&self.progress(&batch, feed.queued()));
            }
            if let Some(spare) = self.keep(batch) {
                feed.recycle(spare);
            }
        }
        Ok(broken || stop.load(Ordering::Relaxed))
    }

    /// Waits for the next piece of the data, which others may have. Whoever keeps step with this worker does not wait
    /// for it meanwhile.
    fn await_batch(&mut self, feed: &mut Batches) -> Result<(), BackendError> {
        let mut rests = false;
        while self.awaited.is_none() && !self.ended {
            match feed.next_within(REST_AFTER) {
                Ok(batch) => (self.ended, self.awaited) = (batch.is_none(), batch),
                Err(_) if !rests => {
                    rests = true;
                    // Who has left is not told what came too late.
                    self.settle()?;
                    self.backend.rest()?;
                }
                Err(_) => {}
            }
        }
        if rests && !self.ended { self.backend.resume() } else { Ok(()) }
    }

    /// Pulls until more than `most` batches are under way, or there are no more.
    fn pull_ahead(&mut self, feed: &mut Batches, stop: &AtomicBool, most: usize) -> Result<(), BackendError> {
        // Behind the end of a piece there may be nothing before the scheduler has heard of it.
        let at_end = |batch: &Batch| batch.piece.is_some_and(|piece| piece.end.is_some());
        while self.flying.len() <= most && !self.ended && !self.flying.iter().any(at_end) {
            self.ended = stop.load(Ordering::Relaxed);
            let batch = if self.ended { None } else { self.awaited.take().or_else(|| feed.next()) };
            let Some(batch) = batch else {
                self.ended = true;
                break;
            };
            let to_learn = batch.piece.is_none_or(|piece| piece.end.is_none());
            if to_learn && !matches!(self.way, UpdateMode::InPlace) {
                self.backend.begin_pull(batch.sorted_keys(), self.way.push().read())?;
            }
            self.flying.push_back(batch);
        }
        Ok(())
    }

    fn learn(&mut self, batch: &Batch, feed: &mut Batches, stop: &AtomicBool) -> Result<(), TrainError> {
        if let (UpdateMode::InPlace, Some(rows)) = (&self.way, self.backend.in_place()) {
            rows.learn(&batch.block, &mut self.margins)?;
            self.count(batch);
            return Ok(());
        }
        let mut rows = self.backend.finish_pull()?;
        if self.is_late()? {
            // The batch before goes first: a shard takes the batches of a piece in their order.
            self.backend.forget_pull(rows)?;
            self.settle_late()?;
            self.backend.begin_pull(batch.sorted_keys(), self.way.push().read())?;
            rows = self.backend.finish_pull()?;
        }
        self.compute(batch, &mut rows);
        if let Some(most) = self.depth.checked_sub(1) {
            self.pull_ahead(feed, stop, most)?;
        }
        self.backend.push(&batch.keys, rows, self.way.write(), batch.piece.as_ref())?;
        self.place = batch.piece;
        self.count(batch);
        self.pushed.push(batch.block.len() as u32);
        self.count_late();
        Ok(())
    }

    /// What a batch makes of its rows.
    fn compute(&mut self, batch: &Batch, rows: &mut PulledRows) {
        match &mut self.way {
            UpdateMode::Replay { replay, planes, damped, changes } => {
                let width = *planes + usize::from(*damped);
                // Of a count of pushes that is: with those that it does not include it is the count that is expected.
                overlay(batch, &mut rows.values, width, &rows.saw, changes.iter().map(Vec::as_slice));
                replay.learn(batch, &mut rows.values, *planes, &mut self.margins);
                if self.depth > 0 {
                    let kept = if changes.len() == self.depth { changes.pop_back() } else { None };
                    let mut kept = kept.unwrap_or_default();
                    kept.clear();
                    kept.extend_from_slice(&rows.values);
                    if *damped {
                        kept.chunks_exact_mut(width).for_each(|row| row[*planes] = 1.0);
                    }
                    changes.push_front(kept);
                }
            }
            UpdateMode::Gradient(gradients) => gradients.compute(batch, &mut rows.values, &mut self.margins),
            UpdateMode::InPlace => {}
        }
    }

    /// Keeps the last batch of a piece whose step may be made without it; what is kept no longer, or need not be, is
    /// returned.
    fn keep(&mut self, batch: Batch) -> Option<Batch> {
        let to_keep = self.settles() && batch.piece.is_some_and(|piece| piece.end.is_none());
        if to_keep { self.unsettled.replace(batch) } else { Some(batch) }
    }

    /// Whether batches of pieces may come too late for their step.
    fn settles(&self) -> bool {
        self.pieces.is_some() && self.backend.may_be_late()
    }

    /// Whether some of the last batch of a piece came when its step had been made without it: the others had been told
    /// that this worker had left. Waits until that is known.
    fn is_late(&mut self) -> Result<bool, BackendError> {
        if !self.settles() || self.unsettled.is_none() {
            return Ok(false);
        }
        self.backend.drain()?;
        self.backend.take_late(&mut self.late);
        Ok(!std::mem::take(&mut self.late).is_empty())
    }

    /// Holds that the last batch of a piece is in the rows: what came too late for its step is pushed in a later one,
    /// under the same name, so that the shards that have it drop it.
    fn settle(&mut self) -> Result<(), BackendError> {
        if self.is_late()? { self.settle_late() } else { Ok(()) }
    }

    fn settle_late(&mut self) -> Result<(), BackendError> {
        while let Some(batch) = self.unsettled.take() {
            tracing::warn!(
                piece = batch.piece.map(|piece| piece.index),
                "a step was made without a batch of this worker: it is in a later one"
            );
            self.backend.begin_pull(batch.sorted_keys(), self.way.push().read())?;
            let mut rows = self.backend.finish_pull()?;
            self.compute(&batch, &mut rows);
            self.backend.push(&batch.keys, rows, self.way.write(), batch.piece.as_ref())?;
            self.pushed.push(batch.block.len() as u32);
            self.unsettled = Some(batch);
            if !self.is_late()? {
                break;
            }
        }
        Ok(())
    }

    /// A step has been made.
    fn watched(&mut self, watch: &mut StepObserver<'_, B>) -> ControlFlow<()> {
        self.steps += 1;
        let (mass, loss) = self.first_pass.sums();
        let (mass, loss) = (mass + self.between.0 + self.later.1, loss + self.between.1 + self.later.2);
        let (format, columns) = (self.found.0, self.found.1.as_ref());
        watch(&StepReport { number: self.steps, mass, loss, format, columns }, self.backend)
    }

    /// Counts the examples of pushes that came too late, and are dropped. (Of a piece of the data none is.)
    fn count_late(&mut self) {
        if self.settles() {
            return;
        }
        self.backend.take_late(&mut self.late);
        for push in self.late.drain(..) {
            self.late_examples += self.pushed.get(push as usize).copied().map_or(0, u64::from);
        }
    }

    /// A piece of the data has been learned whole. The servers may forget it only when nobody can be given it again.
    fn end_piece(&mut self, piece: &InSplit) -> Result<(), TrainError> {
        self.settle()?;
        self.backend.drain()?;
        self.place = None;
        if let (Some(pieces), Some(examples)) = (&self.pieces, piece.end) {
            pieces.done(piece.index, examples).map_err(ReadError::Pieces)?;
        }
        Ok(self.backend.forget_piece(piece)?)
    }

    /// Every push has been acknowledged, and this worker learns no further: somebody else may go on from here.
    fn give_up(&mut self) {
        if let (Some(pieces), Some(piece)) = (&self.pieces, self.place) {
            pieces.acked(piece.index, piece.seq);
        }
    }

    fn count(&mut self, batch: &Batch) {
        self.examples += batch.block.len() as u64;
        self.merged += batch.merged as u64;
        if batch.epoch > 0 && self.later.0 != batch.epoch {
            let (_, mass, loss) = std::mem::replace(&mut self.later, (batch.epoch, 0.0, 0.0));
            self.between = (self.between.0 + mass, self.between.1 + loss);
        }
        for (i, (&margin, &label)) in self.margins.iter().zip(&batch.block.labels).enumerate() {
            let importance = batch.block.importance(i);
            if batch.epoch == 0 {
                self.first_pass.add(margin, label, importance);
            } else {
                self.later.1 += f64::from(importance);
                self.later.2 += f64::from(importance) * crate::learn::metrics::log_loss(margin, label);
            }
        }
    }

    fn progress(&mut self, batch: &Batch, queued: usize) -> Progress {
        let log_loss =
            if batch.epoch == 0 { self.first_pass.log_loss() } else { self.later.2 / self.later.1 };
        Progress {
            epoch: batch.epoch,
            examples: self.examples,
            bytes_read: batch.bytes_read,
            bytes_total: batch.bytes_total,
            log_loss,
            auc: self.first_pass.auc(),
            seconds: self.start.elapsed().as_secs_f64(),
            bad_lines: batch.bad_lines,
            queued,
            in_flight: if self.depth > 0 { self.flying.len() } else { 0 },
            local: self.backend.local_stats(),
        }
    }
}
