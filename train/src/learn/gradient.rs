//! Gradients: the worker computes each key's gradient over a batch at the weights that it pulled, and pushes it. The
//! server runs the rule. This mode is for rules whose state does not add up, and for `--push gradient`.
//!
//! A pull of weights misses the own pushes that are still in flight: at most as many as batches are pulled ahead. They
//! cannot be added to the pulled weights like changes of state, because only the rule knows what a gradient does.

use crate::batch::Batch;
use crate::learn::lr::{LANES, total};
use crate::learn::metrics::sigmoid;
use gannet_optim::Rule;

/// How a key's gradients in the examples of a batch become one gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// They are added.
    Sum,
    /// They are averaged over the examples that have the key, except those of importance 0.
    Mean,
}

impl Reduce {
    /// The reduction for a rule. FTRL and AdaGrad divide by the gradients they have seen, and learn more from a sum
    /// than from a mean per key. Adam and RMSProp do not depend on the scale. A step of SGD and of momentum is as
    /// long as the gradient. Published rates for them assume means, and a sum over hundreds of examples of a common
    /// key overshoots until it diverges. The mean is over the examples of the key, not of the batch, so that a rare
    /// key moves as far as in online learning.
    pub fn suits(rule: &Rule) -> Reduce {
        match rule.f32_rule() {
            Rule::Sgd(_) | Rule::Momentum(_) => Reduce::Mean,
            _ => Reduce::Sum,
        }
    }

    /// "sum", "mean".
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Mean => "mean",
        }
    }
}

/// Computes the gradients of logistic regression.
#[derive(Debug)]
pub struct Gradients {
    reduce: Reduce,
    gradients: Vec<f32>,
    /// Examples that have each key, for --reduce mean.
    counts: Vec<u32>,
    not_finite: u64,
}

impl Gradients {
    /// A computation for batches of any size.
    pub fn new(reduce: Reduce) -> Gradients {
        Gradients { reduce, gradients: Vec::new(), counts: Vec::new(), not_finite: 0 }
    }

    /// Rows of examples that were left out because their margin was not finite: one bad example must not spoil its
    /// batch.
    pub fn not_finite(&self) -> u64 {
        self.not_finite
    }

    /// Computes the gradients of the examples' log loss, summed or averaged. `values` holds the weight of each of the
    /// batch's keys, and the gradients replace them. `margins` gets each example's margin.
    ///
    /// # Panics
    /// When `values` does not have one weight for each of the batch's keys.
    pub fn compute(&mut self, batch: &Batch, values: &mut Vec<f32>, margins: &mut Vec<f32>) {
        assert_eq!(values.len(), batch.keys.len(), "a weight for each key");
        let Gradients { reduce, gradients, counts, not_finite } = self;
        gradients.clear();
        gradients.resize(values.len(), 0.0);
        counts.clear();
        counts.resize(values.len(), 0);
        margins.clear();
        let block = &batch.block;
        for (i, &label) in block.labels.iter().enumerate() {
            let range = block.range(i);
            let (local, features) = (&batch.local[range.clone()], &block.values[range]);
            let margin = margin(local, features, values) + block.base(i);
            margins.push(margin);
            let importance = block.importance(i);
            let error = (sigmoid(margin) - label) * importance;
            if !error.is_finite() {
                *not_finite += local.len() as u64;
                continue;
            }
            for (&at, x) in local.iter().zip(features) {
                gradients[at as usize] += error * x;
            }
            if *reduce == Reduce::Mean && importance > 0.0 {
                local.iter().for_each(|&at| counts[at as usize] += 1);
            }
        }
        if *reduce == Reduce::Mean {
            // A key that only left-out examples have gets gradient 0.
            gradients.iter_mut().zip(counts).for_each(|(g, n)| *g /= (*n).max(1) as f32);
        }
        std::mem::swap(values, gradients);
    }
}

/// The weighted sum of an example's features, in lanes: in a single sum each addition would wait for the one before.
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
