//! Plain stochastic gradient descent (Robbins and Monro 1951): no momentum, no decay.

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
        let ok = self.lr.is_finite() && self.lr > 0.0;
        RuleError::unless(ok, "sgd", "lr", self.lr, "finite and above 0")
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

    #[inline(always)]
    fn weights(&self, row: &[f32], out: &mut [f32]) {
        out.copy_from_slice(row);
    }
}
