//! The rules that can replay, as the learner runs them. The rule is chosen once a batch.

use crate::learn::lr::{ExampleLanes, PlainFtrl, ReplayRule};
use gannet_optim::{AdaGrad, Ftrl, GroupFtrl, Rule, Sgd};

/// A rule and the learner's buffers for it.
pub(crate) enum Kernel {
    Ftrl(Ftrl, ExampleLanes<2>),
    GroupFtrl(GroupFtrl, ExampleLanes<2>),
    AdaGrad(AdaGrad, ExampleLanes<2>),
    Sgd(Sgd, ExampleLanes<1>),
}

/// Work that is compiled once for each rule.
pub(crate) trait KernelWork {
    /// The result.
    type Out;
    /// The work, with the rule as a type.
    fn run<const P: usize, L: ReplayRule<P>>(self, rule: L, scratch: &mut ExampleLanes<P>) -> Self::Out;
}

impl Kernel {
    /// The kernel of a rule. `None` when logistic regression cannot replay the rule.
    pub(crate) fn of(rule: &Rule) -> Option<Kernel> {
        match *rule {
            Rule::Ftrl(rule) => Some(Kernel::Ftrl(rule, ExampleLanes::new())),
            Rule::GroupFtrl(rule) => Some(Kernel::GroupFtrl(rule, ExampleLanes::new())),
            Rule::AdaGrad(rule) => Some(Kernel::AdaGrad(rule, ExampleLanes::new())),
            // With one weight a row both rules are the same.
            Rule::RowAdaGrad(gannet_optim::RowAdaGrad { lr, eps, initial_accumulator }) => {
                Some(Kernel::AdaGrad(AdaGrad { lr, eps, initial_accumulator }, ExampleLanes::new()))
            }
            Rule::Sgd(rule) => Some(Kernel::Sgd(rule, ExampleLanes::new())),
            _ => None,
        }
    }

    /// Runs the work with the rule as a type.
    pub(crate) fn run<W: KernelWork>(&mut self, work: W) -> W::Out {
        match self {
            Kernel::Ftrl(rule, scratch) if rule.has_penalty() => work.run(*rule, scratch),
            Kernel::Ftrl(rule, scratch) => work.run(PlainFtrl(*rule), scratch),
            Kernel::GroupFtrl(rule, scratch) if rule.has_penalty() => work.run(*rule, scratch),
            Kernel::GroupFtrl(rule, scratch) => work.run(PlainFtrl(rule.ftrl()), scratch),
            Kernel::AdaGrad(rule, scratch) => work.run(*rule, scratch),
            Kernel::Sgd(rule, scratch) => work.run(*rule, scratch),
        }
    }

    /// Rows left unchanged because an example would have made them NaN or infinite.
    pub(crate) fn not_finite(&self) -> u64 {
        match self {
            Kernel::Ftrl(_, scratch) | Kernel::GroupFtrl(_, scratch) | Kernel::AdaGrad(_, scratch) => {
                scratch.not_finite
            }
            Kernel::Sgd(_, scratch) => scratch.not_finite,
        }
    }
}
