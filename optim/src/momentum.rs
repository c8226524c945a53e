//! Gradient descent with momentum: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964;
//! with `nesterov` the form of Sutskever et al., "On the importance of initialization and momentum in deep learning",
//! ICML 2013. Both as TensorFlow's `ApplyMomentum` and `torch.optim.SGD` have them: the rate multiplies the whole step.

use crate::error::Checks;
use crate::slices::sweep2;
use crate::{RuleError, Update};

/// `m = momentum * m + g; w -= lr * m`, and with `nesterov` `w -= lr * (g + momentum * m)`. The row is `[w, m]`.
/// A row that is not pushed to stands still: its `m` decays with its own pushes only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// The weight of the past: at least 0, below 1.
    pub momentum: f32,
    /// Whether the step looks ahead.
    pub nesterov: bool,
}

impl Momentum {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let checks = Checks("momentum");
        checks.positive("lr", self.lr)?;
        checks.below_one("momentum", self.momentum)
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
    fn update(&self, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), 2 * gradient.len());
        let (w, m) = row.split_at_mut(gradient.len());
        let Momentum { lr, momentum, nesterov } = *self;
        if nesterov {
            sweep2(w, m, gradient, |w, m, g| {
                let m = momentum * m + g;
                (w - lr * (g + momentum * m), m)
            });
        } else {
            sweep2(w, m, gradient, |w, m, g| {
                let m = momentum * m + g;
                (w - lr * m, m)
            });
        }
    }
}
