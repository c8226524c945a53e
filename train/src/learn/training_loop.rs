//! The loop of a training of logistic regression: pull ahead, learn the oldest batch, push.

use crate::backend::error::BackendError;
use crate::backend::{Backend, PulledRows};
use crate::batch::Batch;
use crate::batch::batches::Batches;
use crate::batch::first::await_first;
use crate::learn::pass_sums::PassSums;
use crate::learn::pending::{Pending, Pushing};
use crate::learn::replay::overlay;
use crate::learn::report::{Progress, StepObserver, StepReport, TrainError};
use crate::learn::update_mode::UpdateMode;
use crate::read::formats::columns::Columns;
use crate::read::splits::split::Splits;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Batches between the reading thread and the learner.
#[derive(Default)]
struct PullQueue {
    /// Batches whose pulls are under way, the oldest first.
    in_flight: VecDeque<Batch>,
    /// The batch that ended a wait for the next split.
    awaited: Option<Batch>,
    /// There are no more batches to pull.
    ended: bool,
}

/// A running training.
pub(crate) struct TrainingLoop<'a, B> {
    pub backend: &'a mut B,
    pub mode: UpdateMode,
    pub sums: PassSums,
    pulls: PullQueue,
    pub pending: Pending,
    /// How many batches are pulled ahead of the one that is learned.
    depth: usize,
    margins: Vec<f32>,
    start: Instant,
    /// Steps made.
    pub steps: u64,
    /// The pass of the last step.
    epoch: u32,
    /// The format and columns of the data.
    data_format: (&'static str, Option<Columns>),
}

