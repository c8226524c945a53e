//! FTRL-Proximal, per coordinate, with L1 and L2: McMahan et al., "Ad Click Prediction: a View from the
//! Trenches", KDD 2013, algorithm 1.

use crate::arch::{Isa, Lanes};
use crate::error::Checks;
use crate::slices::{CoordinateStep, Derive, derive, sweep};
use crate::{RuleError, Update};

/// The row is `[z, n]`. `n` is the sum of `g^2`; its root is not stored, so that changes of several workers add up. `z`
/// is the sum of `g - sigma * w`. The weight is computed from them whenever it is read:
/// ```text
/// w     = 0 where |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / alpha + l2)
/// sigma = (sqrt(n + g^2) - sqrt(n)) / alpha
/// z    += g - sigma * w;  n += g^2
/// ```
/// A free row has no penalties. Its `n` is the negative of the sum of `g^2`: that says that it is free, and changes of
/// several workers add up here, too:
/// ```text
/// w     = -z / ((beta + sqrt(-n)) / alpha)
/// sigma = (sqrt(-n + g^2) - sqrt(-n)) / alpha
/// z    += g - sigma * w;  n -= g^2
/// ```
/// Its `n` begins at `-f32::MIN_POSITIVE`, because a sum with 0 keeps that sign. A rule without penalties has no free
/// rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ftrl {
    /// The learning rate's numerator: finite, above 0, its reciprocal finite.
    pub alpha: f32,
    /// The learning rate's offset: finite, at least 0, and above 0 when `l2` is 0.
    pub beta: f32,
    /// Strength of the L1 term: finite, at least 0.
    pub l1: f32,
    /// Strength of the L2 term: finite, at least 0.
    pub l2: f32,
}

impl Ftrl {
    /// The weight of one coordinate, or of a register of them, from `z` and the root of `n`. It is never `-0`.
    #[inline(always)]
    pub fn weight<L: Lanes>(&self, z: L, sqrt_n: L) -> L {
        // There is no branch. A loop computes 1 / alpha only once.
        let of = |x: f32| z.splat(x);
        let beyond = (z.abs() - of(self.l1)).larger(of(0.0));
        (of(0.0) - beyond.copysign(z)) / ((of(self.beta) + sqrt_n) * of(1.0 / self.alpha) + of(self.l2))
    }

    /// One coordinate's `(z, n)` after the gradient `g`, where `weight` is the weight before it. This is for loops that
    /// have computed the weight already; [`Update::update`] gives the same bits.
    #[inline(always)]
    pub fn step<L: Lanes>(&self, z: L, n: L, weight: L, g: L) -> (L, L) {
        let next = n + g * g;
        let sigma = (next.sqrt() - n.sqrt()) * g.splat(1.0 / self.alpha);
        (z + (g - sigma * weight), next)
    }

    /// Whether a free row differs from others.
    #[inline(always)]
    pub fn has_penalty(&self) -> bool {
        self.l1 > 0.0 || self.l2 > 0.0
    }

    /// The rule without penalties.
    #[inline(always)]
    pub fn without_penalty(self) -> Ftrl {
        Ftrl { l1: 0.0, l2: 0.0, ..self }
    }

    /// `z` of a coordinate that has `n = 0` and the weight `w`.
    #[inline(always)]
    fn z_of(&self, w: f32) -> f32 {
        let z = w * (self.beta * (1.0 / self.alpha) + self.l2) + self.l1.copysign(w);
        if w == 0.0 { 0.0 } else { -z }
    }

    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.check_as("ftrl")
    }

    pub(crate) fn check_as(&self, name: &'static str) -> Result<(), RuleError> {
        let Self { alpha, beta, l1, l2 } = *self;
        let checks = Checks(name);
        checks.positive("alpha", alpha)?;
        checks.that((1.0 / alpha).is_finite(), "alpha", alpha, "large enough for a finite 1 / alpha")?;
        checks.at_least_zero("beta", beta)?;
        checks.at_least_zero("l1", l1)?;
        checks.at_least_zero("l2", l2)?;
        // A fresh row's weight is 0 / (beta / alpha + l2).
        let fresh = beta * (1.0 / alpha) + l2;
        let allowed = "such that beta / alpha + l2 is finite and above 0";
        checks.that(fresh.is_finite() && fresh > 0.0, "beta", beta, allowed)
    }
}

