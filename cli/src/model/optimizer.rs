//! Turns the flags of the optimizer into the table's rule, the transforms of gradients before it, and the content of
//! pushes.

use crate::failure::Failure;
use crate::flags::{OptimizerArgs, OptimizerName, PushName, ReduceName, ScheduleArgs, ScheduleName};
use clap::ValueEnum;
use gannet::optim::{
    AdaGrad, Adam, Add, AmsGrad, Decay, Ftrl, GradientTransform, GroupFtrl, Momentum, RmsProp, RowAdaGrad,
    RuleError, Schedule, Sgd,
};
use gannet::runs::RunSetting;
use gannet::train::{PushContent, Reduce};
use gannet::{Rule, Schema};

/// A flag and its default.
pub type KnownFlag = (&'static str, f32);

/// A rule's settings by flag, with their defaults: those of the papers, or of TensorFlow and PyTorch where these
/// agree. Rates are those with the lowest loss of one pass over many tables (bench/runs/public_tables.py): those of the
/// papers are for many passes.
pub fn settings(optimizer: OptimizerName) -> &'static [KnownFlag] {
    match optimizer {
        OptimizerName::Ftrl => &[("--alpha", 0.1), ("--beta", 1.0), ("--l1", 0.0), ("--l2", 0.0)],
        OptimizerName::GroupFtrl => {
            &[("--alpha", 0.1), ("--beta", 1.0), ("--l1", 0.0), ("--l2", 0.0), ("--l21", 0.0)]
        }
        OptimizerName::Sgd => &[("--alpha", 0.03), ("--l2", 0.0)],
        OptimizerName::Momentum | OptimizerName::Nesterov => {
            &[("--alpha", 0.01), ("--momentum", 0.9), ("--l2", 0.0)]
        }
        OptimizerName::Adagrad | OptimizerName::RowAdagrad => {
            &[("--alpha", 0.1), ("--beta", 1.0), ("--epsilon", 1e-8), ("--l2", 0.0)]
        }
        OptimizerName::Rmsprop => &[("--alpha", 0.03), ("--rho", 0.9), ("--epsilon", 1e-8), ("--l2", 0.0)],
        OptimizerName::Adam | OptimizerName::Amsgrad => &[
            ("--alpha", 0.02),
            ("--beta1", 0.9),
            ("--beta2", 0.999),
            ("--epsilon", 1e-8),
            ("--weight-decay", 0.0),
            ("--l2", 0.0),
        ],
        OptimizerName::Lbfgs => &[("--l1", 0.0), ("--l2", 1.0)],
    }
}

/// It has no default: every schedule but the constant one needs it.
const STEPS: KnownFlag = ("--decay-steps", 0.0);

/// The settings of a schedule by flag, with their defaults.
pub fn decays(schedule: ScheduleName) -> &'static [KnownFlag] {
    match schedule {
        ScheduleName::Constant => &[],
        ScheduleName::Exponential => &[STEPS, ("--decay-rate", 0.96)],
        ScheduleName::Step => &[STEPS, ("--decay-rate", 0.1)],
        ScheduleName::Polynomial => &[STEPS, ("--decay-power", 1.0), ("--decay-end", 0.0)],
        ScheduleName::InverseSqrt => &[STEPS],
        ScheduleName::Cosine => &[STEPS, ("--decay-end", 0.0)],
    }
}

/// The values of some flags, and those that the choice has.
struct FlagValues<'a> {
    flags: &'a [(&'static str, Option<f32>)],
    known: &'static [KnownFlag],
}

impl FlagValues<'_> {
    /// The value of a flag: the given one, or the default, or 0 for an unknown flag.
    fn value(&self, flag: &str) -> f32 {
        let typed = self.flags.iter().find(|f| f.0 == flag).and_then(|f| f.1);
        typed.or(self.known.iter().find(|k| k.0 == flag).map(|k| k.1)).unwrap_or_default()
    }
}

