//! Plain stochastic gradient descent (Robbins and Monro 1951): no momentum, no decay.

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, GradientLanes, sweep, sweep_lanes};
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

impl CoordinateStep<1> for Sgd {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w]: [L; 1], g: L) -> [L; 1] {
        [w - g.splat(self.lr) * g]
    }
}

impl Update for Sgd {
    const PLANES: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        row.copy_from_slice(weights);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        sweep(isa, row, gradient, *self);
    }

    #[inline(always)]
    fn descend_on<I: Isa, G: GradientLanes<I>>(
        &self,
        isa: I,
        row: &mut [f32],
        _: &mut [f32],
        gradient: &G,
        scratch: &mut [f32],
    ) {
        sweep_lanes(isa, row, scratch.len(), gradient, *self);
    }
}