/// `n` of a free row that begins.
const FREE: f32 = -f32::MIN_POSITIVE;

/// The rule of a free row: FTRL without penalties, on the negative of `n`.
#[derive(Clone, Copy)]
pub(crate) struct FreeRow(Ftrl);

impl FreeRow {
    /// The rule of this row with the second plane `n`. `None`: the row has penalties.
    #[inline(always)]
    pub(crate) fn of(rule: Ftrl, n: &[f32]) -> Option<FreeRow> {
        n.first().is_some_and(|n| *n < 0.0).then_some(FreeRow(rule.without_penalty()))
    }

    /// Writes a free row with these weights. Returns `false` where its weight would be 0 / 0: `beta` is 0 and `alpha`
    /// is huge.
    #[inline(always)]
    pub(crate) fn init(rule: Ftrl, weights: &[f32], row: &mut [f32]) -> bool {
        assert_eq!(row.len(), 2 * weights.len());
        let (z, n) = row.split_at_mut(weights.len());
        let scale = (rule.beta + (-FREE).sqrt()) * (1.0 / rule.alpha);
        z.iter_mut().zip(weights).for_each(|(z, w)| *z = 0.0 - w * scale);
        n.fill(FREE);
        scale > 0.0
    }

    /// Whether `n` is the second plane of a row that is free as a whole.
    #[inline(always)]
    pub(crate) fn is_sound(n: &[f32]) -> bool {
        n.iter().all(|n| *n < 0.0)
    }
}

impl CoordinateStep<2> for FreeRow {
    #[inline(always)]
    fn step<L: Lanes>(&self, [z, n]: [L; 2], g: L) -> [L; 2] {
        let zero = g.splat(0.0);
        let [z, n] = CoordinateStep::step(&self.0, [z, zero - n], g);
        [z, zero - n]
    }
}

impl Derive<2> for FreeRow {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [z, n]: [L; 2]) -> L {
        self.0.derive([z, z.splat(0.0) - n])
    }
}

impl CoordinateStep<2> for Ftrl {
    #[inline(always)]
    fn step<L: Lanes>(&self, [z, n]: [L; 2], g: L) -> [L; 2] {
        let (z, n) = Ftrl::step(self, z, n, self.weight(z, n.sqrt()), g);
        [z, n]
    }
}

impl Derive<2> for Ftrl {
    #[inline(always)]
    fn derive<L: Lanes>(&self, [z, n]: [L; 2]) -> L {
        self.weight(z, n.sqrt())
    }
}

impl Update for Ftrl {
    const PLANES: usize = 2;
    const SQUARES: usize = 1;
    const DERIVES: bool = true;

    /// `weights()` returns the weights to within `2^-23 * (2 |w| + l1 / (beta / alpha + l2))`. With a large `l1`, small
    /// weights lose digits in `z`.
    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        assert_eq!(row.len(), 2 * weights.len());
        let (z, n) = row.split_at_mut(weights.len());
        for (z, w) in z.iter_mut().zip(weights) {
            *z = self.z_of(*w);
        }
        n.fill(0.0);
    }

    #[inline(always)]
    fn init_free(&self, weights: &[f32], row: &mut [f32]) {
        if !(self.has_penalty() && FreeRow::init(*self, weights, row)) {
            self.init(weights, row);
        }
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        assert_eq!(row.len(), 2 * gradient.len());
        match FreeRow::of(*self, &row[gradient.len()..]) {
            Some(free) if self.has_penalty() => sweep(isa, row, gradient, free),
            _ => sweep(isa, row, gradient, *self),
        }
    }

    #[inline(always)]
    fn weights_on<I: Isa>(&self, isa: I, row: &[f32], out: &mut [f32]) {
        assert_eq!(row.len(), 2 * out.len());
        match FreeRow::of(*self, &row[out.len()..]) {
            Some(free) if self.has_penalty() => derive(isa, row, out, free),
            _ => derive(isa, row, out, *self),
        }
    }

    #[inline(always)]
    fn is_sound_free(&self, row: &[f32]) -> bool {
        self.is_sound(row) || (self.has_penalty() && FreeRow::is_sound(&row[row.len() / 2..]))
    }
}
