//! Adam: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, in the form at the end of its
//! section 2: `eps` is added to the uncorrected root. TensorFlow's `ApplyAdam` has the same form. With `decay`
//! it is AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019. AMSGrad: Reddi,
//! Kale, Kumar, "On the Convergence of Adam and Beyond", ICLR 2018, as TensorFlow's `ApplyAdamWithAmsgrad`.
//!
//! Sparse rows are updated lazily: a row steps only when it is pushed to, and its bias correction counts its own steps.
//! The row stores `1 - beta^t` itself, as a decaying average of ones: `c = beta * c + (1 - beta)`. This needs no power,
//! has the same bits on every machine, and no step count can overflow.

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, sweep};
use crate::{RuleError, Update};

/// ```text
/// m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2
/// w = w * (1 - lr * decay) - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)
/// ```
/// The row is `[w, m, v]`, then two scalars: `1 - beta1^t` and `1 - beta2^t` for the row's own step count `t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// The weight of the past in `m`: at least 0, below 1.
    pub beta1: f32,
    /// The weight of the past in `v`: at least 0, below 1.
    pub beta2: f32,
    /// Keeps the steps finite: finite, above 0.
    pub eps: f32,
    /// Decoupled weight decay: finite, at least 0, `lr * decay` at most 1.
    pub decay: f32,
}

/// As [`Adam`], but it divides by the largest `v` so far: `h = max(h, v)`, and `sqrt(h)` replaces `sqrt(v)`. The row is
/// `[w, m, v, h]`, then Adam's two scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmsGrad {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// The weight of the past in `m`: at least 0, below 1.
    pub beta1: f32,
    /// The weight of the past in `v`: at least 0, below 1.
    pub beta2: f32,
    /// Keeps the steps finite: finite, above 0.
    pub eps: f32,
    /// Decoupled weight decay: finite, at least 0, `lr * decay` at most 1.
    pub decay: f32,
}

/// A row's step size, after the row's scalars have stepped.
struct AdamStep {
    adam: Adam,
    /// The factor of `m / (sqrt(v) + eps)`.
    alpha: f32,
    /// The factor of the weight.
    keep: f32,
}

impl Adam {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.check_as("adam")
    }

    fn check_as(&self, name: &'static str) -> Result<(), RuleError> {
        let checks = Checks(name);
        checks.positive("lr", self.lr)?;
        checks.below_one("beta1", self.beta1)?;
        checks.below_one("beta2", self.beta2)?;
        checks.positive("eps", self.eps)?;
        checks.at_least_zero("decay", self.decay)?;
        checks.that(
            self.lr * self.decay <= 1.0,
            "decay",
            self.decay,
            "such that lr * decay is at most 1: more would flip a weight's sign",
        )
    }

    /// Steps a row's two scalars.
    #[inline(always)]
    fn begin(&self, scalars: &mut [f32]) -> AdamStep {
        scalars[0] = self.beta1 * scalars[0] + (1.0 - self.beta1);
        scalars[1] = self.beta2 * scalars[1] + (1.0 - self.beta2);
        let (alpha, keep) = (self.lr * scalars[1].sqrt() / scalars[0], 1.0 - self.lr * self.decay);
        AdamStep { adam: *self, alpha, keep }
    }
}

impl AdamStep {
    #[inline(always)]
    fn averages<L: Lanes>(&self, m: L, v: L, g: L) -> (L, L) {
        let Adam { beta1, beta2, .. } = self.adam;
        let m = g.splat(beta1) * m + g.splat(1.0 - beta1) * g;
        (m, g.splat(beta2) * v + g.splat(1.0 - beta2) * (g * g))
    }

    /// The new weight. The step divides by the root of `over`.
    #[inline(always)]
    fn weight<L: Lanes>(&self, w: L, m: L, over: L) -> L {
        w * w.splat(self.keep) - w.splat(self.alpha) * m / (over.sqrt() + w.splat(self.adam.eps))
    }
}

impl CoordinateStep<3> for AdamStep {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, m, v]: [L; 3], g: L) -> [L; 3] {
        let (m, v) = self.averages(m, v, g);
        [self.weight(w, m, v), m, v]
    }
}

impl CoordinateStep<4> for AdamStep {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, m, v, h]: [L; 4], g: L) -> [L; 4] {
        let (m, v) = self.averages(m, v, g);
        // A NaN in v makes h NaN too.
        let h = h.larger(v);
        [self.weight(w, m, h), m, v, h]
    }
}

impl AmsGrad {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.adam().check_as("amsgrad")
    }

    #[inline(always)]
    fn adam(&self) -> Adam {
        let AmsGrad { lr, beta1, beta2, eps, decay } = *self;
        Adam { lr, beta1, beta2, eps, decay }
    }
}

#[inline(always)]
fn fresh(weights: &[f32], row: &mut [f32]) {
    row[..weights.len()].copy_from_slice(weights);
    row[weights.len()..].fill(0.0);
}

impl Update for Adam {
    const PLANES: usize = 3;
    const SQUARES: usize = 1;
    const SCALARS: usize = 2;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), Self::floats(weights.len()));
        fresh(weights, row);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), Self::floats(gradient.len()));
        let (planes, scalars) = row.split_at_mut(3 * gradient.len());
        sweep::<I, 3>(isa, planes, gradient, self.begin(scalars));
    }
}

impl Update for AmsGrad {
    const PLANES: usize = 4;
    const SQUARES: usize = 2;
    const SCALARS: usize = 2;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), Self::floats(weights.len()));
        fresh(weights, row);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), Self::floats(gradient.len()));
        let (planes, scalars) = row.split_at_mut(4 * gradient.len());
        sweep::<I, 4>(isa, planes, gradient, self.adam().begin(scalars));
    }
}
