//! Which settings rules and gradient transforms refuse, and with which messages.

use gannet_optim::*;

const NOT_POSITIVE: [f32; 5] = [0.0, -0.1, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
const NEGATIVE: [f32; 4] = [-1e-9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
const NOT_BELOW_ONE: [f32; 5] = [1.0, 1.5, -1e-9, f32::NAN, f32::INFINITY];

const ADAGRAD: AdaGrad = AdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.1 };
const ROW_ADAGRAD: RowAdaGrad = RowAdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.1 };
const FTRL: Ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 };
const GROUP: GroupFtrl = GroupFtrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5, l21: 0.5 };
const MOMENTUM: Momentum = Momentum { lr: 0.1, momentum: 0.9, nesterov: false };
const RMSPROP: RmsProp = RmsProp { lr: 0.1, rho: 0.9, eps: 1e-7 };
const ADAM: Adam = Adam { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 };
const AMSGRAD: AmsGrad = AmsGrad { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 };

fn refused(rule: Rule, parameter: &str, value: f32) {
    let e = rule.check().expect_err(&format!("{rule:?}"));
    let RuleError::Parameter { rule: name, parameter: named, value: v, allowed } = e else { panic!("{e}") };
    assert_eq!((name, named, v.to_bits()), (rule.name(), parameter, value.to_bits()), "{rule:?}");
    assert!(e.to_string().contains(parameter) && e.to_string().contains(allowed), "{e}");
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for v in NOT_POSITIVE {
        refused(Rule::Sgd(Sgd { lr: v }), "lr", v);
        refused(Rule::AdaGrad(AdaGrad { lr: v, ..ADAGRAD }), "lr", v);
        refused(Rule::RowAdaGrad(RowAdaGrad { lr: v, ..ROW_ADAGRAD }), "lr", v);
        refused(Rule::Ftrl(Ftrl { alpha: v, ..FTRL }), "alpha", v);
        refused(Rule::GroupFtrl(GroupFtrl { alpha: v, ..GROUP }), "alpha", v);
        refused(Rule::Momentum(Momentum { lr: v, ..MOMENTUM }), "lr", v);
        refused(Rule::RmsProp(RmsProp { lr: v, ..RMSPROP }), "lr", v);
        refused(Rule::RmsProp(RmsProp { eps: v, ..RMSPROP }), "eps", v);
        refused(Rule::Adam(Adam { lr: v, ..ADAM }), "lr", v);
        refused(Rule::Adam(Adam { eps: v, ..ADAM }), "eps", v);
        refused(Rule::AmsGrad(AmsGrad { lr: v, ..AMSGRAD }), "lr", v);
        refused(Rule::AmsGrad(AmsGrad { eps: v, ..AMSGRAD }), "eps", v);
    }
    for v in NEGATIVE {
        refused(Rule::AdaGrad(AdaGrad { eps: v, ..ADAGRAD }), "eps", v);
        refused(Rule::AdaGrad(AdaGrad { initial_accumulator: v, ..ADAGRAD }), "initial_accumulator", v);
        refused(Rule::RowAdaGrad(RowAdaGrad { eps: v, ..ROW_ADAGRAD }), "eps", v);
        refused(Rule::Ftrl(Ftrl { beta: v, ..FTRL }), "beta", v);
        refused(Rule::Ftrl(Ftrl { l1: v, ..FTRL }), "l1", v);
        refused(Rule::Ftrl(Ftrl { l2: v, ..FTRL }), "l2", v);
        refused(Rule::GroupFtrl(GroupFtrl { l2: v, ..GROUP }), "l2", v);
        refused(Rule::GroupFtrl(GroupFtrl { l21: v, ..GROUP }), "l21", v);
        refused(Rule::Adam(Adam { decay: v, ..ADAM }), "decay", v);
        refused(Rule::AmsGrad(AmsGrad { decay: v, ..AMSGRAD }), "decay", v);
    }
    for v in NOT_BELOW_ONE {
        refused(Rule::Momentum(Momentum { momentum: v, ..MOMENTUM }), "momentum", v);
        refused(Rule::RmsProp(RmsProp { rho: v, ..RMSPROP }), "rho", v);
        refused(Rule::Adam(Adam { beta1: v, ..ADAM }), "beta1", v);
        refused(Rule::Adam(Adam { beta2: v, ..ADAM }), "beta2", v);
        refused(Rule::AmsGrad(AmsGrad { beta1: v, ..AMSGRAD }), "beta1", v);
        refused(Rule::AmsGrad(AmsGrad { beta2: v, ..AMSGRAD }), "beta2", v);
    }
    // 1 / alpha overflows.
    refused(Rule::Ftrl(Ftrl { alpha: 1e-40, ..FTRL }), "alpha", 1e-40);
    // A fresh row would divide zero by zero.
    refused(Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 0.0, initial_accumulator: 0.0 }), "eps", 0.0);
    refused(Rule::RowAdaGrad(RowAdaGrad { lr: 0.1, eps: 0.0, initial_accumulator: 0.0 }), "eps", 0.0);
    refused(Rule::Ftrl(Ftrl { beta: 0.0, l2: 0.0, ..FTRL }), "beta", 0.0);
    refused(Rule::GroupFtrl(GroupFtrl { beta: 0.0, l2: 0.0, ..GROUP }), "beta", 0.0);
    // A decay that flips the sign.
    refused(Rule::Adam(Adam { decay: 10.5, ..ADAM }), "decay", 10.5);
}

