//! Rows whose weights have 16 bits, beside the same rule on rows of f32.

use gannet_optim::*;
use proptest::collection::vec;
use proptest::prelude::*;

struct Init<'a>(&'a [f32]);
struct Weights<'a>(&'a [f32], usize);
struct Sound<'a>(&'a [f32]);

/// One step on an instruction set, rounded by a chance.
struct Step<'a> {
    row: &'a mut [f32],
    gradient: &'a [f32],
    chance: u64,
}

impl Visitor for Init<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![f32::NAN; U::floats(self.0.len())];
        rule.init(self.0, &mut row);
        row
    }
}

impl Visitor for Weights<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let (mut all, mut few) = (vec![f32::NAN; self.1], vec![f32::NAN; self.1]);
        rule.weights(self.0, &mut all);
        rule.weights(&self.0[..U::weight_floats(self.1)], &mut few);
        assert_eq!(bits(&all), bits(&few), "the floats behind them change no weight");
        all
    }
}

impl Visitor for Sound<'_> {
    type Out = bool;
    fn run<U: Update>(self, rule: U) -> bool {
        all_finite(self.0) && rule.is_sound(self.0)
    }
}

/// The weights of rows that are packed floats and no more, on an instruction set.
struct Read<'a>(&'a [f32], &'a mut [f32]);

impl Work for Read<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) {
        rule.weights_on(isa, self.0, self.1);
    }
}

impl Work for Step<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) {
        rule.with_chance(self.chance).update_on(isa, self.row, self.gradient);
    }
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|float| float.to_bits()).collect()
}

fn rules() -> impl Strategy<Value = Rule> {
    let (lr, past, eps) = (0.001f32..1.0, 0.0f32..0.999, 1e-6f32..0.1);
    (0..7, lr, past, eps, 0.0f32..1.0).prop_map(|(kind, lr, past, eps, initial_accumulator)| match kind {
        0 => Rule::Sgd(Sgd { lr }),
        1 => Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        2 => Rule::Momentum(Momentum { lr, momentum: past, nesterov: lr < 0.5 }),
        3 => Rule::RmsProp(RmsProp { lr, rho: past, eps }),
        4 => Rule::Adam(Adam { lr, beta1: past, beta2: 0.99, eps, decay: 0.1 }),
        5 => Rule::AmsGrad(AmsGrad { lr, beta1: past, beta2: 0.99, eps, decay: 0.0 }),
        _ => Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
    })
}

/// Weights of all sizes that a format has, and some that it has not.
fn values(format: Float16, dim: usize) -> BoxedStrategy<Vec<f32>> {
    let around = prop_oneof![6 => -2.0f32..2.0, 1 => Just(0.0f32), 1 => Just(-0.0)];
    match format {
        Float16::Bf16 => {
            vec(prop_oneof![6 => around, 1 => -1e30f32..1e30, 1 => -1e-38f32..1e-38], dim).boxed()
        }
        // 6e-8 is the distance between two f16 below 6e-5.
        Float16::F16 => {
            vec(prop_oneof![6 => around, 1 => -7e4f32..7e4, 1 => -1e-4f32..1e-4, 1 => -1e-6f32..1e-6], dim)
                .boxed()
        }
    }
}

fn formats() -> impl Strategy<Value = Float16> {
    prop_oneof![Just(Float16::Bf16), Just(Float16::F16)]
}

/// The bits of the nearest one, by the crate `half`, and the number that bits are.
fn half_bits(format: Float16, weight: f32) -> u16 {
    match format {
        Float16::Bf16 => half::bf16::from_f32(weight).to_bits(),
        Float16::F16 => half::f16::from_f32(weight).to_bits(),
    }
}

fn number(format: Float16, bits: u16) -> f32 {
    match format {
        Float16::Bf16 => half::bf16::from_bits(bits).to_f32(),
        Float16::F16 => half::f16::from_bits(bits).to_f32(),
    }
}

/// The nearest one of a weight. A finite one beyond the range of bf16 is its largest; beyond that of f16 it is
/// infinite.
fn nearest(format: Float16, weight: f32) -> f32 {
    if weight.abs() > format.largest() && weight.is_finite() {
        let beyond = if format == Float16::F16 { f32::INFINITY } else { format.largest() };
        return beyond.copysign(weight);
    }
    number(format, half_bits(format, weight))
}

/// The two neighbours of a weight within the range of the format, which are one if the format has this number.
fn neighbours(format: Float16, weight: f32) -> [f32; 2] {
    let bits = half_bits(format, weight);
    let near = number(format, bits);
    match near.abs().total_cmp(&weight.abs()) {
        std::cmp::Ordering::Less => [near, number(format, bits + 1)],
        std::cmp::Ordering::Equal => [near, near],
        std::cmp::Ordering::Greater => [number(format, bits - 1), near],
    }
}

