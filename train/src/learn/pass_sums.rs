//! Sums of a training so far: examples, and the loss of each pass.

use crate::batch::Batch;
use crate::learn::metrics::{Metrics, Quality, log_loss};

/// The sum of the log losses of some examples, and the sum of their importance.
#[derive(Clone, Copy, Default)]
struct LossSum {
    mass: f64,
    loss: f64,
}

/// Sums over the examples. The learner predicts each example before it learns it.
pub(crate) struct PassSums {
    /// Examples learned in all passes.
    pub examples: u64,
    /// Occurrences that were added to another occurrence of the same key in the same example.
    pub merged: u64,
    first_pass: Metrics,
    /// The latest pass after the first: its number and sums.
    later: (u32, LossSum),
    /// The passes between the first and the latest.
    between: LossSum,
}

impl PassSums {
    /// Sums without examples.
    pub(crate) fn new() -> PassSums {
        let (later, between) = ((0, LossSum::default()), LossSum::default());
        PassSums { examples: 0, merged: 0, first_pass: Metrics::streaming(), later, between }
    }

    /// Adds a batch and the margins of its examples.
    pub(crate) fn add(&mut self, batch: &Batch, margins: &[f32]) {
        self.examples += batch.block.len() as u64;
        self.merged += batch.merged as u64;
        if batch.epoch > 0 && self.later.0 != batch.epoch {
            let (_, before) = std::mem::replace(&mut self.later, (batch.epoch, LossSum::default()));
            self.between.mass += before.mass;
            self.between.loss += before.loss;
        }
        for (i, (&margin, &label)) in margins.iter().zip(&batch.block.labels).enumerate() {
            let importance = batch.block.importance(i);
            if batch.epoch == 0 {
                self.first_pass.add(margin, label, importance);
            } else {
                self.later.1.mass += f64::from(importance);
                self.later.1.loss += f64::from(importance) * log_loss(margin, label);
            }
        }
    }

    /// Sums of importance and loss over the examples of all passes.
    pub(crate) fn all(&self) -> (f64, f64) {
        let (mass, loss) = self.first_pass.sums();
        let later = self.later.1;
        (mass + self.between.mass + later.mass, loss + self.between.loss + later.loss)
    }

    /// The mean log loss so far of the current pass.
    pub(crate) fn log_loss(&self, epoch: u32) -> f64 {
        if epoch == 0 { self.first_pass.log_loss() } else { self.later.1.loss / self.later.1.mass }
    }

    /// The AUC of the first pass so far.
    pub(crate) fn auc(&mut self) -> Option<f64> {
        self.first_pass.auc()
    }

    /// The quality of the first pass, and the mean log loss of the latest pass.
    pub(crate) fn quality(&mut self) -> (Option<Quality>, Option<f64>) {
        let first = self.first_pass.quality();
        let later = self.later.1;
        let last =
            if later.mass > 0.0 { Some(later.loss / later.mass) } else { first.as_ref().map(|q| q.log_loss) };
        (first, last)
    }
}
