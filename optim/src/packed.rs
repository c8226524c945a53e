//! Rows whose weights are floats of 16 bits ([`Float16`]), two in a float. The weights take half the bytes. The
//! optimizer's state stays f32.
//!
//! A step computes in f32 and then rounds by chance: up with the probability of the part that is cut off. So the
//! expected weight is exact, and steps that are smaller than the distance between two 16-bit floats add up. Nearest
//! rounding would lose them (Gupta and others, "Deep Learning with Limited Numerical Precision", ICML 2015). The chance
//! is a function of a number that the caller gives, so two copies of a row that take the same steps stay equal.

use crate::arch::{Isa, Work};
use crate::slices::none_negative;
use crate::{
    AdaGrad, Adam, AmsGrad, Cpu, Float16, Momentum, RmsProp, RowAdaGrad, Rule, RuleError, Sgd, Update,
    Visitor,
};
use std::cell::Cell;

/// A rule on rows with packed weights. A row is the weights, two in a float, then the planes and scalars that the rule
/// has behind its weights. [`Rule::with_packed_weights`] has an example.
///
/// Of `dim` weights the lower halves of the floats are the first ones, `dim / 2` rounded up, and the upper halves are
/// the others. With an odd number of weights the last upper half is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packed<R> {
    rule: R,
    format: Float16,
    /// What converts weights. All instruction sets give the same bits.
    cpu: Cpu,
    chance: u64,
}

/// The rules that [`Packed`] works with: the first plane of their rows has the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PackedRule {
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

impl PackedRule {
    /// The same rule on rows of f32.
    pub fn f32_rule(self) -> Rule {
        match self {
            PackedRule::Sgd(r) => Rule::Sgd(r),
            PackedRule::AdaGrad(r) => Rule::AdaGrad(r),
            PackedRule::Momentum(r) => Rule::Momentum(r),
            PackedRule::RmsProp(r) => Rule::RmsProp(r),
            PackedRule::Adam(r) => Rule::Adam(r),
            PackedRule::AmsGrad(r) => Rule::AmsGrad(r),
            PackedRule::RowAdaGrad(r) => Rule::RowAdaGrad(r),
        }
    }

    /// The rule with its learning rate multiplied by `factor`.
    pub(crate) fn at_rate(self, factor: f32) -> PackedRule {
        // The same rule with another rate is as fit as before.
        self.f32_rule().at_rate(factor).packed_rule("").unwrap_or(self)
    }