impl<'a, B: Backend> TrainingLoop<'a, B> {
    /// A loop that pulls `depth` batches ahead, from `splits` if a scheduler hands them out.
    pub(crate) fn new(
        backend: &'a mut B,
        mode: UpdateMode,
        depth: usize,
        start: Instant,
        splits: Option<Arc<dyn Splits>>,
        data_format: (&'static str, Option<Columns>),
    ) -> Self {
        TrainingLoop {
            backend,
            mode,
            sums: PassSums::new(),
            pulls: PullQueue::default(),
            pending: Pending::new(splits),
            depth,
            margins: Vec::new(),
            start,
            steps: 0,
            epoch: 0,
            data_format,
        }
    }

    /// Pulls `depth` batches ahead and learns the oldest, until the data ends or `stop` is set. Returns whether it
    /// was stopped.
    ///
    /// Normally the loop pulls a batch before it learns the batch before it. Where pulls are answered at once, it
    /// learns the earlier batch first and pulls just before that batch's push. The push before that one is then
    /// applied, and the rows need no request.
    pub(crate) fn run(
        &mut self,
        batches: &mut Batches,
        stop: &AtomicBool,
        every: Duration,
        progress: &mut dyn FnMut(&Progress),
        watch: &mut StepObserver<'_, B>,
    ) -> Result<bool, TrainError> {
        let (mut reported, mut broken) = (self.start, false);
        self.await_first(batches)?;
        loop {
            if self.pending.splits.is_some() && self.pulls.in_flight.is_empty() {
                self.await_batch(batches)?;
            }
            let early = if self.backend.reads_all() { 0 } else { self.depth };
            self.pull_ahead(batches, stop, early)?;
            let Some(batch) = self.pulls.in_flight.pop_front() else { break };
            match batch.split.filter(|split| split.end.is_some()) {
                Some(split) => self.end_split(&split)?,
                None => {
                    if self.begins_pass(batch.epoch) && self.tell(batch.epoch, watch).is_break() {
                        broken = true;
                        self.forget_pulls(&batch)?;
                        break;
                    }
                    self.learn(&batch, batches, stop)?;
                    self.steps += 1;
                    if self.tell(batch.epoch, watch).is_break() {
                        (self.pulls.ended, broken) = (true, true);
                    }
                }
            }
            if reported.elapsed() >= every {
                reported = Instant::now();
                progress(&self.progress(&batch, batches.queued()));
            }
            if let Some(spare) = self.keep(batch) {
                batches.recycle(spare);
            }
        }
        Ok(broken || stop.load(Ordering::Relaxed))
    }

    /// Waits for the first batch, if the worker reads past others before it.
    fn await_first(&mut self, batches: &mut Batches) -> Result<(), BackendError> {
        if self.backend.batches_before() > 0 {
            let first = await_first(batches, || self.backend.stay_in_touch())?;
            (self.pulls.ended, self.pulls.awaited) = (first.is_none(), first);
        }
        Ok(())
    }

    /// Waits for the next split, because other workers may have all that are left.
    fn await_batch(&mut self, batches: &mut Batches) -> Result<(), TrainError> {
        if self.pulls.awaited.is_none() && !self.pulls.ended {
            let batch = self.next_of_splits(batches)?;
            (self.pulls.ended, self.pulls.awaited) = (batch.is_none(), batch);
        }
        Ok(())
    }

    /// Pulls until more than `most` batches are in flight, or there are no more.
    fn pull_ahead(
        &mut self,
        batches: &mut Batches,
        stop: &AtomicBool,
        most: usize,
    ) -> Result<(), BackendError> {
        // After the end of a split there may be no batch until the scheduler knows that the split is trained.
        let at_end = |batch: &Batch| batch.split.is_some_and(|split| split.end.is_some());
        while self.pulls.in_flight.len() <= most
            && !self.pulls.ended
            && !self.pulls.in_flight.iter().any(at_end)
        {
            self.pulls.ended = stop.load(Ordering::Relaxed);
            let batch =
                if self.pulls.ended { None } else { self.pulls.awaited.take().or_else(|| batches.next()) };
            let Some(batch) = batch else {
                self.pulls.ended = true;
                break;
            };
            let to_learn = batch.split.is_none_or(|split| split.end.is_none());
            if to_learn && !matches!(self.mode, UpdateMode::InPlace) {
                self.backend.begin_pull(batch.sorted_keys(), self.mode.push().read())?;
            }
            self.pulls.in_flight.push_back(batch);
        }
        Ok(())
    }

    /// Learns the oldest batch in flight, and begins its push.
    fn learn(&mut self, batch: &Batch, batches: &mut Batches, stop: &AtomicBool) -> Result<(), TrainError> {
        if let (UpdateMode::InPlace, Some(rows)) = (&self.mode, self.backend.in_place()) {
            rows.learn(&batch.block, &mut self.margins)?;
            self.sums.add(batch, &self.margins);
            return Ok(());
        }
        let mut rows = self.backend.finish_pull()?;
        if self.is_late()? {
            // The shards accept the batches of a split in order only, so the batch before is pushed again first.
            self.backend.forget_pull(rows)?;
            self.settle_late()?;
            self.backend.begin_pull(batch.sorted_keys(), self.mode.push().read())?;
            rows = self.backend.finish_pull()?;
        }
        self.compute(batch, &mut rows);
        if let Some(most) = self.depth.checked_sub(1) {
            self.pull_ahead(batches, stop, most)?;
        }
        self.backend.push(&batch.keys, rows, self.mode.write(), batch.split.as_ref())?;
        self.pending.last_pushed = batch.split;
        self.sums.add(batch, &self.margins);
        self.pending.pushed(batch);
        self.count_late();
        Ok(())
    }

    /// Replaces the rows of a batch by the values to push.
    fn compute(&mut self, batch: &Batch, rows: &mut PulledRows) {
        match &mut self.mode {
            UpdateMode::Replay { replay, whole: true, .. } => {
                replay.learn_rows(batch, &mut rows.values, &mut self.margins);
            }
            UpdateMode::Replay { replay, planes, damped, changes, .. } => {
                let width = *planes + usize::from(*damped);
                // Damped rows end with a count of pushes. That count plus the own pushes in flight is the expected
                // count.
                overlay(batch, &mut rows.values, width, &rows.saw, changes.iter().map(Vec::as_slice));
                replay.learn(batch, &mut rows.values, *planes, &mut self.margins);
                if self.depth > 0 {
                    let change = if changes.len() == self.depth { changes.pop_back() } else { None };
                    let mut change = change.unwrap_or_default();
                    change.clear();
                    change.extend_from_slice(&rows.values);
                    if *damped {
                        change.chunks_exact_mut(width).for_each(|row| row[*planes] = 1.0);
                    }
                    changes.push_front(change);
                }
            }
            UpdateMode::Gradient(gradients) => gradients.compute(batch, &mut rows.values, &mut self.margins),
            UpdateMode::InPlace => {}
        }
    }

    /// Whether a batch of this pass is the first of it that this process learns, and not the first at all.
    fn begins_pass(&mut self, epoch: u32) -> bool {
        std::mem::replace(&mut self.epoch, epoch) != epoch && self.steps > 0
    }

    /// Finishes the pulls of this batch and of those behind it, which are not learned.
    fn forget_pulls(&mut self, batch: &Batch) -> Result<(), BackendError> {
        if matches!(self.mode, UpdateMode::InPlace) {
            return Ok(());
        }
        let rest = std::mem::take(&mut self.pulls.in_flight);
        let is_pulled = |batch: &Batch| batch.split.is_none_or(|split| split.end.is_none());
        for _ in std::iter::once(batch).chain(&rest).filter(|batch| is_pulled(batch)) {
            let rows = self.backend.finish_pull()?;
            self.backend.forget_pull(rows)?;
        }
        Ok(())
    }

    /// Calls the observer: after a step, and before the first step of a pass.
    fn tell(&mut self, epoch: u32, watch: &mut StepObserver<'_, B>) -> ControlFlow<()> {
        let (mass, loss) = self.sums.all();
        let (format, columns) = (self.data_format.0, self.data_format.1.as_ref());
        watch(&StepReport { number: self.steps, epoch, mass, loss, format, columns }, self.backend)
    }

    fn progress(&mut self, batch: &Batch, queued: usize) -> Progress {
        Progress {
            epoch: batch.epoch,
            examples: self.sums.examples,
            steps: self.steps,
            bytes_read: batch.bytes_read,
            bytes_total: batch.bytes_total,
            loss: self.sums.log_loss(batch.epoch),
            auc: self.sums.auc(),
            seconds: self.start.elapsed().as_secs_f64(),
            bad_lines: batch.bad_lines,
            queued,
            in_flight: if self.depth > 0 { self.pulls.in_flight.len() } else { 0 },
            local: self.backend.local_stats(),
        }
    }
}

impl<B: Backend> Pushing for TrainingLoop<'_, B> {
    type Rows = B;

    fn rows(&mut self) -> &mut B {
        self.backend
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn take_late(&mut self, late: &mut Vec<u64>) {
        self.backend.take_late(late);
    }

    fn push_again(&mut self, batch: &Batch) -> Result<(), TrainError> {
        self.backend.begin_pull(batch.sorted_keys(), self.mode.push().read())?;
        let mut rows = self.backend.finish_pull()?;
        self.compute(batch, &mut rows);
        self.backend.push(&batch.keys, rows, self.mode.write(), batch.split.as_ref())?;
        self.pending.pushed(batch);
        Ok(())
    }
}