/// All numbers of a format, their nearest ones, and what lies between them.
#[test]
fn numbers_are_those_of_the_crate_half() {
    for format in [Float16::Bf16, Float16::F16] {
        let rule = Rule::Sgd(Sgd { lr: 0.1 }).with_packed_weights(format).unwrap();
        for bits in 0..=u16::MAX {
            let (number, packed) =
                (number(format, bits), f32::from_bits(u32::from(bits) << 16 | u32::from(bits)));
            for length in [1, 20] {
                for cpu in Cpu::all() {
                    let mut weights = vec![0.0; 2 * length];
                    rule.work(cpu, Read(&vec![packed; length], &mut weights));
                    for weight in weights {
                        assert!(
                            number.is_nan() && weight.is_nan() || weight.to_bits() == number.to_bits(),
                            "{bits:#x}"
                        );
                    }
                }
            }
            if number.is_nan() {
                continue;
            }
            assert_eq!(format.nearest(number).to_bits(), number.to_bits(), "{bits:#x}");
            let more = f32::from_bits(number.to_bits() + 0x7ff);
            let near = [format.nearest(more), nearest(format, more)];
            assert!(more.is_nan() || near[0].to_bits() == near[1].to_bits(), "{more:e}");
        }
    }
}

proptest! {
    #[test]
    fn nearest_is_that_of_the_crate_half(format in formats(), weight: u32) {
        let weight = f32::from_bits(weight);
        let (here, there) = (format.nearest(weight), nearest(format, weight));
        prop_assert_eq!(here.is_finite(), there.is_finite(), "{:e}", weight);
        prop_assert!(!here.is_finite() || here.to_bits() == there.to_bits(), "{:e} of {:e}", here, weight);
    }

    /// Each step gives one of the two neighbours of the weight that the f32 rule gives, and its state bit by bit.
    #[test]
    fn a_step_is_that_of_f32_then_rounded(
        (format, rule, weights, gradients) in (formats(), rules(), 1usize..140).prop_flat_map(|(format, rule, dim)| {
            (Just(format), Just(rule), values(format, dim), vec(vec(-3.0f32..3.0, dim), 1..4))
        }),
        chance: u64,
    ) {
        let (dim, small) = (weights.len(), rule.with_packed_weights(format).unwrap());
        let mut row = small.visit(Init(&weights));
        prop_assert_eq!(row.len(), small.floats(dim));
        prop_assert_eq!(row.len(), dim.div_ceil(2) + rule.floats(dim) - dim);
        let begin: Vec<f32> = weights.iter().map(|&weight| nearest(format, weight)).collect();
        prop_assert_eq!(bits(&small.visit(Weights(&row, dim))), bits(&begin));
        for (step, gradient) in (0u64..).zip(&gradients) {
            let chance = chance.wrapping_add(step << 40);
            let mut wide = Vec::new();
            small.put_f32_row(dim, &row, &mut wide);
            let mut again = Vec::new();
            small.put_row_of_f32(dim, &wide, &mut again);
            prop_assert_eq!(bits(&again), bits(&row), "a packed row is exact in f32");
            rule.work(Cpu::Scalar, Step { row: &mut wide, gradient, chance });
            let mut first = None;
            for cpu in Cpu::all() {
                let mut next = row.clone();
                small.work(cpu, Step { row: &mut next, gradient, chance });
                prop_assert_eq!(first.get_or_insert(bits(&next)), &bits(&next), "{}", cpu.name());
            }
            small.work(Cpu::Scalar, Step { row: &mut row, gradient, chance });
            prop_assert_eq!(bits(&row[dim.div_ceil(2)..]), bits(&wide[dim..]), "the state stays f32");
            let mut within = true;
            for (&rounded, &exact) in small.visit(Weights(&row, dim)).iter().zip(&wide[..dim]) {
                if exact.abs() > format.largest() {
                    within = false;
                    prop_assert_eq!(rounded.is_finite(), format == Float16::Bf16, "{} of {}", rounded, exact);
                } else {
                    let near = neighbours(format, exact);
                    prop_assert!(near.map(f32::to_bits).contains(&rounded.to_bits()), "{} of {}", rounded, exact);
                }
            }
            let sound = rule.visit(Sound(&wide)) && (within || format == Float16::Bf16);
            prop_assert_eq!(small.visit(Sound(&row)), sound);
            if !sound {
                break;
            }
        }
    }

    /// A value that is not finite is found in every weight, and a negative sum in every place that f32 rows find.
    #[test]
    fn unsound_rows_are_found(
        (format, rule, weights) in (formats(), rules(), 1usize..40)
            .prop_flat_map(|(format, rule, dim)| (Just(format), Just(rule), vec(-9.0f32..9.0, dim))),
        bad in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(-1.0)],
    ) {
        let (dim, small) = (weights.len(), rule.with_packed_weights(format).unwrap());
        let mut wide = Vec::new();
        small.put_f32_row(dim, &small.visit(Init(&weights)), &mut wide);
        for at in 0..wide.len() {
            let mut spoilt = wide.clone();
            spoilt[at] = bad;
            let mut row = Vec::new();
            small.put_row_of_f32(dim, &spoilt, &mut row);
            prop_assert_eq!(small.visit(Sound(&row)), rule.visit(Sound(&spoilt)), "float {}", at);
        }
    }
}