/// The spelling of a choice on the command line.
pub fn spelt<T: ValueEnum>(choice: &T) -> String {
    choice.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// The given settings. Without `--alpha` the rate is `alpha`.
fn flags(args: &OptimizerArgs, alpha: Option<f32>) -> [(&'static str, Option<f32>); 11] {
    let s = &args.settings;
    // Who asks L-BFGS for L1 gets only that.
    let no_l2 = args.optimizer == Some(OptimizerName::Lbfgs) && s.l1.is_some();
    [
        ("--alpha", s.alpha.or(alpha)),
        ("--beta", s.beta),
        ("--l1", s.l1),
        ("--l2", s.l2.or(no_l2.then_some(0.0))),
        ("--l21", s.l21),
        ("--momentum", s.momentum),
        ("--rho", s.rho),
        ("--beta1", s.beta1),
        ("--beta2", s.beta2),
        ("--epsilon", s.epsilon),
        ("--weight-decay", s.weight_decay),
    ]
}

/// L-BFGS's penalties, L1 and L2.
pub fn penalties(args: &OptimizerArgs) -> Result<(f64, f64), Failure> {
    let values = FlagValues { flags: &flags(args, None), known: settings(OptimizerName::Lbfgs) };
    let penalty = |flag| {
        let value = values.value(flag);
        // Parses the decimal that was typed, which the nearest float changes.
        match value.to_string().parse() {
            Ok(exact) if value.is_finite() && value >= 0.0 => Ok(exact),
            _ => Err(Failure::input(format!("{flag} {value}: a number, at least 0, is needed"))),
        }
    };
    Ok((penalty("--l1")?, penalty("--l2")?))
}

/// The choice of the flags.
pub struct RuleChoice {
    /// The rule.
    pub rule: Rule,
    /// The transform of gradients before the rule, without L2.
    pub shaping: GradientTransform,
    /// L2 that is not part of the rule.
    pub l2: f32,
}

/// The rule and the transform that the flags choose. The default is `default` with rate `alpha`.
pub fn rule_choice(
    args: &OptimizerArgs,
    default: OptimizerName,
    alpha: Option<f32>,
) -> Result<RuleChoice, Failure> {
    let s = &args.settings;
    let optimizer = args.optimizer.unwrap_or(default);
    let flags = flags(args, alpha.filter(|_| optimizer == default));
    let values = FlagValues { flags: &flags, known: settings(optimizer) };
    let rule = rule(optimizer, &values);
    let own_l2 = matches!(rule, Rule::Ftrl(_) | Rule::GroupFtrl(_));
    let l2 = if own_l2 { 0.0 } else { values.value("--l2") };
    let (clip_value, clip_norm) = (s.clip_value, s.clip_norm);
    let shaping = GradientTransform { schedule: schedule(&args.schedule)?, clip_value, clip_norm, l2 };
    rule.check().and_then(|()| shaping.check(&rule)).map_err(unfit)?;
    Ok(RuleChoice { rule, shaping: GradientTransform { l2: 0.0, ..shaping }, l2 })
}

/// The learning rate without `--alpha`. `of_model`: that of AdaGrad for the model.
pub fn default_rate(args: &OptimizerArgs, of_model: f32) -> f32 {
    match args.optimizer {
        None | Some(OptimizerName::Adagrad) => of_model,
        Some(optimizer) => FlagValues { flags: &[], known: settings(optimizer) }.value("--alpha"),
    }
}

/// The effective value of each flag, which every process of a run must share.
pub fn run_settings(args: &OptimizerArgs, default: OptimizerName, alpha: Option<f32>) -> Vec<RunSetting> {
    let (optimizer, s) = (args.optimizer.unwrap_or(default), &args.settings);
    let flags = flags(args, alpha.filter(|_| optimizer == default));
    let values = FlagValues { flags: &flags, known: settings(optimizer) };
    let mut all = vec![RunSetting::new("--optimizer", spelt(&optimizer))];
    all.extend(values.known.iter().map(|(flag, _)| RunSetting::new(flag, values.value(flag))));
    let or_none = |value: Option<f32>| value.map_or("none".to_owned(), |value| value.to_string());
    all.push(RunSetting::new("--clip-value", or_none(s.clip_value)));
    all.push(RunSetting::new("--clip-norm", or_none(s.clip_norm)));
    let schedule = &args.schedule;
    let how = schedule.schedule.unwrap_or(ScheduleName::Constant);
    all.push(RunSetting::new("--schedule", spelt(&how)));
    all.push(RunSetting::new("--warmup", schedule.warmup.unwrap_or(0)));
    all.push(RunSetting::new("--decay-steps", schedule.decay_steps.unwrap_or(0)));
    let rates = [
        ("--decay-rate", schedule.decay_rate),
        ("--decay-end", schedule.decay_end),
        ("--decay-power", schedule.decay_power),
    ];
    all.extend(rates.map(|(flag, value)| RunSetting::new(flag, or_none(value))));
    all.push(RunSetting::new("--reduce", args.reduce.map_or("by the rule".into(), |reduce| spelt(&reduce))));
    all
}

/// The schema of logistic regression, with the rule and the transform that the flags choose.
pub fn schema(table: &str, args: &OptimizerArgs) -> Result<Schema, Failure> {
    let RuleChoice { rule, shaping, l2 } = rule_choice(args, OptimizerName::Ftrl, None)?;
    let schema = Schema { shaping: GradientTransform { l2, ..shaping }, ..Schema::scalar(table, rule) };
    schema.check().map_err(|e| Failure::input(e.to_string()))?;
    let push = PushContent::choose(push(args), &schema)?;
    if push == PushContent::Replay && args.reduce.is_some() {
        return Err(Failure::input("--reduce says what becomes of gradients; it needs --push gradient"));
    }
    Ok(schema)
}

fn rule(optimizer: OptimizerName, values: &FlagValues<'_>) -> Rule {
    let value = |flag| values.value(flag);
    let (alpha, beta, l1, l2) = (value("--alpha"), value("--beta"), value("--l1"), value("--l2"));
    let (lr, eps, initial_accumulator) = (alpha, value("--epsilon"), beta);
    let momentum = |nesterov| Rule::Momentum(Momentum { lr, momentum: value("--momentum"), nesterov });
    let (beta1, beta2, decay) = (value("--beta1"), value("--beta2"), value("--weight-decay"));
    match optimizer {
        OptimizerName::Ftrl => Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        OptimizerName::GroupFtrl => Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: value("--l21") }),
        OptimizerName::Sgd => Rule::Sgd(Sgd { lr }),
        OptimizerName::Momentum => momentum(false),
        OptimizerName::Nesterov => momentum(true),
        OptimizerName::Adagrad => Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        OptimizerName::RowAdagrad => Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
        OptimizerName::Rmsprop => Rule::RmsProp(RmsProp { lr, rho: value("--rho"), eps }),
        OptimizerName::Adam => Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        OptimizerName::Amsgrad => Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }),
        // Its model stores weights as they are.
        OptimizerName::Lbfgs => Rule::Add(Add),
    }
}

