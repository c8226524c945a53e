//! The seam: a rule as plain data, a rule as a type, and the dispatch from the one to the other.

use crate::{AdaGrad, Add, Ftrl, Sgd};

/// What a rule does to one row. `dim` is the number of weights of a row.
///
/// Implementations are `#[inline(always)]`: a caller that knows `dim` as a constant gets code for that
/// `dim`. Lengths are asserted once a row, before the first write, so that a wrong call changes nothing.
pub trait Update: Copy {
    /// Planes of a row: the row is `PLANES * dim` floats.
    const PLANES: usize;

    /// Writes the row whose weights are `weights` (`dim`) and whose state is fresh into `row`
    /// (`PLANES * dim`).
    ///
    /// # Panics
    /// When `row.len() != PLANES * weights.len()`.
    fn init(&self, weights: &[f32], row: &mut [f32]);

    /// Applies `gradient` (`dim`, of the loss with respect to the weights) to `row` (`PLANES * dim`).
    /// Values that are not finite go through by the rules of IEEE 754: see [`all_finite`](crate::all_finite).
    ///
    /// # Panics
    /// When `row.len() != PLANES * gradient.len()`.
    fn update(&self, row: &mut [f32], gradient: &[f32]);

    /// Writes the weights of `row` (`PLANES * dim`) into `out` (`dim`): what a pull of weights answers.
    ///
    /// # Panics
    /// When `row.len() != PLANES * out.len()`.
    fn weights(&self, row: &[f32], out: &mut [f32]);

    /// Whether `row` (`PLANES * dim`) is a state that this rule can have reached: a sum of squares is not negative. NaN is
    /// none. What a change of state from a peer must be held to.
    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        let _ = row;
        true
    }
}

/// Work over many rows that is compiled once for each rule. See [`Rule::visit`].
pub trait Visitor {
    /// What the work answers.
    type Out;
    /// The work, with the rule as a type.
    fn run<U: Update>(self, rule: U) -> Self::Out;
}

/// An update rule and its hyper-parameters, as a schema carries it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Adds what is pushed.
    Add(Add),
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// AdaGrad, per coordinate.
    AdaGrad(AdaGrad),
    /// FTRL-Proximal, per coordinate.
    Ftrl(Ftrl),
}

impl Rule {
    /// Planes of a row: it is `planes() * dim` floats.
    pub fn planes(&self) -> usize {
        struct Planes;
        impl Visitor for Planes {
            type Out = usize;
            fn run<U: Update>(self, _: U) -> usize {
                U::PLANES
            }
        }
        self.visit(Planes)
    }

    /// Whether the changes of two workers to the same row may both be added to it (replay): true when
    /// the state consists of sums over the gradients seen.
    pub fn replays(&self) -> bool {
        match self {
            // w, sum g^2, and z = sum (g - sigma * w) are sums: so is every plane here. A rule with
            // decaying averages (Adam) would say false.
            Rule::Add(_) | Rule::Sgd(_) | Rule::AdaGrad(_) | Rule::Ftrl(_) => true,
        }
    }

    /// The rule's name as flags and messages spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Add(_) => "add",
            Rule::Sgd(_) => "sgd",
            Rule::AdaGrad(_) => "adagrad",
            Rule::Ftrl(_) => "ftrl",
        }
    }

    /// Whether the hyper-parameters are in range: with those that pass, a fresh row has finite weights
    /// and a zero gradient changes none.
    ///
    /// # Errors
    /// Names the first hyper-parameter out of range, its value, and what is allowed.
    pub fn check(&self) -> Result<(), RuleError> {
        match self {
            Rule::Add(_) => Ok(()),
            Rule::Sgd(r) => r.check(),
            Rule::AdaGrad(r) => r.check(),
            Rule::Ftrl(r) => r.check(),
        }
    }

    /// Runs `visitor` with the rule as a type. Call it once a batch, not once a row.
    #[inline]
    pub fn visit<V: Visitor>(&self, visitor: V) -> V::Out {
        match *self {
            Rule::Add(r) => visitor.run(r),
            Rule::Sgd(r) => visitor.run(r),
            Rule::AdaGrad(r) => visitor.run(r),
            Rule::Ftrl(r) => visitor.run(r),
        }
    }
}