proptest! {
    /// Whatever a step makes of weights, every instruction set packs the same bits. What NaN becomes is not finite.
    #[test]
    fn any_weights_are_packed_alike(format in formats(), weights in vec(any::<u32>(), 1..100), chance: u64) {
        let small = Rule::Sgd(Sgd { lr: 1.0 }).with_packed_weights(format).unwrap();
        // 0 - 1 * g
        let gradient: Vec<f32> = weights.iter().map(|&bits| -f32::from_bits(bits)).collect();
        let packed = |cpu: Cpu| {
            let mut row = small.visit(Init(&vec![0.0; gradient.len()]));
            small.work(cpu, Step { row: &mut row, gradient: &gradient, chance });
            row
        };
        let expected = small.visit(Weights(&packed(Cpu::Scalar), gradient.len()));
        for cpu in Cpu::all() {
            let weights = small.visit(Weights(&packed(cpu), gradient.len()));
            for ((here, there), &g) in weights.iter().zip(&expected).zip(&gradient) {
                let alike = here.to_bits() == there.to_bits() || g.is_nan() && !here.is_finite() && !there.is_finite();
                prop_assert!(alike, "{:e}: {:e} and {:e}, {}", -g, here, there, cpu.name());
                prop_assert_eq!(here.is_finite(), g.is_finite() && (g.abs() <= format.largest() || format == Float16::Bf16));
            }
        }
    }
}

/// Steps far smaller than the distance between two numbers are not lost: the mean over many chances is the exact
/// weight.
#[test]
fn the_expected_weight_is_exact() {
    // A format, a weight, and the distance between two numbers from there to twice as much. Below 2^-14 that of f16
    // does not fall any more.
    let cases = [
        (Float16::Bf16, 1.0, 1.0 / 128.0),
        (Float16::F16, 1.0, 1.0 / 1024.0),
        (Float16::F16, 2f32.powi(-15), 2f32.powi(-24)),
        (Float16::F16, 2f32.powi(-20), 2f32.powi(-24)),
    ];
    for (format, weight, distance) in cases {
        let small = Rule::Sgd(Sgd { lr: 1.0 }).with_packed_weights(format).unwrap();
        let (rows, steps, step) = (4000u64, 64u64, distance / 32.0);
        // Both halves of a float, and a third weight.
        let mut sums = [0.0f64; 3];
        for key in 0..rows {
            let mut row = small.visit(Init(&[weight, -weight, 1.5 * weight]));
            for seq in 0..steps {
                let chance = (key << 32 | seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let gradient = [-step, step, step];
                small.work(Cpu::Scalar, Step { row: &mut row, gradient: &gradient, chance });
            }
            let weights = small.visit(Weights(&row, 3));
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += f64::from(weight));
        }
        let (weight, moved) = (f64::from(weight), f64::from(step) * steps as f64);
        for (sum, exact) in sums.into_iter().zip([weight + moved, -weight - moved, 1.5 * weight - moved]) {
            let mean = sum / rows as f64;
            // The standard deviation of the mean is sqrt(64 / 32) / sqrt(4000) = 0.022 distances.
            assert!(
                (mean - exact).abs() < 0.1 * f64::from(distance),
                "{format:?}: {mean} instead of {exact}"
            );
        }
    }
}

