//! FTRL-Proximal with a group lasso over the row (L2,1): Ni et al., "Feature Selection for Facebook Feed Ranking System
//! via a Group-Sparsity-Regularized Training Algorithm", CIKM 2019. A row whose weights together are small is zero as a
//! whole, so a useless factor vector can be dropped.

use crate::arch::{Isa, Lanes, Scalar};
use crate::error::Checks;
use crate::ftrl::{FreeRow, Ftrl};
use crate::slices::{CoordinateStep, Derive, derive, squares, sweep};
use crate::{RuleError, Update};

/// The row is `[z, n]`; `z` and `n` step as in [`Ftrl`]. With `s = z - sign(z) * l1` where `|z| > l1`, else 0:
/// ```text
/// w = 0 for the whole row where |s|_2 <= l21 * sqrt(dim),
///     else -(1 - l21 * sqrt(dim) / |s|_2) * s / ((beta + sqrt(n)) / alpha + l2)
/// ```
/// A row is 0 exactly if 0 minimises FTRL's objective with `l21 * sqrt(dim) * |w|_2` added. Another row is the minimum
/// if its coordinates have seen equal sums of squares; otherwise it is the paper's closed form. With `l21` 0 this is
/// [`Ftrl`], bit for bit. Free rows are as those of [`Ftrl`], and have no `l21` either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupFtrl {
    /// The learning rate's numerator: finite, above 0, its reciprocal finite.
    pub alpha: f32,
    /// The learning rate's offset: finite, at least 0, and above 0 when `l2` is 0.
    pub beta: f32,
    /// Strength of the L1 term: finite, at least 0.
    pub l1: f32,
    /// Strength of the L2 term: finite, at least 0.
    pub l2: f32,
    /// Strength of the group term: finite, at least 0.
    pub l21: f32,
}

impl GroupFtrl {
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.ftrl().check_as("group-ftrl")?;
        Checks("group-ftrl").at_least_zero("l21", self.l21)
    }

    /// Whether a free row differs from others.
    #[inline(always)]
    pub fn has_penalty(&self) -> bool {
        self.ftrl().has_penalty() || self.l21 > 0.0
    }

    /// The rule without the group term.
    #[inline(always)]
    pub fn ftrl(&self) -> Ftrl {
        let GroupFtrl { alpha, beta, l1, l2, .. } = *self;
        Ftrl { alpha, beta, l1, l2 }
    }

    /// The row with these `z` as FTRL sees it, and the factor of its weights. The factor is 0 for a row below the
    /// threshold.
    #[inline(always)]
    fn share<I: Isa>(&self, isa: I, z: &[f32]) -> ScaledFtrl {
        let (ftrl, mut share) = (self.ftrl(), 1.0);
        if self.l21 != 0.0 {
            let (norm, least) = (squares(isa, z, ThresholdExcess(self.l1)).sqrt(), self.least(z.len()));
            share = if norm > least { 1.0 - least / norm } else { 0.0 };
        }
        ScaledFtrl { ftrl, share }
    }

    #[inline(always)]
    fn least(&self, dim: usize) -> f32 {
        self.l21 * (dim as f32).sqrt()
    }
}

/// A row of FTRL whose weights are multiplied by `share`.
struct ScaledFtrl {
    ftrl: Ftrl,
    share: f32,
}

impl Derive<2> for ScaledFtrl {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [z, n]: [L; 2]) -> L {
        // + 0, so that a weight is never -0.
        self.ftrl.weight(z, n.sqrt()) * z.splat(self.share) + z.splat(0.0)
    }
}

impl CoordinateStep<2> for ScaledFtrl {
    #[inline(always)]
    fn step<L: Lanes>(&self, [z, n]: [L; 2], g: L) -> [L; 2] {
        let (z, n) = self.ftrl.step(z, n, self.derive([z, n]), g);
        [z, n]
    }
}

/// How far a `z` is beyond `l1`.
struct ThresholdExcess(f32);

impl Derive<1> for ThresholdExcess {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [z]: [L; 1]) -> L {
        (z.abs() - z.splat(self.0)).larger(z.splat(0.0))
    }
}

struct Times(f32);

impl Derive<1> for Times {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [v]: [L; 1]) -> L {
        v * v.splat(self.0)
    }
}

impl Update for GroupFtrl {
    const PLANES: usize = 2;
    const SQUARES: usize = 1;
    const DERIVES: bool = true;

    /// `weights()` returns the weights as precisely as [`Ftrl`] does with `l1 + l21 * sqrt(dim)` in place of `l1`.
    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), 2 * weights.len());
        let (z, n) = row.split_at_mut(weights.len());
        let scale = self.beta * (1.0 / self.alpha) + self.l2;
        let norm = squares(Scalar, weights, Times(scale)).sqrt();
        let grow = if norm > 0.0 { 1.0 + self.least(weights.len()) / norm } else { 1.0 };
        for (z, &w) in z.iter_mut().zip(weights) {
            *z = if w == 0.0 { 0.0 } else { -(w * scale * grow + self.l1.copysign(w)) };
        }
        n.fill(0.0);
    }

    #[inline(always)]
    fn init_free(&self, weights: &[f32], row: &mut [f32]) {
        if !(self.has_penalty() && FreeRow::init(self.ftrl(), weights, row)) {
            self.init(weights, row);
        }
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), 2 * gradient.len());
        match FreeRow::of(self.ftrl(), &row[gradient.len()..]) {
            Some(free) if self.has_penalty() => sweep(isa, row, gradient, free),
            _ => sweep(isa, row, gradient, self.share(isa, &row[..gradient.len()])),
        }
    }

    #[inline(always)]
    fn weights_on<I: Isa>(&self, isa: I, row: &[f32], out: &mut [f32]) {
        assert_eq!(row.len(), 2 * out.len());
        match FreeRow::of(self.ftrl(), &row[out.len()..]) {
            Some(free) if self.has_penalty() => derive(isa, row, out, free),
            _ => derive(isa, row, out, self.share(isa, &row[..out.len()])),
        }
    }

    #[inline(always)]
    fn is_sound_free(&self, row: &[f32]) -> bool {
        self.is_sound(row) || (self.has_penalty() && FreeRow::is_sound(&row[row.len() / 2..]))
    }
}
