//! What the optimizer's flags mean: the rule that the table gets, and what pushes to it carry.

use super::Failure;
use super::args::{OptimizerArgs, OptimizerName, PushName};
use gannet::train::Push;
use gannet::{AdaGrad, Ftrl, Rule, Sgd};

/// A rule's settings by flag, with their defaults.
fn settings(optimizer: OptimizerName) -> &'static [(&'static str, f32)] {
    match optimizer {
        OptimizerName::Ftrl => &[("--alpha", 0.1), ("--beta", 1.0), ("--l1", 0.0), ("--l2", 0.0)],
        OptimizerName::Sgd => &[("--alpha", 0.1)],
        OptimizerName::Adagrad => &[("--alpha", 0.1), ("--beta", 1.0)],
    }
}

/// Every optimizer, as `--optimizer` spells it.
fn names() -> impl Iterator<Item = (OptimizerName, String)> {
    use clap::ValueEnum;
    let name = |o: &OptimizerName| o.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
    OptimizerName::value_variants().iter().map(move |o| (*o, name(o)))
}

/// The rule that the flags ask for.
pub fn rule(args: &OptimizerArgs) -> Result<Rule, Failure> {
    let given = [("--alpha", args.alpha), ("--beta", args.beta), ("--l1", args.l1), ("--l2", args.l2)];
    let known = settings(args.optimizer);
    let foreign = given.iter().find(|(flag, value)| value.is_some() && !has(args.optimizer, flag));
    if let Some((flag, _)) = foreign {
        return Err(foreign_to(args.optimizer, flag));
    }
    let value = |flag: &str| {
        let given = given.iter().find(|g| g.0 == flag).and_then(|g| g.1);
        given.or(known.iter().find(|k| k.0 == flag).map(|k| k.1)).unwrap_or_default()
    };
    let (alpha, beta) = (value("--alpha"), value("--beta"));
    Ok(match args.optimizer {
        OptimizerName::Ftrl => Rule::Ftrl(Ftrl { alpha, beta, l1: value("--l1"), l2: value("--l2") }),
        OptimizerName::Sgd => Rule::Sgd(Sgd { lr: alpha }),
        OptimizerName::Adagrad => Rule::AdaGrad(AdaGrad { lr: alpha, eps: 1e-8, initial_accumulator: beta }),
    })
}

fn has(optimizer: OptimizerName, flag: &str) -> bool {
    settings(optimizer).iter().any(|s| s.0 == flag)
}

/// A setting that the chosen rule does not have.
fn foreign_to(optimizer: OptimizerName, flag: &str) -> Failure {
    let name = names().find(|n| n.0 == optimizer).map(|n| n.1).unwrap_or_default();
    let takes: Vec<&str> = settings(optimizer).iter().map(|s| s.0).collect();
    let of: Vec<String> = names().filter(|n| has(n.0, flag)).map(|n| n.1).collect();
    Failure::input(format!(
        "{flag} is no setting of --optimizer {name}, which has {}; it belongs to {}",
        takes.join(", "),
        of.join(", ")
    ))
}

/// What `--push` asks for.
pub fn push(args: &OptimizerArgs) -> Option<Push> {
    args.push.map(|push| match push {
        PushName::Replay => Push::Replay,
        PushName::Gradient => Push::Gradient,
    })
}