    /// Runs `work` with the rule and the instruction set as types. Weights are unpacked eight at a time. A load of
    /// sixteen would wait until both stores are in the cache, so eight are the most.
    #[inline]
    pub(crate) fn work<W: Work>(self, format: Float16, cpu: Cpu, work: W) -> W::Out {
        let cpu = cpu.at_most_eight();
        match self {
            PackedRule::Sgd(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::AdaGrad(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::Momentum(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::RmsProp(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::Adam(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::AmsGrad(r) => cpu.run(Packed::new(r, format, cpu), work),
            PackedRule::RowAdaGrad(r) => cpu.run(Packed::new(r, format, cpu), work),
        }
    }

    /// Runs `visitor` with the rule as a type.
    #[inline]
    pub(crate) fn visit<V: Visitor>(self, format: Float16, visitor: V) -> V::Out {
        match self {
            PackedRule::Sgd(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::AdaGrad(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::Momentum(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::RmsProp(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::Adam(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::AmsGrad(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
            PackedRule::RowAdaGrad(r) => visitor.run(Packed::new(r, format, Cpu::detect())),
        }
    }
}

impl Rule {
    /// The same rule on rows with weights in this format ([`Packed`]).
    ///
    /// ```
    /// use gannet_optim::{AdaGrad, Float16, Rule};
    ///
    /// let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    /// let small = rule.with_packed_weights(Float16::Bf16)?;
    /// assert_eq!((rule.floats(16), small.floats(16)), (32, 24));
    /// assert_eq!(small.f32_rule(), rule);
    /// # Ok::<(), gannet_optim::RuleError>(())
    /// ```
    ///
    /// # Errors
    /// The rule computes its weights from its state (FTRL, group FTRL), or adds what is pushed (add).
    pub fn with_packed_weights(&self, format: Float16) -> Result<Rule, RuleError> {
        let what = match format {
            Float16::Bf16 => "weights in bf16",
            Float16::F16 => "weights in f16",
        };
        Ok(Rule::Packed(format, self.packed_rule(what)?))
    }

    /// The rule on packed weights for this rule on f32. `what` says in an error which weights those are.
    fn packed_rule(&self, what: &'static str) -> Result<PackedRule, RuleError> {
        Ok(match *self {
            Rule::Sgd(r) => PackedRule::Sgd(r),
            Rule::AdaGrad(r) => PackedRule::AdaGrad(r),
            Rule::Momentum(r) => PackedRule::Momentum(r),
            Rule::RmsProp(r) => PackedRule::RmsProp(r),
            Rule::Adam(r) => PackedRule::Adam(r),
            Rule::AmsGrad(r) => PackedRule::AmsGrad(r),
            Rule::RowAdaGrad(r) => PackedRule::RowAdaGrad(r),
            Rule::Packed(_, r) => r,
            Rule::Add(_) => {
                let why = "it adds pushed values, which must stay exact";
                return Err(RuleError::Unfit { rule: self.name(), what, why });
            }
            Rule::Ftrl(_) | Rule::GroupFtrl(_) => {
                let why = "it stores no weights: it computes them from sums, which must stay f32";
                return Err(RuleError::Unfit { rule: self.name(), what, why });
            }
        })
    }

    /// The same rule on rows of f32.
    pub fn f32_rule(&self) -> Rule {
        match *self {
            Rule::Packed(_, rule) => rule.f32_rule(),
            rule => rule,
        }
    }

    /// The format of weights that rows have packed. `None` when they are f32.
    pub fn float16(&self) -> Option<Float16> {
        match self {
            Rule::Packed(format, _) => Some(*format),
            _ => None,
        }
    }

    /// Rounds weights to the nearest ones that rows of this rule can store ([`Float16::nearest`]).
    pub fn round_weights(&self, weights: &mut [f32]) {
        if let Some(format) = self.float16() {
            weights.iter_mut().for_each(|weight| *weight = format.nearest(*weight));
        }
    }

    /// Appends the floats of a row of `dim` weights, with weights as f32: a row of [`f32_rule`](Self::f32_rule).
    ///
    /// # Panics
    /// When `row.len() != self.floats(dim)`.
    pub fn put_f32_row(&self, dim: usize, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.floats(dim));
        let Some(format) = self.float16() else {
            return out.extend_from_slice(row);
        };
        let start = out.len();
        out.resize(start + dim, 0.0);
        format.unpack(Cpu::detect(), &row[..dim.div_ceil(2)], &mut out[start..]);
        out.extend_from_slice(&row[dim.div_ceil(2)..]);
    }

    /// Appends the row of this rule for a row of [`f32_rule`](Self::f32_rule) of `dim` weights. Packed weights are the
    /// nearest ones ([`Float16::nearest`]).
    ///
    /// # Panics
    /// When the f32 rule has other rows.
    pub fn put_row_of_f32(&self, dim: usize, row: &[f32], out: &mut Vec<f32>) {
        assert_eq!(row.len(), self.f32_rule().floats(dim));
        let Some(format) = self.float16() else {
            return out.extend_from_slice(row);
        };
        let start = out.len();
        out.resize(start + dim.div_ceil(2), 0.0);
        format.pack_nearest(&row[..dim], &mut out[start..]);
        out.extend_from_slice(&row[dim..]);
    }
}

thread_local! {
    /// A long row with weights as f32.
    static LONG: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Floats of a row that is unpacked on the stack.
const SHORT: usize = 64;

impl<R: Update> Packed<R> {
    /// The rule on rows with weights in this format, which `cpu` converts.
    pub(crate) fn new(rule: R, format: Float16, cpu: Cpu) -> Packed<R> {
        Packed { rule, format, cpu, chance: 0 }
    }

    /// One step of a row, with room for the row in f32.
    #[inline(always)]
    fn step<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32], wide: &mut [f32]) {
        let (dim, packed) = (gradient.len(), gradient.len().div_ceil(2));
        self.format.unpack(self.cpu, &row[..packed], &mut wide[..dim]);
        wide[dim..].copy_from_slice(&row[packed..]);
        self.rule.update_on(isa, wide, gradient);
        self.format.pack(self.cpu, &wide[..dim], self.chance, &mut row[..packed]);
        row[packed..].copy_from_slice(&wide[dim..]);
    }
}

impl<R: Update> Update for Packed<R> {
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
        Packed { chance, ..self }
    }

    fn init(&self, weights: &[f32], row: &mut [f32]) {
        let (dim, packed) = (weights.len(), weights.len().div_ceil(2));
        assert_eq!(row.len(), Self::floats(dim));
        let mut wide = vec![0.0; R::floats(dim)];
        self.rule.init(weights, &mut wide);
        self.format.pack_nearest(&wide[..dim], &mut row[..packed]);
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
        self.format.unpack(self.cpu, &row[..out.len().div_ceil(2)], out);
    }

    /// Halves of floats are weights, which a look at the floats does not see.
    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        // With one plane this may be one weight too many, which has no float of its own.
        let dim = 2 * (row.len() - R::SCALARS) / (2 * R::PLANES - 1);
        let squares = &row[row.len() - R::SCALARS - R::SQUARES * dim..];
        self.format.all_finite(&row[..dim.div_ceil(2)]) && none_negative(squares)
    }
}
