//! Rows whose weights are bfloat16: an f32 without its lower 16 bits. The weights take half the bytes, and keep the
//! range of an f32. The optimizer's state stays f32.
//!
//! A step computes in f32 and then rounds by chance: up with the probability of the part that is cut off. So the
//! expected weight is exact, and steps that are smaller than the distance between two bf16 add up. Nearest rounding
//! would lose them (Gupta and others, "Deep Learning with Limited Numerical Precision", ICML 2015). The chance is a
//! function of a number that the caller gives, so two copies of a row that take the same steps stay equal.

use crate::arch::{Isa, Work};
use crate::slices::none_negative;
use crate::{
    AdaGrad, Adam, AmsGrad, Cpu, Momentum, RmsProp, RowAdaGrad, Rule, RuleError, Sgd, Update, Visitor,
};
use std::cell::Cell;

/// A rule on rows whose weights are bf16. A row is the weights, two in a float, then the planes and scalars that the
/// rule has behind its weights. [`Rule::with_bf16_weights`] has an example.
///
/// Of `dim` weights the lower halves of the floats are the first ones, `dim / 2` rounded up, and the upper halves are
/// the others. With an odd number of weights the last upper half is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bf16<R> {
    rule: R,
    chance: u64,
}

/// The rules that [`Bf16`] works with: the first plane of their rows has the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bf16Rule {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// AdaGrad, per coordinate.
    AdaGrad(AdaGrad),
    /// Gradient descent with momentum.
    Momentum(Momentum),
    /// RMSProp.
    RmsProp(RmsProp),
    /// Adam, and AdamW.
    Adam(Adam),
    /// AMSGrad.
    AmsGrad(AmsGrad),
    /// AdaGrad with one accumulator a row.
    RowAdaGrad(RowAdaGrad),
}

impl Bf16Rule {
    /// The same rule on rows of f32.
    pub fn f32_rule(self) -> Rule {
        match self {
            Bf16Rule::Sgd(r) => Rule::Sgd(r),
            Bf16Rule::AdaGrad(r) => Rule::AdaGrad(r),
            Bf16Rule::Momentum(r) => Rule::Momentum(r),
            Bf16Rule::RmsProp(r) => Rule::RmsProp(r),
            Bf16Rule::Adam(r) => Rule::Adam(r),
            Bf16Rule::AmsGrad(r) => Rule::AmsGrad(r),
            Bf16Rule::RowAdaGrad(r) => Rule::RowAdaGrad(r),
        }
    }

    pub(crate) fn at_rate(self, factor: f32) -> Bf16Rule {
        match self.f32_rule().at_rate(factor).with_bf16_weights() {
            Ok(Rule::Bf16(rule)) => rule,
            _ => self, // not reached: another rate does not change which rule it is
        }
    }

