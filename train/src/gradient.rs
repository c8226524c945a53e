//! Gradients: the worker computes each key's gradient over a batch at the weights that it pulled and pushes it; the rule
//! runs on the servers. For the rules whose state does not add up (DESIGN.md section 6), and for whoever asks.
//!
//! A key's gradient is the sum over the batch's examples, not the mean: a key that one example has moves as far as the
//! online learner moves it, whatever the batch, and a batch of one example is that learner. Means per batch would starve
//! rare keys, and means per key lose more than sums do (log loss .54354 against .54233 at batch 256; spikes/train/FACTS.md).
//! A pull of weights misses the own pushes that are still under way, at most as many as batches are pulled ahead: they
//! cannot be overlaid as changes of state can, only the rule knows what comes of a gradient.

use crate::batch::Batch;
use crate::lr::{LANES, total};
use crate::metrics::sigmoid;

/// The gradients of logistic regression.
#[derive(Debug, Default)]
pub struct Gradients {
    gradients: Vec<f32>,
    not_finite: u64,
}

impl Gradients {
    /// Rows of examples that were left out because their margin was NaN: one bad example must not spoil its batch.
    pub fn not_finite(&self) -> u64 {
        self.not_finite
    }

    /// `values` holds the weight of each of the batch's keys and becomes the gradient of the batch's log loss (the sum
    /// over its examples) with respect to it; `margins` gets each example's margin.
    ///
    /// # Panics
    /// When `values` is not one weight for each of the batch's keys.
    pub fn compute(&mut self, batch: &Batch, values: &mut Vec<f32>, margins: &mut Vec<f32>) {
        assert_eq!(values.len(), batch.keys.len(), "a weight for each key");
        self.gradients.clear();
        self.gradients.resize(values.len(), 0.0);
        margins.clear();
        let block = &batch.block;
        for (i, &label) in block.labels.iter().enumerate() {
            let range = block.range(i);
            let (local, features) = (&batch.local[range.clone()], &block.values[range]);
            let margin = margin(local, features, values);
            margins.push(margin);
            let error = sigmoid(margin) - label;
            if !error.is_finite() {
                self.not_finite += local.len() as u64;
                continue;
            }
            for (&at, x) in local.iter().zip(features) {
                self.gradients[at as usize] += error * x;
            }
        }
        std::mem::swap(values, &mut self.gradients);
    }
}

/// The weighted sum of an example's features.
#[inline(always)]
fn margin(local: &[u32], features: &[f32], weights: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (local, features) in local.chunks(LANES).zip(features.chunks(LANES)) {
        for ((sum, &at), x) in sums.iter_mut().zip(local).zip(features) {
            *sum += weights[at as usize] * x;
        }
    }
    total(sums)
}