fn schedule(args: &ScheduleArgs) -> Result<Schedule, Failure> {
    let how = args.schedule.unwrap_or(ScheduleName::Constant);
    let values = FlagValues {
        flags: &[
            ("--decay-rate", args.decay_rate),
            ("--decay-end", args.decay_end),
            ("--decay-power", args.decay_power),
        ],
        known: decays(how),
    };
    let steps = match (how, args.decay_steps) {
        (ScheduleName::Constant, _) => 0,
        (_, Some(steps)) => steps,
        (_, None) => {
            let text = format!("--schedule {} needs --decay-steps: over how many pushes", spelt(&how));
            return Err(Failure::input(text));
        }
    };
    let (rate, end) = (values.value("--decay-rate"), values.value("--decay-end"));
    let decay = match how {
        ScheduleName::Constant => Decay::Constant,
        ScheduleName::Exponential => Decay::Exponential { rate, steps },
        ScheduleName::Step => Decay::Step { rate, steps },
        ScheduleName::Polynomial => Decay::Polynomial { power: values.value("--decay-power"), end, steps },
        ScheduleName::InverseSqrt => Decay::InverseSqrt { steps },
        ScheduleName::Cosine => Decay::Cosine { end, steps },
    };
    Ok(Schedule { warmup: args.warmup.unwrap_or(0), decay })
}

/// A rule's error about a value. It adds the flag if the rule uses another name.
fn unfit(error: RuleError) -> Failure {
    let flag = match error {
        RuleError::Parameter { parameter, .. } => match parameter {
            "lr" => " (--alpha)",
            "eps" => " (--epsilon)",
            "decay" => " (--weight-decay)",
            "initial_accumulator" => " (--beta)",
            "steps of the schedule" => " (--decay-steps)",
            "rate of the schedule" => " (--decay-rate)",
            "end of the schedule" => " (--decay-end)",
            "power of the schedule" => " (--decay-power)",
            _ => "",
        },
        RuleError::Unfit { what: "schedule", .. } => " (--schedule, --warmup)",
        _ => "",
    };
    Failure::input(format!("{error}{flag}"))
}

/// The choice of `--push`.
pub fn push(args: &OptimizerArgs) -> Option<PushContent> {
    args.push.map(|push| match push {
        PushName::Replay => PushContent::Replay,
        PushName::Gradient => PushContent::Gradient,
    })
}

/// The choice of `--reduce`.
pub fn reduce(args: &OptimizerArgs) -> Option<Reduce> {
    args.reduce.map(|reduce| match reduce {
        ReduceName::Sum => Reduce::Sum,
        ReduceName::Mean => Reduce::Mean,
    })
}
