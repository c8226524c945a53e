//! Adam: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, in the form of the end of its section 2
//! (`eps` beside the uncorrected root), which is TensorFlow's `ApplyAdam`; with `decay` AdamW: Loshchilov and Hutter,
//! "Decoupled Weight Decay Regularization", ICLR 2019. AMSGrad: Reddi, Kale, Kumar, "On the Convergence of Adam and
//! Beyond", ICLR 2018, as TensorFlow's `ApplyAdamWithAmsgrad`.
//!
//! Sparse rows are updated lazily: a row steps when it is pushed to, and its bias correction counts its own steps.
//! `1 - beta^t` is kept as what it is, the same decaying average taken over ones: `c = beta * c + (1 - beta)`. That
//! needs no power, has the same bits everywhere, and never counts past what a float can count.

use crate::error::Checks;
use crate::slices::{none_negative, sweep};
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

/// As [`Adam`], but dividing by the largest `v` so far: `h = max(h, v)`, and `sqrt(h)` in place of `sqrt(v)`. The row is
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

/// What a row's step multiplies by, once the row's scalars have stepped.
struct Rates {
    /// Of `m / (sqrt(v) + eps)`.
    alpha: f32,
    /// Of the weight.
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
            "such that lr * decay is at most 1: more would turn a weight's sign",
        )
    }

    /// Steps a row's two scalars.
    #[inline(always)]
    fn rates(&self, scalars: &mut [f32]) -> Rates {
        scalars[0] = self.beta1 * scalars[0] + (1.0 - self.beta1);
        scalars[1] = self.beta2 * scalars[1] + (1.0 - self.beta2);
        Rates { alpha: self.lr * scalars[1].sqrt() / scalars[0], keep: 1.0 - self.lr * self.decay }
    }

    #[inline(always)]
    fn averages(&self, m: f32, v: f32, g: f32) -> (f32, f32) {
        (self.beta1 * m + (1.0 - self.beta1) * g, self.beta2 * v + (1.0 - self.beta2) * (g * g))
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
    const SCALARS: usize = 2;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), Self::floats(weights.len()));
        fresh(weights, row);
    }

    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        none_negative(&row[(row.len() - 2) / 3 * 2..])
    }

    #[inline(always)]
    fn update(&self, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), Self::floats(gradient.len()));
        let (planes, scalars) = row.split_at_mut(3 * gradient.len());
        let Rates { alpha, keep } = self.rates(scalars);
        sweep(planes, gradient, |[w, m, v], g| {
            let (m, v) = self.averages(m, v, g);
            [w * keep - alpha * m / (v.sqrt() + self.eps), m, v]
        });
    }
}

impl Update for AmsGrad {
    const PLANES: usize = 4;
    const SCALARS: usize = 2;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), Self::floats(weights.len()));
        fresh(weights, row);
    }

    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        none_negative(&row[(row.len() - 2) / 4 * 2..])
    }

    #[inline(always)]
    fn update(&self, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), Self::floats(gradient.len()));
        let (planes, scalars) = row.split_at_mut(4 * gradient.len());
        let adam = self.adam();
        let Rates { alpha, keep } = adam.rates(scalars);
        sweep(planes, gradient, |[w, m, v, h], g| {
            let (m, v) = adam.averages(m, v, g);
            // Not f32::max, which hides NaN.
            let h = if h > v { h } else { v };
            [w * keep - alpha * m / (h.sqrt() + self.eps), m, v, h]
        });
    }
}
