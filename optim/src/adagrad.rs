//! AdaGrad with a diagonal matrix: Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning and
//! Stochastic Optimization", JMLR 12 (2011). `eps` is added outside the root, as in `torch.optim.Adagrad` and
//! TensorFlow's `ApplyAdagradV2`.

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, GradientLanes, sweep, sweep_lanes};
use crate::{RuleError, Update};

/// `s += g^2; w -= lr * g / (sqrt(s) + eps)`, each coordinate by itself. The row is `[w, s]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaGrad {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// Keeps the first steps finite: finite, at least 0, and above 0 when `initial_accumulator` is 0.
    pub eps: f32,
    /// `s` of a fresh row: finite, at least 0.
    pub initial_accumulator: f32,
}

impl AdaGrad {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.check_as("adagrad")
    }

    pub(crate) fn check_as(&self, name: &'static str) -> Result<(), RuleError> {
        let (checks, sum) = (Checks(name), self.eps + self.initial_accumulator);
        checks.positive("lr", self.lr)?;
        checks.at_least_zero("eps", self.eps)?;
        checks.at_least_zero("initial_accumulator", self.initial_accumulator)?;
        // 0 / (sqrt(0) + 0) would be the first step of a zero gradient.
        checks.that(sum > 0.0, "eps", self.eps, "above 0 when the initial accumulator is 0")
    }
}

impl CoordinateStep<2> for AdaGrad {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, s]: [L; 2], g: L) -> [L; 2] {
        let s = s + g * g;
        [w - g.splat(self.lr) * g / (s.sqrt() + g.splat(self.eps)), s]
    }
}

impl Update for AdaGrad {
    const PLANES: usize = 2;
    const SQUARES: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), 2 * weights.len());
        let (w, s) = row.split_at_mut(weights.len());
        w.copy_from_slice(weights);
        s.fill(self.initial_accumulator);
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