fn all() -> [Rule; 10] {
    [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr: 1e-6 }),
        Rule::AdaGrad(ADAGRAD),
        Rule::Ftrl(FTRL),
        Rule::Momentum(MOMENTUM),
        Rule::RmsProp(RMSPROP),
        Rule::Adam(ADAM),
        Rule::AmsGrad(AMSGRAD),
        Rule::RowAdaGrad(ROW_ADAGRAD),
        Rule::GroupFtrl(GROUP),
    ]
}

#[test]
fn values_in_range_pass() {
    for rule in all() {
        assert_eq!(rule.check(), Ok(()), "{rule:?}");
        assert_eq!(GradientTransform::NONE.check(&rule), Ok(()));
    }
    for rule in [
        Rule::AdaGrad(AdaGrad { lr: 10.0, eps: 0.0, initial_accumulator: 0.1 }),
        Rule::AdaGrad(AdaGrad { lr: 10.0, eps: 1e-10, initial_accumulator: 0.0 }),
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 0.0, l1: 0.0, l2: 1.0 }),
        Rule::Adam(Adam { beta1: 0.0, beta2: 0.0, decay: 10.0, ..ADAM }),
        Rule::GroupFtrl(GroupFtrl { l21: 0.0, ..GROUP }),
    ] {
        assert_eq!(rule.check(), Ok(()), "{rule:?}");
    }
    let replay: Vec<_> = all().iter().filter(|rule| rule.replays()).map(Rule::name).collect();
    assert_eq!(replay, ["add", "sgd", "adagrad", "ftrl", "row-adagrad", "group-ftrl"]);
    assert_eq!(all().map(|rule| rule.floats(16)), [16, 16, 32, 32, 32, 32, 50, 66, 17, 32]);
}

#[test]
fn the_rate_is_that_of_rules_that_have_one() {
    for rule in all() {
        assert_eq!(rule.at_rate(1.0), rule);
        let scheduled = Schedule { warmup: 5, decay: Decay::Constant };
        let takes = GradientTransform { schedule: scheduled, ..GradientTransform::NONE }.check(&rule).is_ok();
        assert_eq!(rule.at_rate(0.5) != rule, takes, "{rule:?}");
    }
    assert_eq!(Rule::Adam(ADAM).at_rate(0.5), Rule::Adam(Adam { lr: 0.05, ..ADAM }));
}

#[test]
fn shaping_that_makes_no_sense_is_refused_with_the_reason() {
    let schedule = Schedule { warmup: 0, decay: Decay::Cosine { end: 0.0, steps: 10 } };
    let scheduled = GradientTransform { schedule, ..GradientTransform::NONE };
    let clipped = GradientTransform { clip_norm: Some(1.0), ..GradientTransform::NONE };
    let regularised = GradientTransform { l2: 0.1, ..GradientTransform::NONE };
    let unfit = |shaping: GradientTransform, rule: Rule, part: &str| {
        let e = shaping.check(&rule).unwrap_err().to_string();
        assert!(e.starts_with(&format!("{} takes no {part}: ", rule.name())), "{e}");
    };
    for rule in [Rule::Ftrl(FTRL), Rule::GroupFtrl(GROUP)] {
        unfit(scheduled, rule, "schedule");
        unfit(regularised, rule, "l2 beside its own");
        assert_eq!(clipped.check(&rule), Ok(()));
    }
    for (shaping, part) in [(scheduled, "schedule"), (clipped, "clipping"), (regularised, "l2")] {
        unfit(shaping, Rule::Add(Add), if part == "l2" { "l2 beside its own" } else { part });
        for rule in
            all().into_iter().filter(|r| !matches!(r, Rule::Add(_) | Rule::Ftrl(_) | Rule::GroupFtrl(_)))
        {
            assert_eq!(shaping.check(&rule), Ok(()), "{rule:?}");
        }
    }
    let refused = |shaping: GradientTransform, parameter: &str| {
        let e = shaping.check(&Rule::Sgd(Sgd { lr: 0.1 })).unwrap_err();
        assert!(matches!(e, RuleError::Parameter { parameter: p, .. } if p == parameter), "{e}");
    };
    let decay =
        |decay| GradientTransform { schedule: Schedule { warmup: 0, decay }, ..GradientTransform::NONE };
    for v in NOT_POSITIVE {
        refused(GradientTransform { clip_value: Some(v), ..GradientTransform::NONE }, "clip by value");
        refused(GradientTransform { clip_norm: Some(v), ..GradientTransform::NONE }, "clip by norm");
        refused(decay(Decay::Exponential { rate: v, steps: 1 }), "rate of the schedule");
        refused(decay(Decay::Polynomial { power: v, end: 0.0, steps: 1 }), "power of the schedule");
    }
    for v in NEGATIVE {
        refused(GradientTransform { l2: v, ..GradientTransform::NONE }, "l2");
        refused(decay(Decay::Cosine { end: v, steps: 1 }), "end of the schedule");
    }
    refused(decay(Decay::Step { rate: 1.5, steps: 1 }), "rate of the schedule");
    for none in [
        Decay::Exponential { rate: 0.5, steps: 0 },
        Decay::Step { rate: 0.5, steps: 0 },
        Decay::Polynomial { power: 1.0, end: 0.0, steps: 0 },
        Decay::InverseSqrt { steps: 0 },
        Decay::Cosine { end: 0.0, steps: 0 },
    ] {
        refused(decay(none), "steps of the schedule");
    }
}

#[test]
fn an_error_reads_well() {
    let e = Rule::Sgd(Sgd { lr: -0.5 }).check().unwrap_err();
    assert_eq!(e.to_string(), "sgd: lr is -0.5, must be finite and above 0");
}