/// Golden: an owner and its copies round alike, whatever their versions, and images have these floats.
#[test]
fn the_rounding_is_frozen() {
    let step = |format, begin: f32, gradient: f32| {
        let small = Rule::Sgd(Sgd { lr: 1.0 }).with_packed_weights(format).unwrap();
        let mut row = small.visit(Init(&[begin; 33]));
        let chance = 0x0123_4567_89ab_cdef;
        small.work(Cpu::Scalar, Step { row: &mut row, gradient: &[gradient; 33], chance });
        row.iter().map(|float| format!("{:08x}", float.to_bits())).collect::<Vec<_>>().join(" ")
    };
    let row = |format| {
        let small = Rule::Sgd(Sgd { lr: 1.0 }).with_packed_weights(format).unwrap();
        bits(&small.visit(Init(&[1.0, 2.0, 3.0])))
    };
    assert_eq!(row(Float16::Bf16), [0x4040_3f80, 0x0000_4000]);
    assert_eq!(row(Float16::F16), [0x4200_3c00, 0x0000_4000]);
    // Each weight lies in the middle between two numbers.
    let golden = "3f813f80 3f803f81 3f803f81 3f813f81 3f803f81 3f803f80 3f803f80 3f813f81 3f813f81 3f813f80 3f813f81 \
                  3f803f81 3f813f80 3f803f81 3f803f80 3f803f80 00003f80";
    assert_eq!(step(Float16::Bf16, 0.0, -1.0 - 1.0 / 256.0), golden);
    let golden = "3c013c00 3c003c01 3c003c01 3c013c01 3c003c01 3c003c00 3c003c00 3c013c01 3c013c01 3c013c00 3c013c01 \
                  3c003c01 3c013c00 3c003c01 3c003c00 3c003c00 00003c00";
    assert_eq!(step(Float16::F16, 0.0, -1.0 - 1.0 / 2048.0), golden);
    // 2.5 times the distance near 0.
    let golden = "80038002 80028003 80028003 80038003 80028003 80028002 80028002 80038003 80038003 80038002 80038003 \
                  80028003 80038002 80028003 80028002 80028002 00008002";
    assert_eq!(step(Float16::F16, 0.0, 2.5 / 16_777_216.0), golden);
}

/// A weight beyond the largest f16 makes the row unsound, so that whoever pushes it hears of it.
#[test]
fn a_weight_beyond_f16_is_found() {
    let small = Rule::Sgd(Sgd { lr: 1.0 }).with_packed_weights(Float16::F16).unwrap();
    for (gradient, sound) in [(0.0, true), (-0.1, false), (-1e30, false), (f32::NAN, false), (65_504.0, true)]
    {
        for (dim, at) in [(3, 0), (3, 1), (3, 2), (32, 3), (32, 20), (64, 63)] {
            for cpu in Cpu::all() {
                let mut row = small.visit(Init(&vec![65_504.0; dim]));
                let mut gradients = vec![0.0; dim];
                gradients[at] = gradient;
                small.work(cpu, Step { row: &mut row, gradient: &gradients, chance: 7 });
                assert_eq!(small.visit(Sound(&row)), sound, "{gradient} at {at} of {dim}, {}", cpu.name());
            }
        }
    }
}

#[test]
fn rules_without_stored_weights_are_refused_by_name() {
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let group = Rule::GroupFtrl(GroupFtrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0, l21: 0.0 });
    for rule in [ftrl, group, Rule::Add(Add)] {
        for format in [Float16::Bf16, Float16::F16] {
            let why = rule.with_packed_weights(format).unwrap_err().to_string();
            let begin = format!("{} takes no weights in {}: it ", rule.name(), format.name());
            assert!(why.starts_with(&begin), "{why}");
        }
    }
}

#[test]
fn it_is_one_more_rule() {
    let rule = Rule::Adam(Adam { lr: 0.5, beta1: 0.5, beta2: 0.5, eps: 1e-8, decay: 0.0 });
    let small = rule.with_packed_weights(Float16::Bf16).unwrap();
    assert_eq!(small.with_packed_weights(Float16::Bf16).unwrap(), small);
    assert_eq!(small.f32_rule(), rule);
    assert_eq!(small.at_rate(0.5).f32_rule(), rule.at_rate(0.5));
    assert_eq!((small.float16(), rule.float16()), (Some(Float16::Bf16), None));
    let other = small.with_packed_weights(Float16::F16).unwrap();
    assert_eq!(other, rule.with_packed_weights(Float16::F16).unwrap());
    assert_ne!(other, small);
    assert!(small.derives() && !small.replays());
    assert_eq!((small.name(), small.weight_floats(5), rule.weight_floats(5)), ("adam", 3, 5));
    assert_eq!(in_words(&small), "packed (bf16, adam (lr 0.5, beta1 0.5, beta2 0.5, eps 1e-8, decay 0.0))");
    let wrong = Rule::Sgd(Sgd { lr: -1.0 }).with_packed_weights(Float16::Bf16).unwrap();
    assert_eq!(wrong.check().unwrap_err().to_string(), "sgd: lr is -1, must be finite and above 0");
    // The largest f32 does not become infinite.
    let row = small.visit(Init(&[f32::MAX, -f32::MAX]));
    assert_eq!(small.visit(Weights(&row, 2)), [f32::from_bits(0x7f7f_0000), f32::from_bits(0xff7f_0000)]);
}
