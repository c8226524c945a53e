//! Plain stochastic gradient descent (Robbins and Monro 1951): no momentum, no decay.

use crate::error::Checks;
use crate::slices::sweep1;
use crate::{RuleError, Update};

/// `w -= lr * g`. The row is `[w]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The learning rate: finite, above 0.
    pub lr: f32,
}

impl Sgd {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        Checks("sgd").positive("lr", self.lr)
    }
}

impl Update for Sgd {
    const PLANES: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        row.copy_from_slice(weights);
    }

    #[inline(always)]
    fn update(&self, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), gradient.len());
        sweep1(row, gradient, |w, g| w - self.lr * g);
    }
}