    /// Runs `work` with the rule and the instruction set as types.
    #[inline]
    pub(crate) fn work<W: Work>(self, cpu: Cpu, work: W) -> W::Out {
        match self {
            Bf16Rule::Sgd(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::AdaGrad(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::Momentum(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::RmsProp(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::Adam(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::AmsGrad(r) => cpu.run(Bf16::new(r), work),
            Bf16Rule::RowAdaGrad(r) => cpu.run(Bf16::new(r), work),
        }
    }

    /// Runs `visitor` with the rule as a type.
    #[inline]
    pub(crate) fn visit<V: Visitor>(self, visitor: V) -> V::Out {
        match self {
            Bf16Rule::Sgd(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::AdaGrad(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::Momentum(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::RmsProp(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::Adam(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::AmsGrad(r) => visitor.run(Bf16::new(r)),
            Bf16Rule::RowAdaGrad(r) => visitor.run(Bf16::new(r)),
        }
    }
}

impl Rule {
    /// The same rule on rows whose weights are bf16 ([`Bf16`]).
    ///
    /// ```
    /// use gannet_optim::{AdaGrad, Rule};
    ///
    /// let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    /// let small = rule.with_bf16_weights()?;
    /// assert_eq!((rule.floats(16), small.floats(16)), (32, 24));
    /// assert_eq!(small.f32_rule(), rule);
    /// # Ok::<(), gannet_optim::RuleError>(())
    /// ```
    ///
    /// # Errors
    /// The rule computes its weights from its state (FTRL, group FTRL), or adds what is pushed (add).
    pub fn with_bf16_weights(&self) -> Result<Rule, RuleError> {
        let rule = match *self {
            Rule::Bf16(_) => return Ok(*self),
            Rule::Sgd(r) => Bf16Rule::Sgd(r),
            Rule::AdaGrad(r) => Bf16Rule::AdaGrad(r),
            Rule::Momentum(r) => Bf16Rule::Momentum(r),
            Rule::RmsProp(r) => Bf16Rule::RmsProp(r),
            Rule::Adam(r) => Bf16Rule::Adam(r),
            Rule::AmsGrad(r) => Bf16Rule::AmsGrad(r),
            Rule::RowAdaGrad(r) => Bf16Rule::RowAdaGrad(r),
            Rule::Add(_) | Rule::Ftrl(_) | Rule::GroupFtrl(_) => {
                let why = match self {
                    Rule::Add(_) => "it adds pushed values, which must stay exact",
                    _ => "it stores no weights: it computes them from sums, which must stay f32",
                };
                return Err(RuleError::Unfit { rule: self.name(), what: "weights in bf16", why });
            }
        };
        Ok(Rule::Bf16(rule))
    }

    /// The same rule on rows of f32.
    pub fn f32_rule(&self) -> Rule {
        match *self {
            Rule::Bf16(rule) => rule.f32_rule(),
            rule => rule,
        }
    }

    /// Whether rows have weights in bf16.
    pub fn has_bf16_weights(&self) -> bool {
        matches!(self, Rule::Bf16(_))
    }

    /// Rounds weights to the nearest ones that rows of this rule can store.
    pub fn round_weights(&self, weights: &mut [f32]) {
        if self.has_bf16_weights() {
            weights.iter_mut().for_each(|weight| *weight = f32::from_bits(nearest(*weight)));
        }
    }

    /// Appends the floats of a row of `dim` weights, with weights as f32: a row of [`f32_rule`](Self::f32_rule).
    ///
    /// # Panics
    /// When `row.len() != self.floats(dim)`.
    pub fn put_f32_row(&self, dim: usize, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.floats(dim));
        if !self.has_bf16_weights() {
            return out.extend_from_slice(row);
        }
        let start = out.len();
        out.resize(start + dim, 0.0);
        unpack(&row[..dim.div_ceil(2)], &mut out[start..]);
        out.extend_from_slice(&row[dim.div_ceil(2)..]);
    }

    /// Appends the row of this rule for a row of [`f32_rule`](Self::f32_rule) of `dim` weights. Weights in bf16 are
    /// the nearest ones.
    ///
    /// # Panics
    /// When the f32 rule has other rows.
    pub fn put_row_of_f32(&self, dim: usize, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.f32_rule().floats(dim));
        if !self.has_bf16_weights() {
            return out.extend_from_slice(row);
        }
        let start = out.len();
        out.resize(start + dim.div_ceil(2), 0.0);
        pack_nearest(&row[..dim], &mut out[start..]);
        out.extend_from_slice(&row[dim..]);
    }
}

thread_local! {
    /// A long row with weights as f32.
    static LONG: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Floats of a row that is unpacked on the stack.
const SHORT: usize = 64;

impl<R: Update> Bf16<R> {
    /// The rule on rows with weights in bf16.
    pub(crate) fn new(rule: R) -> Bf16<R> {
        Bf16 { rule, chance: 0 }
    }

    /// One step of a row, with room for the row in f32.
    #[inline(always)]
    fn step<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32], wide: &mut [f32]) {
        let (dim, packed) = (gradient.len(), gradient.len().div_ceil(2));
        unpack(&row[..packed], &mut wide[..dim]);
        wide[dim..].copy_from_slice(&row[packed..]);
        self.rule.update_on(isa, wide, gradient);
        pack(&wide[..dim], self.chance, &mut row[..packed]);
        row[packed..].copy_from_slice(&wide[dim..]);
    }
}

impl<R: Update> Update for Bf16<R> {
    const PLANES: usize = R::PLANES;
    const SCALARS: usize = R::SCALARS;
    const DERIVES: bool = true;
    const ROUNDS: bool = true;

    #[inline(always)]
    fn floats(dim: usize) -> usize {
        dim.div_ceil(2) + R::floats(dim) - dim
    }

    #[inline(always)]
    fn with_chance(self, chance: u64) -> Self {
        Bf16 { chance, ..self }
    }

    fn init(&self, weights: &[f32], row: &mut [f32]) {
        let (dim, packed) = (weights.len(), weights.len().div_ceil(2));
        assert_eq!(row.len(), Self::floats(dim));
        let mut wide = vec![0.0; R::floats(dim)];
        self.rule.init(weights, &mut wide);
        pack_nearest(&wide[..dim], &mut row[..packed]);
        row[packed..].copy_from_slice(&wide[dim..]);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        let floats = R::floats(gradient.len());
        assert_eq!(row.len(), Self::floats(gradient.len()));
        if floats <= SHORT {
            let mut short = [0.0; SHORT];
            self.step(isa, row, gradient, &mut short[..floats]);
        } else {
            let mut long = LONG.take();
            long.resize(floats, 0.0);
            self.step(isa, row, gradient, &mut long);
            LONG.set(long);
        }
    }

    #[inline(always)]
    fn weight_floats(dim: usize) -> usize {
        dim.div_ceil(2)
    }

    #[inline(always)]
    fn weights_on<I: Isa>(&self, _: I, row: &[f32], out: &mut [f32]) {
        unpack(&row[..out.len().div_ceil(2)], out);
    }

    /// The lower halves of floats are weights too, which a look at the floats does not see.
    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        // With one plane this may be one weight too many, which has no float of its own.
        let dim = 2 * (row.len() - R::SCALARS) / (2 * R::PLANES - 1);
        let squares = &row[row.len() - R::SCALARS - R::SQUARES * dim..];
        all_finite_halves(&row[..dim.div_ceil(2)]) && none_negative(squares)
    }
}

/// The weights of packed floats, as f32. `packed` has half as many floats as `out`, rounded up.
#[inline(always)]
fn unpack(packed: &[f32], out: &mut [f32]) {
    let (lower, upper) = out.split_at_mut(packed.len());
    for (out, packed) in lower.iter_mut().zip(packed) {
        *out = f32::from_bits(packed.to_bits() << 16);
    }
    for (out, packed) in upper.iter_mut().zip(packed) {
        *out = f32::from_bits(packed.to_bits() & UPPER);
    }
}

/// The upper half of a float.
const UPPER: u32 = 0xffff_0000;
/// The largest finite bf16; all bits of an exponent; and the lowest of them.
const LARGEST: u32 = 0x7f7f_0000;
const EXPONENT: u32 = 0x7f80_0000;
const LOWEST: u32 = 0x0080_0000;

/// Rounds weights to bf16 and packs them. Each is rounded away from 0 with the probability of its lower half.
#[inline(always)]
fn pack(weights: &[f32], chance: u64, packed: &mut [f32]) {
    let chance = (chance ^ chance >> 32) as u32;
    let (lower, upper) = weights.split_at(packed.len());
    for (i, (packed, (&a, &b))) in (0u32..).zip(packed.iter_mut().zip(lower.iter().zip(upper))) {
        let bits = random_bits(chance, i);
        *packed = f32::from_bits(rounded(a, bits & 0xffff) >> 16 | rounded(b, bits >> 16));
    }
    if let (Some(packed), Some(&last), true) = (packed.last_mut(), lower.last(), lower.len() > upper.len()) {
        let bits = random_bits(chance, upper.len() as u32);
        *packed = f32::from_bits(rounded(last, bits & 0xffff) >> 16);
    }
}

/// The bits of the nearest bf16, as f32; of two equally near ones the even one.
fn nearest(weight: f32) -> u32 {
    rounded(weight, 0x7fff + (weight.to_bits() >> 16 & 1))
}

/// Packs the nearest bf16 of each weight.
fn pack_nearest(weights: &[f32], packed: &mut [f32]) {
    let (lower, upper) = weights.split_at(packed.len());
    let upper = upper.iter().map(|&w| nearest(w)).chain(std::iter::once(0));
    for (packed, (&w, upper)) in packed.iter_mut().zip(lower.iter().zip(upper)) {
        *packed = f32::from_bits(nearest(w) >> 16 | upper);
    }
}

/// The bits of a weight with only its upper half, after `add` was added to its magnitude. Nothing rounds to infinity.
/// What is not finite stays so.
#[inline(always)]
fn rounded(weight: f32, add: u32) -> u32 {
    let bits = weight.to_bits();
    let magnitude = bits & !(1 << 31);
    let add = if magnitude >= LARGEST { 0 } else { add };
    (bits + add) & UPPER
}

/// 32 random bits for float `i` of a row's step. The mix has full period, and its output bits depend on all input bits
/// (its constants are from Chris Wellons' hash-prospector).
#[inline(always)]
fn random_bits(chance: u32, i: u32) -> u32 {
    let mut x = chance.wrapping_add(i.wrapping_mul(0x9e37_79b9));
    x = (x ^ x >> 16).wrapping_mul(0x21f0_aaad);
    x = (x ^ x >> 15).wrapping_mul(0xd35a_2d97);
    x ^ x >> 15
}

/// Whether the lower half of each float is a finite bf16.
#[inline(always)]
fn all_finite_halves(packed: &[f32]) -> bool {
    // Only an exponent of all ones carries into the sign bit.
    packed.iter().fold(0, |any, pair| any | ((pair.to_bits() << 16 & EXPONENT) + LOWEST)) >> 31 == 0
}
