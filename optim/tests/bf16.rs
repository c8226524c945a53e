//! Rows whose weights are bf16, beside the same rule on rows of f32.

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

/// Weights of all sizes that a bf16 has, and some that it has not.
fn values(dim: usize) -> impl Strategy<Value = Vec<f32>> {
    vec(
        prop_oneof![6 => -2.0f32..2.0, 1 => -1e30f32..1e30, 1 => -1e-38f32..1e-38, 1 => Just(0.0f32), 1 => Just(-0.0)],
        dim,
    )
}

fn is_bf16(weight: f32) -> bool {
    weight.to_bits() & 0xffff == 0
}

/// The nearest bf16 of each weight, computed with the distances in double precision.
fn nearest(weight: f32) -> f32 {
    let cut = f32::from_bits(weight.to_bits() & 0xffff_0000);
    let next = f32::from_bits((weight.to_bits() & 0xffff_0000) + 0x1_0000);
    if is_bf16(weight) || !next.is_finite() {
        return cut;
    }
    let distance = |to: f32| (f64::from(to) - f64::from(weight)).abs();
    match distance(next).total_cmp(&distance(cut)) {
        std::cmp::Ordering::Less => next,
        std::cmp::Ordering::Greater => cut,
        std::cmp::Ordering::Equal if cut.to_bits() & 0x1_0000 == 0 => cut,
        std::cmp::Ordering::Equal => next,
    }
}

