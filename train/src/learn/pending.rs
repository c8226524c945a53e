//! What a training still owes when a batch is pushed: the split that the batch is of, the step that may be applied
//! without it, and the end, when nothing may be left. The loops of logistic regression and of the models share it.

use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::batches::{Batches, ReadSummary};
use crate::batch::{Batch, InSplit};
use crate::learn::push_content::PushContent;
use crate::learn::report::{Report, TrainError};
use crate::limits::REST_AFTER;
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::splits::split::{Splits, report_done};
use std::sync::Arc;

/// The pushed batches whose fate is not known, and the position of this worker in the splits of a scheduler.
pub(crate) struct Pending {
    /// Who hands out splits, if somebody does.
    pub splits: Option<Arc<dyn Splits>>,
    /// The position of the last batch that was pushed.
    pub last_pushed: Option<InSplit>,
    /// That batch, as long as its synchronous step may be applied without it.
    unsettled: Option<Batch>,
    /// Examples of each push, by its number.
    examples_of: Vec<u32>,
    /// The numbers of late pushes that are not counted yet.
    late: Vec<u64>,
    /// Examples of pushes that arrived after their synchronous step was applied without them.
    pub late_examples: u64,
}

impl Pending {
    /// Of a training that has pushed nothing.
    pub(crate) fn new(splits: Option<Arc<dyn Splits>>) -> Pending {
        let (last_pushed, unsettled, examples_of, late) = (None, None, Vec::new(), Vec::new());
        Pending { splits, last_pushed, unsettled, examples_of, late, late_examples: 0 }
    }

    /// Counts a push.
    pub(crate) fn pushed(&mut self, batch: &Batch) {
        self.examples_of.push(batch.block.len() as u32);
    }
}

/// A training that pushes.
pub(crate) trait Pushing {
    /// The rows that it trains.
    type Rows: TrainedRows;

    /// These rows.
    fn rows(&mut self) -> &mut Self::Rows;

    /// What it still owes.
    fn pending(&mut self) -> &mut Pending;

    /// Appends the numbers of late pushes to the first table.
    fn take_late(&mut self, late: &mut Vec<u64>);

    /// Appends the numbers of late pushes to any table.
    fn take_late_of_all(&mut self, late: &mut Vec<u64>) {
        self.take_late(late);
    }

    /// Pulls, learns and pushes a batch again whose step was applied without it.
    fn push_again(&mut self, batch: &Batch) -> Result<(), TrainError>;

    /// The next batch of splits. While other workers have all that is left of the data, no worker waits for this one.
    fn next_of_splits(&mut self, batches: &mut Batches) -> Result<Option<Batch>, TrainError> {
        let mut rests = false;
        loop {
            match batches.next_within(REST_AFTER) {
                Ok(batch) => {
                    if rests && batch.is_some() {
                        self.rows().resume()?;
                    }
                    return Ok(batch);
                }
                Err(_) if !rests => {
                    rests = true;
                    // A worker that has left gets no report of late pushes: ask before it leaves.
                    self.settle()?;
                    self.rows().rest()?;
                }
                Err(_) => {}
            }
        }
    }

    /// Whether batches of splits may arrive too late for their synchronous step.
    fn settles(&mut self) -> bool {
        self.pending().splits.is_some() && self.rows().may_be_late()
    }

    /// Keeps the last batch of a split as long as its step may be applied without it. Returns a batch that is no
    /// longer needed.
    fn keep(&mut self, batch: Batch) -> Option<Batch> {
        let to_keep = self.settles() && batch.split.is_some_and(|split| split.end.is_none());
        if to_keep { self.pending().unsettled.replace(batch) } else { Some(batch) }
    }

    /// Whether the last batch of a split arrived after its step was applied without it, in any table, because the
    /// other workers had seen this worker leave. Waits until that is known.
    fn is_late(&mut self) -> Result<bool, BackendError> {
        if !self.settles() || self.pending().unsettled.is_none() {
            return Ok(false);
        }
        self.rows().drain()?;
        let mut late = std::mem::take(&mut self.pending().late);
        self.take_late_of_all(&mut late);
        Ok(!late.is_empty())
    }

