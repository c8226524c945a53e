//! Gradient descent with momentum: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
//! With `nesterov` it has the form of Sutskever et al., "On the importance of initialization and momentum in deep
//! learning", ICML 2013. Both agree with TensorFlow's `ApplyMomentum` and `torch.optim.SGD`: the rate multiplies the
//! whole step.

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, sweep};
use crate::{RuleError, Update};

/// `m = momentum * m + g; w -= lr * m`, and with `nesterov` `w -= lr * (g + momentum * m)`. The row is `[w, m]`. A row
/// changes only when it is pushed to; its `m` decays with its own pushes only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// The weight of the past: at least 0, below 1.
    pub momentum: f32,
    /// Whether the step looks ahead (Nesterov).
    pub nesterov: bool,
}

impl Momentum {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let checks = Checks("momentum");
        checks.positive("lr", self.lr)?;
        checks.below_one("momentum", self.momentum)
    }
}

impl CoordinateStep<2> for Momentum {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, m]: [L; 2], g: L) -> [L; 2] {
        let m = g.splat(self.momentum) * m + g;
        [w - g.splat(self.lr) * m, m]
    }
}

/// Nesterov's step.
struct NesterovWeights(Momentum);

impl CoordinateStep<2> for NesterovWeights {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w, m]: [L; 2], g: L) -> [L; 2] {
        let (lr, momentum) = (g.splat(self.0.lr), g.splat(self.0.momentum));
        let m = momentum * m + g;
        [w - lr * (g + momentum * m), m]
    }
}

impl Update for Momentum {
    const PLANES: usize = 2;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), 2 * weights.len());
        let (w, m) = row.split_at_mut(weights.len());
        w.copy_from_slice(weights);
        m.fill(0.0);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        if self.nesterov {
            sweep(isa, row, gradient, NesterovWeights(*self));
        } else {
            sweep(isa, row, gradient, *self);
        }
    }
}
