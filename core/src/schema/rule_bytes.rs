//! A rule and its gradient transform as bytes: fixed width, little-endian (docs/image.md). Images, checkpoints
//! and the wire contain these bytes, so the number of a kind and the order of its parameters must never change.

use gannet_optim::{
    AdaGrad, Adam, Add, AmsGrad, Decay, Float16, Ftrl, GradientTransform, GroupFtrl, Momentum, RmsProp,
    RowAdaGrad, Rule, Schedule, Sgd,
};

/// Bytes of a rule and its gradient transform.
pub(crate) const RULE_BYTES: usize = 56;

/// The flags of a rule whose rows have packed weights. Programs before them refuse a table that has one.
const BF16: u16 = 2;
const F16: u16 = 4;

/// Parameters of a rule. Unused ones are 0.
const PARAMETERS: usize = 5;

/// Appends `rule` and `shaping`: [`RULE_BYTES`] bytes.
pub(crate) fn put_rule(out: &mut Vec<u8>, rule: &Rule, shaping: &GradientTransform) {
    let (kind, flags, parameters) = rule_parts(rule);
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    parameters.iter().for_each(|x| out.extend(x.to_le_bytes()));
    let GradientTransform { schedule, clip_value, clip_norm, l2 } = shaping;
    let (kind, a, b, steps) = decay_parts(&schedule.decay);
    out.extend(kind.to_le_bytes());
    out.extend(schedule.warmup.to_le_bytes());
    out.extend(steps.to_le_bytes());
    // A clip is above 0, so 0 stands for no clip.
    for x in [a, b, clip_value.unwrap_or(0.0), clip_norm.unwrap_or(0.0), *l2] {
        out.extend(x.to_le_bytes());
    }
}

/// Reads a rule and its gradient transform from [`RULE_BYTES`] bytes. `None` for bytes that [`put_rule`] never writes.
/// The caller checks ranges.
pub(crate) fn take_rule(bytes: &[u8]) -> Option<(Rule, GradientTransform)> {
    let bytes: &[u8; RULE_BYTES] = bytes.try_into().ok()?;
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    let real = |at: usize| f32::from_bits(word(at));
    let rule = rule_of(half(0), half(2), std::array::from_fn(|i| real(4 + 4 * i)))?;
    let at = 4 + 4 * PARAMETERS;
    let decay = decay_of(word(at), real(at + 12), real(at + 16), word(at + 8))?;
    let clip = |at: usize| Some(real(at)).filter(|most| *most != 0.0);
    let shaping = GradientTransform {
        schedule: Schedule { warmup: word(at + 4), decay },
        clip_value: clip(at + 20),
        clip_norm: clip(at + 24),
        l2: real(at + 28),
    };
    Some((rule, shaping))
}

fn rule_parts(rule: &Rule) -> (u16, u16, [f32; PARAMETERS]) {
    match *rule {
        Rule::Add(Add) => (0, 0, [0.0; 5]),
        Rule::Sgd(Sgd { lr }) => (1, 0, [lr, 0.0, 0.0, 0.0, 0.0]),
        Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator: s }) => (2, 0, [lr, eps, s, 0.0, 0.0]),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }) => (3, 0, [alpha, beta, l1, l2, 0.0]),
        Rule::Momentum(Momentum { lr, momentum, nesterov }) => {
            (4, u16::from(nesterov), [lr, momentum, 0.0, 0.0, 0.0])
        }
        Rule::RmsProp(RmsProp { lr, rho, eps }) => (5, 0, [lr, rho, eps, 0.0, 0.0]),
        Rule::Adam(Adam { lr, beta1, beta2, eps, decay }) => (6, 0, [lr, beta1, beta2, eps, decay]),
        Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }) => (7, 0, [lr, beta1, beta2, eps, decay]),
        Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator: s }) => (8, 0, [lr, eps, s, 0.0, 0.0]),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21 }) => (9, 0, [alpha, beta, l1, l2, l21]),
        Rule::Packed(format, rule) => {
            let (kind, flags, parameters) = rule_parts(&rule.f32_rule());
            let flag = match format {
                Float16::Bf16 => BF16,
                Float16::F16 => F16,
            };
            (kind, flags | flag, parameters)
        }
    }
}

fn rule_of(kind: u16, flags: u16, parameters: [f32; PARAMETERS]) -> Option<Rule> {
    let format = match flags & (BF16 | F16) {
        0 => None,
        BF16 => Some(Float16::Bf16),
        F16 => Some(Float16::F16),
        _ => return None,
    };
    if let Some(format) = format {
        return rule_of(kind, flags & !(BF16 | F16), parameters)?.with_packed_weights(format).ok();
    }
    let [a, b, c, d, e] = parameters;
    let rule = match kind {
        0 => Rule::Add(Add),
        1 => Rule::Sgd(Sgd { lr: a }),
        2 => Rule::AdaGrad(AdaGrad { lr: a, eps: b, initial_accumulator: c }),
        3 => Rule::Ftrl(Ftrl { alpha: a, beta: b, l1: c, l2: d }),
        4 => Rule::Momentum(Momentum { lr: a, momentum: b, nesterov: flags & 1 != 0 }),
        5 => Rule::RmsProp(RmsProp { lr: a, rho: b, eps: c }),
        6 => Rule::Adam(Adam { lr: a, beta1: b, beta2: c, eps: d, decay: e }),
        7 => Rule::AmsGrad(AmsGrad { lr: a, beta1: b, beta2: c, eps: d, decay: e }),
        8 => Rule::RowAdaGrad(RowAdaGrad { lr: a, eps: b, initial_accumulator: c }),
        9 => Rule::GroupFtrl(GroupFtrl { alpha: a, beta: b, l1: c, l2: d, l21: e }),
        _ => return None,
    };
    // Only a newer program writes a flag or parameter that the rule does not have here.
    let (_, known, own) = rule_parts(&rule);
    let unknown = parameters.iter().zip(&own).any(|(x, y)| x.to_bits() != y.to_bits());
    (flags == known && !unknown).then_some(rule)
}