    /// Makes sure that the rows include the last batch of a split. If it came too late for its step, it is pushed in
    /// a later step under the same name, so that shards that have applied it drop it.
    fn settle(&mut self) -> Result<(), TrainError> {
        if self.is_late()? { self.settle_late() } else { Ok(()) }
    }

    /// Pushes the last batch of a split again, until a step includes it.
    fn settle_late(&mut self) -> Result<(), TrainError> {
        while let Some(batch) = self.pending().unsettled.take() {
            tracing::warn!(
                split = batch.split.map(|split| split.index),
                "a synchronous step was applied without a batch of this worker: pushing the batch in a later step"
            );
            self.push_again(&batch)?;
            self.pending().unsettled = Some(batch);
            if !self.is_late()? {
                break;
            }
        }
        Ok(())
    }

    /// Counts the examples of pushes that came too late and were dropped. (Late pushes of splits are sent again
    /// instead.)
    fn count_late(&mut self) {
        if self.settles() {
            return;
        }
        let mut late = std::mem::take(&mut self.pending().late);
        self.take_late(&mut late);
        let pending = self.pending();
        for push in late.drain(..) {
            pending.late_examples += pending.examples_of.get(push as usize).copied().map_or(0, u64::from);
        }
        pending.late = late;
    }

    /// Ends a split that is learned completely. The servers may forget its pushes only when no worker can get it
    /// again.
    fn end_split(&mut self, split: &InSplit) -> Result<(), TrainError> {
        self.settle()?;
        self.rows().drain()?;
        self.pending().last_pushed = None;
        if let (Some(splits), Some(examples)) = (self.pending().splits.clone(), split.end) {
            report_done::<TrainError, _>(&*splits, (split.index, examples), || self.rows().stay_in_touch())?;
        }
        Ok(self.rows().forget_split(split)?)
    }

    /// Ends the pushes of a worker. Late ones are settled first, because a worker that has left gets no report of them.
    fn end(&mut self) -> Result<(), TrainError> {
        self.settle()?;
        self.rows().drain()?;
        self.count_late();
        Ok(())
    }

    /// Reports the last pushed batch of the current split, so that another worker can continue the split. Every push
    /// must have been acknowledged.
    fn give_up(&mut self) {
        let pending = self.pending();
        if let (Some(splits), Some(split)) = (&pending.splits, pending.last_pushed) {
            splits.acked(split.index, split.seq);
        }
    }

    /// The report of a training that has ended, as far as the reader and the rows know it.
    fn report(&mut self, summary: ReadSummary, push: PushContent, seconds: f64) -> Report {
        let (late_examples, rows) = (self.pending().late_examples, self.rows());
        Report {
            examples: 0,
            steps: 0,
            seconds,
            progressive: None,
            last_loss: None,
            last_pass: None,
            test: None,
            rows: 0,
            bytes: 0,
            transport: rows.transport(),
            push,
            format: summary.format,
            columns: summary.columns,
            batches: summary.batches,
            bad_lines: summary.bad_lines,
            repeated_keys: 0,
            not_finite: rows.not_finite(),
            not_admitted: rows.not_admitted(),
            refused: rows.refused(),
            evicted: rows.evicted(),
            pulls_by_staleness: rows.pulls_by_staleness(),
            dropped_late: (late_examples, rows.late_rows()),
            wire: None,
            stopped: false,
        }
    }
}

/// Scores the test set at the end of a training, if there is one and the training was not stopped. A signal that ends
/// the wait for the test set sets `stopped`, and does not discard what was learned.
///
/// # Errors
/// As of `score`.
pub fn test_at_end<Q>(
    test: Option<&Data>,
    stopped: &mut bool,
    score: impl FnOnce(&Data) -> Result<Option<Q>, TrainError>,
) -> Result<Option<Q>, TrainError> {
    let Some(data) = test.filter(|_| !*stopped) else { return Ok(None) };
    match score(data) {
        Err(TrainError::Read(ReadError::Stopped { .. })) => {
            *stopped = true;
            Ok(None)
        }
        tested => tested,
    }
}
