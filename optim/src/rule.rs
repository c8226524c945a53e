//! A rule as plain data, a rule as a type, and the dispatch from data to type.

use crate::update::Update;
use crate::{
    AdaGrad, Adam, Add, AmsGrad, Cpu, Float16, Ftrl, GroupFtrl, Momentum, PackedRule, RmsProp, RowAdaGrad,
    RuleError, Sgd, Work,
};

/// Work over many rows that is compiled once for each rule. See [`Rule::visit`].
pub trait Visitor {
    /// What the work returns.
    type Out;
    /// The work, with the rule as a type.
    fn run<U: Update>(self, rule: U) -> Self::Out;
}

/// An update rule and its hyper-parameters, as a schema carries it.
///
/// ```
/// use gannet_optim::{AdaGrad, Rule, Sgd};
///
/// let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
/// rule.check()?;
/// assert_eq!((rule.name(), rule.floats(16)), ("adagrad", 32)); // weights, and a sum of squares each
/// assert!(Rule::Sgd(Sgd { lr: f32::NAN }).check().is_err());
/// # Ok::<(), gannet_optim::RuleError>(())
/// ```
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
    /// Gradient descent with momentum, Nesterov's too.
    Momentum(Momentum),
    /// RMSProp.
    RmsProp(RmsProp),
    /// Adam, and AdamW.
    Adam(Adam),
    /// AMSGrad.
    AmsGrad(AmsGrad),
    /// AdaGrad with one accumulator a row.
    RowAdaGrad(RowAdaGrad),
    /// FTRL-Proximal with a group lasso over the row.
    GroupFtrl(GroupFtrl),
    /// A rule on rows whose weights have 16 bits ([`Rule::with_packed_weights`]).
    Packed(Float16, PackedRule),
}

impl Rule {
    /// Floats of a stored row of `dim` weights: planes of `dim` floats, then the row's scalars. Of packed
    /// weights the first plane has half as many floats, rounded up.
    pub fn floats(&self, dim: usize) -> usize {
        struct Floats(usize);
        impl Visitor for Floats {
            type Out = usize;
            fn run<U: Update>(self, _: U) -> usize {
                U::floats(self.0)
            }
        }
        self.visit(Floats(dim))
    }

    /// [`Update::weight_floats`]: how many floats of a row its weights are computed from.
    pub fn weight_floats(&self, dim: usize) -> usize {
        struct WeightFloats(usize);
        impl Visitor for WeightFloats {
            type Out = usize;
            fn run<U: Update>(self, _: U) -> usize {
                U::weight_floats(self.0)
            }
        }
        self.visit(WeightFloats(dim))
    }

    /// [`Update::DERIVES`]: whether the weights are computed from the whole row.
    pub fn derives(&self) -> bool {
        struct Derives;
        impl Visitor for Derives {
            type Out = bool;
            fn run<U: Update>(self, _: U) -> bool {
                U::DERIVES
            }
        }
        self.visit(Derives)
    }

    /// Whether the changes of two workers to the same row may both be added to it (replay). True if the state consists
    /// of sums over the gradients seen.
    pub fn replays(&self) -> bool {
        match self {
            // w, sum g^2, sum mean(g^2), and z = sum (g - sigma * w) are sums, so every plane and scalar here is a sum.
            Rule::Add(_) | Rule::Sgd(_) | Rule::AdaGrad(_) => true,
            Rule::RowAdaGrad(_) | Rule::Ftrl(_) | Rule::GroupFtrl(_) => true,
            // Decaying averages: each of two workers' changes holds one decay of the same past. AMSGrad's maximum is no
            // sum.
            Rule::Momentum(_) | Rule::RmsProp(_) | Rule::Adam(_) | Rule::AmsGrad(_) => false,
            // Packed weights cannot be added.
            Rule::Packed(..) => false,
        }
    }

