//! Row-wise AdaGrad: one accumulator a row instead of one a weight, which halves a long row. Embedding tables of
//! recommendation models use it (Naumov et al., "Deep Learning Recommendation Model for Personalization and
//! Recommendation Systems", 2019; torchrec's `RowWiseAdagrad`, FBGEMM's `EXACT_ROWWISE_ADAGRAD`).

use crate::arch::{Isa, Lanes};
use crate::slices::{CoordinateStep, Derive, squares, sweep};
use crate::{AdaGrad, RuleError, Update};

/// `s += mean(g^2); w -= lr * g / (sqrt(s) + eps)`. The row is `[w]`, then the scalar `s`. With one weight a row it is
/// [`AdaGrad`], bit for bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowAdaGrad {
    /// The learning rate: finite, above 0.
    pub lr: f32,
    /// Keeps the first steps finite: finite, at least 0, and above 0 when `initial_accumulator` is 0.
    pub eps: f32,
    /// `s` of a fresh row: finite, at least 0.
    pub initial_accumulator: f32,
}

impl RowAdaGrad {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let RowAdaGrad { lr, eps, initial_accumulator } = *self;
        AdaGrad { lr, eps, initial_accumulator }.check_as("row-adagrad")
    }
}

/// A row's step size, after its sum has stepped.
struct RowStep {
    lr: f32,
    root: f32,
}

impl CoordinateStep<1> for RowStep {
    #[inline(always)]
    fn step<L: Lanes>(&self, [w]: [L; 1], g: L) -> [L; 1] {
        [w - g.splat(self.lr) * g / g.splat(self.root)]
    }
}

struct Itself;

impl Derive<1> for Itself {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [v]: [L; 1]) -> L {
        v
    }
}

impl Update for RowAdaGrad {
    const PLANES: usize = 1;
    const SCALARS: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), weights.len() + 1);
        let (w, s) = row.split_at_mut(weights.len());
        w.copy_from_slice(weights);
        s[0] = self.initial_accumulator;
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), gradient.len() + 1);
        let (w, s) = row.split_at_mut(gradient.len());
        s[0] += squares(isa, gradient, Itself) / gradient.len() as f32;
        sweep(isa, w, gradient, RowStep { lr: self.lr, root: s[0].sqrt() + self.eps });
    }
}
