//! RMSProp: Tieleman and Hinton, "Lecture 6.5", COURSERA: Neural Networks for Machine Learning, 2012. `eps` is
//! added inside the root, as in TensorFlow's `ApplyRMSProp` (without its momentum).

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, sweep};
use crate::{RuleError, Update};

/// `s = rho * s + (1 - rho) * g^2; w -= lr * g / sqrt(s + eps)`. The row is `[w, s]`. A row changes only when it is
/// pushed to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// The weight of the past: at least 0, below 1.
    pub rho: f32,
    /// Keeps the steps finite: finite, above 0.
    pub eps: f32,
}

impl RmsProp {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let checks = Checks("rmsprop");
        checks.positive("lr", self.lr)?;
        checks.below_one("rho", self.rho)?;
        checks.positive("eps", self.eps)
    }
}

impl CoordinateStep<2> for RmsProp {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, s]: [L; 2], g: L) -> [L; 2] {
        let s = g.splat(self.rho) * s + g.splat(1.0 - self.rho) * (g * g);
        [w - g.splat(self.lr) * g / (s + g.splat(self.eps)).sqrt(), s]
    }
}

impl Update for RmsProp {
    const PLANES: usize = 2;
    const SQUARES: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), 2 * weights.len());
        let (w, s) = row.split_at_mut(weights.len());
        w.copy_from_slice(weights);
        s.fill(0.0);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        sweep(isa, row, gradient, *self);
    }
}