    /// The rule's name as flags and messages spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Add(_) => "add",
            Rule::Sgd(_) => "sgd",
            Rule::AdaGrad(_) => "adagrad",
            Rule::Ftrl(_) => "ftrl",
            Rule::Momentum(_) => "momentum",
            Rule::RmsProp(_) => "rmsprop",
            Rule::Adam(_) => "adam",
            Rule::AmsGrad(_) => "amsgrad",
            Rule::RowAdaGrad(_) => "row-adagrad",
            Rule::GroupFtrl(_) => "group-ftrl",
            Rule::Packed(_, rule) => rule.f32_rule().name(),
        }
    }

    /// Checks the hyper-parameters. If they pass, a fresh row has finite weights, and a zero gradient changes none of
    /// them.
    ///
    /// # Errors
    /// The error names the first hyper-parameter out of range, its value, and what is allowed.
    pub fn check(&self) -> Result<(), RuleError> {
        match self {
            Rule::Add(_) => Ok(()),
            Rule::Sgd(r) => r.check(),
            Rule::AdaGrad(r) => r.check(),
            Rule::Ftrl(r) => r.check(),
            Rule::Momentum(r) => r.check(),
            Rule::RmsProp(r) => r.check(),
            Rule::Adam(r) => r.check(),
            Rule::AmsGrad(r) => r.check(),
            Rule::RowAdaGrad(r) => r.check(),
            Rule::GroupFtrl(r) => r.check(),
            Rule::Packed(_, rule) => rule.f32_rule().check(),
        }
    }

    /// The rule with its learning rate multiplied by `factor`. Rules without a learning rate (see
    /// [`GradientTransform`](crate::GradientTransform)) are unchanged.
    pub fn at_rate(&self, factor: f32) -> Rule {
        match *self {
            Rule::Add(_) | Rule::Ftrl(_) | Rule::GroupFtrl(_) => *self,
            Rule::Sgd(r) => Rule::Sgd(Sgd { lr: r.lr * factor }),
            Rule::AdaGrad(r) => Rule::AdaGrad(AdaGrad { lr: r.lr * factor, ..r }),
            Rule::Momentum(r) => Rule::Momentum(Momentum { lr: r.lr * factor, ..r }),
            Rule::RmsProp(r) => Rule::RmsProp(RmsProp { lr: r.lr * factor, ..r }),
            Rule::Adam(r) => Rule::Adam(Adam { lr: r.lr * factor, ..r }),
            Rule::AmsGrad(r) => Rule::AmsGrad(AmsGrad { lr: r.lr * factor, ..r }),
            Rule::RowAdaGrad(r) => Rule::RowAdaGrad(RowAdaGrad { lr: r.lr * factor, ..r }),
            Rule::Packed(format, rule) => Rule::Packed(format, rule.at_rate(factor)),
        }
    }

    /// Runs `work` with the rule and the instruction set as types. Call it once a batch, not once a row.
    #[inline]
    pub fn work<W: Work>(&self, cpu: Cpu, work: W) -> W::Out {
        match *self {
            Rule::Add(r) => cpu.run(r, work),
            Rule::Sgd(r) => cpu.run(r, work),
            Rule::AdaGrad(r) => cpu.run(r, work),
            Rule::Ftrl(r) => cpu.run(r, work),
            Rule::Momentum(r) => cpu.run(r, work),
            Rule::RmsProp(r) => cpu.run(r, work),
            Rule::Adam(r) => cpu.run(r, work),
            Rule::AmsGrad(r) => cpu.run(r, work),
            Rule::RowAdaGrad(r) => cpu.run(r, work),
            Rule::GroupFtrl(r) => cpu.run(r, work),
            Rule::Packed(format, rule) => rule.work(format, cpu, work),
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
            Rule::Momentum(r) => visitor.run(r),
            Rule::RmsProp(r) => visitor.run(r),
            Rule::Adam(r) => visitor.run(r),
            Rule::AmsGrad(r) => visitor.run(r),
            Rule::RowAdaGrad(r) => visitor.run(r),
            Rule::GroupFtrl(r) => visitor.run(r),
            Rule::Packed(format, rule) => rule.visit(format, visitor),
        }
    }
}