proptest! {
    /// Each step gives one of the two neighbours of the weight that the f32 rule gives, and its state bit by bit.
    #[test]
    fn a_step_is_that_of_f32_then_rounded(
        (rule, weights, gradients) in (rules(), 1usize..140).prop_flat_map(|(rule, dim)| {
            (Just(rule), values(dim), vec(vec(-3.0f32..3.0, dim), 1..4))
        }),
        chance: u64,
    ) {
        let (dim, small) = (weights.len(), rule.with_bf16_weights().unwrap());
        let mut row = small.visit(Init(&weights));
        prop_assert_eq!(row.len(), small.floats(dim));
        prop_assert_eq!(row.len(), dim.div_ceil(2) + rule.floats(dim) - dim);
        let begin: Vec<f32> = weights.iter().map(|&weight| nearest(weight)).collect();
        prop_assert_eq!(bits(&small.visit(Weights(&row, dim))), bits(&begin));
        for (step, gradient) in (0u64..).zip(&gradients) {
            let chance = chance.wrapping_add(step << 40);
            let mut wide = Vec::new();
            small.put_f32_row(dim, &row, &mut wide);
            let mut again = Vec::new();
            small.put_row_of_f32(dim, &wide, &mut again);
            prop_assert_eq!(bits(&again), bits(&row), "a row of bf16 is exact in f32");
            rule.work(Cpu::Scalar, Step { row: &mut wide, gradient, chance });
            let mut first = None;
            for cpu in Cpu::all() {
                let mut next = row.clone();
                small.work(cpu, Step { row: &mut next, gradient, chance });
                prop_assert_eq!(first.get_or_insert(bits(&next)), &bits(&next), "{}", cpu.name());
            }
            small.work(Cpu::Scalar, Step { row: &mut row, gradient, chance });
            prop_assert_eq!(bits(&row[dim.div_ceil(2)..]), bits(&wide[dim..]), "the state stays f32");
            for (&rounded, &exact) in small.visit(Weights(&row, dim)).iter().zip(&wide[..dim]) {
                let cut = exact.to_bits() & 0xffff_0000;
                prop_assert!(is_bf16(rounded));
                if is_bf16(exact) {
                    prop_assert_eq!(rounded.to_bits(), exact.to_bits());
                } else {
                    prop_assert!([cut, cut + 0x1_0000].contains(&rounded.to_bits()), "{} of {}", rounded, exact);
                }
            }
            prop_assert!(small.visit(Sound(&row)) == rule.visit(Sound(&wide)));
        }
    }

    /// A value that is not finite is found in every weight, and a negative sum in every place that f32 rows find.
    #[test]
    fn unsound_rows_are_found(
        (rule, weights) in (rules(), 1usize..40).prop_flat_map(|(rule, dim)| (Just(rule), values(dim))),
        bad in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(-1.0)],
    ) {
        let (dim, small) = (weights.len(), rule.with_bf16_weights().unwrap());
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

/// Steps far smaller than the distance between two bf16 are not lost: the mean over many chances is the exact weight.
#[test]
fn the_expected_weight_is_exact() {
    let rule = Rule::Sgd(Sgd { lr: 1.0 });
    let small = rule.with_bf16_weights().unwrap();
    let (rows, steps, step) = (4000u64, 64u64, 1.0f32 / 4096.0);
    // Between 1 and 2 the distance is 1 / 128, 32 times the step. Both halves of a float, and a third weight.
    let mut sums = [0.0f64; 3];
    for key in 0..rows {
        let mut row = small.visit(Init(&[1.0, -1.0, 1.5]));
        for seq in 0..steps {
            let chance = (key << 32 | seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let gradient = [-step, step, step];
            small.work(Cpu::Scalar, Step { row: &mut row, gradient: &gradient, chance });
        }
        let weights = small.visit(Weights(&row, 3));
        sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += f64::from(weight));
    }
    let moved = f64::from(step) * steps as f64;
    for (sum, exact) in sums.into_iter().zip([1.0 + moved, -1.0 - moved, 1.5 - moved]) {
        let mean = sum / rows as f64;
        // The standard deviation of the mean is sqrt(64 / 32) / 128 / sqrt(4000) = 0.00017.
        assert!((mean - exact).abs() < 0.0008, "{mean} instead of {exact}");
    }
}

/// Golden: an owner and its copies round alike, whatever their versions, and images have these floats.
#[test]
fn the_rounding_is_frozen() {
    let small = Rule::Sgd(Sgd { lr: 1.0 }).with_bf16_weights().unwrap();
    let row = small.visit(Init(&[1.0, 2.0, 3.0]));
    assert_eq!(bits(&row), [0x4040_3f80, 0x0000_4000]);
    let mut row = small.visit(Init(&[0.0; 33]));
    // Each weight lies in the middle between two bf16.
    let gradient = [-1.0 - 1.0 / 256.0; 33];
    small.work(Cpu::Scalar, Step { row: &mut row, gradient: &gradient, chance: 0x0123_4567_89ab_cdef });
    let hex: Vec<String> = row.iter().map(|float| format!("{:08x}", float.to_bits())).collect();
    let golden = "3f813f80 3f803f81 3f803f81 3f813f81 3f803f81 3f803f80 3f803f80 3f813f81 3f813f81 3f813f80 3f813f81 \
                  3f803f81 3f813f80 3f803f81 3f803f80 3f803f80 00003f80";
    assert_eq!(hex.join(" "), golden);
}

#[test]
fn rules_without_stored_weights_are_refused_by_name() {
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let group = Rule::GroupFtrl(GroupFtrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0, l21: 0.0 });
    for rule in [ftrl, group, Rule::Add(Add)] {
        let why = rule.with_bf16_weights().unwrap_err().to_string();
        assert!(why.starts_with(&format!("{} takes no weights in bf16: it ", rule.name())), "{why}");
    }
}

#[test]
fn it_is_one_more_rule() {
    let rule = Rule::Adam(Adam { lr: 0.5, beta1: 0.5, beta2: 0.5, eps: 1e-8, decay: 0.0 });
    let small = rule.with_bf16_weights().unwrap();
    assert_eq!(small.with_bf16_weights().unwrap(), small);
    assert_eq!(small.f32_rule(), rule);
    assert_eq!(small.at_rate(0.5).f32_rule(), rule.at_rate(0.5));
    assert!(small.has_bf16_weights() && !rule.has_bf16_weights());
    assert!(small.derives() && !small.replays());
    assert_eq!((small.name(), small.weight_floats(5), rule.weight_floats(5)), ("adam", 3, 5));
    assert_eq!(in_words(&small), "bf16 (adam (lr 0.5, beta1 0.5, beta2 0.5, eps 1e-8, decay 0.0))");
    let wrong = Rule::Sgd(Sgd { lr: -1.0 }).with_bf16_weights().unwrap();
    assert_eq!(wrong.check().unwrap_err().to_string(), "sgd: lr is -1, must be finite and above 0");
    // The largest f32 does not become infinite.
    let row = small.visit(Init(&[f32::MAX, -f32::MAX]));
    assert_eq!(small.visit(Weights(&row, 2)), [f32::from_bits(0x7f7f_0000), f32::from_bits(0xff7f_0000)]);
}