/// Kind, the two parameters, steps.
fn decay_parts(decay: &Decay) -> (u32, f32, f32, u32) {
    match *decay {
        Decay::Constant => (0, 0.0, 0.0, 0),
        Decay::Exponential { rate, steps } => (1, rate, 0.0, steps),
        Decay::Step { rate, steps } => (2, rate, 0.0, steps),
        Decay::Polynomial { power, end, steps } => (3, power, end, steps),
        Decay::InverseSqrt { steps } => (4, 0.0, 0.0, steps),
        Decay::Cosine { end, steps } => (5, end, 0.0, steps),
    }
}

fn decay_of(kind: u32, a: f32, b: f32, steps: u32) -> Option<Decay> {
    let decay = match kind {
        0 => Decay::Constant,
        1 => Decay::Exponential { rate: a, steps },
        2 => Decay::Step { rate: a, steps },
        3 => Decay::Polynomial { power: a, end: b, steps },
        4 => Decay::InverseSqrt { steps },
        5 => Decay::Cosine { end: a, steps },
        _ => return None,
    };
    let (_, x, y, n) = decay_parts(&decay);
    (x.to_bits() == a.to_bits() && y.to_bits() == b.to_bits() && n == steps).then_some(decay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(rule: &Rule, shaping: &GradientTransform) -> Vec<u8> {
        let mut out = Vec::new();
        put_rule(&mut out, rule, shaping);
        assert_eq!(out.len(), RULE_BYTES);
        out
    }

    /// Golden: images and checkpoints contain these bytes.
    #[test]
    fn the_bytes_are_frozen() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let momentum = Rule::Momentum(Momentum { lr: 0.5, momentum: 0.75, nesterov: true });
        let shaping = GradientTransform {
            schedule: Schedule { warmup: 258, decay: Decay::Polynomial { power: 2.0, end: 0.25, steps: 7 } },
            clip_value: Some(8.0),
            clip_norm: Some(16.0),
            l2: 0.125,
        };
        let golden = "040001000000003f0000403f000000000000000000000000\
             030000000201000007000000000000400000803e00000041000080410000003e";
        assert_eq!(hex(&bytes(&momentum, &shaping)), golden);
        for (format, head) in [(Float16::Bf16, "04000300"), (Float16::F16, "04000500")] {
            let small = momentum.with_packed_weights(format).unwrap();
            assert_eq!(hex(&bytes(&small, &shaping)), golden.replacen("04000100", head, 1));
        }
        let adam = Rule::Adam(Adam { lr: 1.0, beta1: 0.5, beta2: 0.25, eps: 2.0, decay: 4.0 });
        let golden = format!("060000000000803f0000003f0000803e0000004000008040{}", "00".repeat(32));
        assert_eq!(hex(&bytes(&adam, &GradientTransform::NONE)), golden);
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let numbers = prop::array::uniform5(0.0f32..4.0);
        let format = prop_oneof![Just(None), Just(Some(Float16::Bf16)), Just(Some(Float16::F16))];
        (0u16..10, any::<bool>(), format, numbers).prop_map(|(kind, nesterov, format, mut p)| {
            // The number of parameters of each kind.
            let known = [0, 1, 3, 4, 2, 3, 5, 5, 3, 5][kind as usize];
            p[known..].fill(0.0);
            let rule = rule_of(kind, u16::from(nesterov && kind == 4), p).unwrap();
            format.and_then(|format| rule.with_packed_weights(format).ok()).unwrap_or(rule)
        })
    }

    fn shaping() -> impl Strategy<Value = GradientTransform> {
        let decay =
            (0u32..6, 0.0f32..1.0, 0.0f32..1.0, 1u32..1000).prop_map(|(kind, a, b, steps)| match kind {
                0 => Decay::Constant,
                1 => Decay::Exponential { rate: a, steps },
                2 => Decay::Step { rate: a, steps },
                3 => Decay::Polynomial { power: a, end: b, steps },
                4 => Decay::InverseSqrt { steps },
                _ => Decay::Cosine { end: a, steps },
            });
        let clip = || prop::option::of(0.1f32..9.0);
        (any::<u32>(), decay, clip(), clip(), 0.0f32..1.0).prop_map(|(warmup, decay, value, norm, l2)| {
            GradientTransform { schedule: Schedule { warmup, decay }, clip_value: value, clip_norm: norm, l2 }
        })
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken((rule, shaping) in (rule(), shaping()), at in 0..RULE_BYTES, byte: u8) {
            let mut put = bytes(&rule, &shaping);
            prop_assert_eq!(take_rule(&put), Some((rule, shaping)));
            prop_assert_eq!(take_rule(&put[1..]), None);
            // `put` writes exactly the bytes that `take` accepts: every value has one encoding (except -0).
            put[at] = byte;
            if let Some((rule, shaping)) = take_rule(&put)
                && shaping.clip_value != Some(-0.0) && put[44..52].chunks(4).all(|b| b != [0, 0, 0, 128])
            {
                prop_assert_eq!(bytes(&rule, &shaping), put);
            }
        }
    }
}