/// A hyper-parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{rule}: {parameter} is {value}, must be {allowed}")]
pub struct RuleError {
    /// The rule's name.
    pub rule: &'static str,
    /// The hyper-parameter's name.
    pub parameter: &'static str,
    /// Its value.
    pub value: f32,
    /// What is allowed, in words.
    pub allowed: &'static str,
}

impl RuleError {
    /// `Ok` when `ok`, an error that names the parameter otherwise.
    pub(crate) fn unless(
        ok: bool,
        rule: &'static str,
        parameter: &'static str,
        value: f32,
        allowed: &'static str,
    ) -> Result<(), RuleError> {
        if ok { Ok(()) } else { Err(RuleError { rule, parameter, value, allowed }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_POSITIVE: [f32; 5] = [0.0, -0.1, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    const NEGATIVE: [f32; 4] = [-1e-9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

    fn refused(rule: Rule, parameter: &str, value: f32) {
        let e = rule.check().expect_err(&format!("{rule:?}"));
        assert_eq!((e.rule, e.parameter), (rule.name(), parameter), "{rule:?}");
        assert_eq!(e.value.to_bits(), value.to_bits(), "{rule:?}");
        assert!(e.to_string().contains(parameter) && e.to_string().contains(e.allowed), "{e}");
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let adagrad = AdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.1 };
        let ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 };
        for v in NOT_POSITIVE {
            refused(Rule::Sgd(Sgd { lr: v }), "lr", v);
            refused(Rule::AdaGrad(AdaGrad { lr: v, ..adagrad }), "lr", v);
            refused(Rule::Ftrl(Ftrl { alpha: v, ..ftrl }), "alpha", v);
        }
        for v in NEGATIVE {
            refused(Rule::AdaGrad(AdaGrad { eps: v, ..adagrad }), "eps", v);
            refused(Rule::AdaGrad(AdaGrad { initial_accumulator: v, ..adagrad }), "initial_accumulator", v);
            refused(Rule::Ftrl(Ftrl { beta: v, ..ftrl }), "beta", v);
            refused(Rule::Ftrl(Ftrl { l1: v, ..ftrl }), "l1", v);
            refused(Rule::Ftrl(Ftrl { l2: v, ..ftrl }), "l2", v);
        }
        // 1 / alpha overflows.
        refused(Rule::Ftrl(Ftrl { alpha: 1e-40, ..ftrl }), "alpha", 1e-40);
        // A fresh row would divide zero by zero.
        refused(Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 0.0, initial_accumulator: 0.0 }), "eps", 0.0);
        refused(Rule::Ftrl(Ftrl { beta: 0.0, l2: 0.0, ..ftrl }), "beta", 0.0);
    }

    #[test]
    fn values_in_range_pass() {
        for rule in [
            Rule::Add(Add),
            Rule::Sgd(Sgd { lr: 1e-6 }),
            Rule::AdaGrad(AdaGrad { lr: 10.0, eps: 0.0, initial_accumulator: 0.1 }),
            Rule::AdaGrad(AdaGrad { lr: 10.0, eps: 1e-10, initial_accumulator: 0.0 }),
            Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }),
            Rule::Ftrl(Ftrl { alpha: 0.1, beta: 0.0, l1: 0.0, l2: 1.0 }),
        ] {
            assert_eq!(rule.check(), Ok(()), "{rule:?}");
            assert!(rule.replays());
        }
    }

    #[test]
    fn an_error_reads_well() {
        let e = Rule::Sgd(Sgd { lr: -0.5 }).check().unwrap_err();
        assert_eq!(e.to_string(), "sgd: lr is -0.5, must be finite and above 0");
    }
}
