//! Compares every rule at dims 1 to 130 with a loop in double precision. It also checks what no formula shows:
//! - A coordinate has the same bits at every place.
//! - A fresh row returns its weights.
//! - Values that are not finite are found at every place.

use gannet_optim::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A row in double precision, by the formulas as their papers print them. `row` has the layout of the rule's row.
fn oracle(rule: &Rule, row: &mut [f64], gradient: &[f64]) {
    let dim = gradient.len();
    let f = f64::from;
    let weights = oracle_weights(rule, row, dim);
    let (planes, scalars) = row.split_at_mut(rule.visit(Planes) * dim);
    if let Rule::Adam(Adam { beta1, beta2, .. }) | Rule::AmsGrad(AmsGrad { beta1, beta2, .. }) = *rule {
        // 1 - beta^t, from 1 - beta^(t - 1).
        scalars[0] = 1.0 - f(beta1) * (1.0 - scalars[0]);
        scalars[1] = 1.0 - f(beta2) * (1.0 - scalars[1]);
    }
    if let Rule::RowAdaGrad(_) = rule {
        scalars[0] += gradient.iter().map(|g| g * g).sum::<f64>() / dim as f64;
    }
    for j in 0..dim {
        let g = gradient[j];
        let at = |p: usize| p * dim + j;
        match *rule {
            Rule::Packed(..) => unreachable!("packed.rs has the tests of rows with packed weights"),
            Rule::Add(_) => planes[j] += g,
            Rule::Sgd(r) => planes[j] -= f(r.lr) * g,
            Rule::AdaGrad(r) => {
                planes[at(1)] += g * g;
                planes[j] -= f(r.lr) * g / (planes[at(1)].sqrt() + f(r.eps));
            }
            Rule::RowAdaGrad(r) => planes[j] -= f(r.lr) * g / (scalars[0].sqrt() + f(r.eps)),
            Rule::Ftrl(Ftrl { alpha, .. }) | Rule::GroupFtrl(GroupFtrl { alpha, .. }) => {
                let n = planes[at(1)];
                planes[j] += g - ((n + g * g).sqrt() - n.sqrt()) / f(alpha) * weights[j];
                planes[at(1)] += g * g;
            }
            Rule::Momentum(r) => {
                let m = f(r.momentum) * planes[at(1)] + g;
                planes[at(1)] = m;
                planes[j] -= f(r.lr) * if r.nesterov { g + f(r.momentum) * m } else { m };
            }
            Rule::RmsProp(r) => {
                planes[at(1)] = f(r.rho) * planes[at(1)] + (1.0 - f(r.rho)) * g * g;
                planes[j] -= f(r.lr) * g / (planes[at(1)] + f(r.eps)).sqrt();
            }
            Rule::Adam(Adam { lr, beta1, beta2, eps, decay })
            | Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }) => {
                let m = f(beta1) * planes[at(1)] + (1.0 - f(beta1)) * g;
                let v = f(beta2) * planes[at(2)] + (1.0 - f(beta2)) * g * g;
                (planes[at(1)], planes[at(2)]) = (m, v);
                let mut over = v;
                if let Rule::AmsGrad(_) = rule {
                    planes[at(3)] = planes[at(3)].max(v);
                    over = planes[at(3)];
                }
                let rate = f(lr) * scalars[1].sqrt() / scalars[0];
                planes[j] -= f(lr) * f(decay) * planes[j] + rate * m / (over.sqrt() + f(eps));
            }
        }
    }
}

fn oracle_weights(rule: &Rule, row: &[f64], dim: usize) -> Vec<f64> {
    let (alpha, beta, l1, l2, l21) = match *rule {
        Rule::Ftrl(r) => (r.alpha, r.beta, r.l1, r.l2, 0.0),
        Rule::GroupFtrl(r) => (r.alpha, r.beta, r.l1, r.l2, r.l21),
        _ => return row[..dim].to_vec(),
    };
    let [alpha, beta, l1, l2, l21] = [alpha, beta, l1, l2, l21].map(f64::from);
    let s: Vec<f64> =
        row[..dim].iter().map(|z| if z.abs() <= l1 { 0.0 } else { z - z.signum() * l1 }).collect();
    let (norm, least) = (s.iter().map(|s| s * s).sum::<f64>().sqrt(), l21 * (dim as f64).sqrt());
    let share = if norm <= least { 0.0 } else { 1.0 - least / norm };
    let n = &row[dim..];
    s.iter().zip(n).map(|(s, n)| -share * s / ((beta + n.sqrt()) / alpha + l2) + 0.0).collect()
}

/// The methods of a rule, for callers that have no type.
struct Init<'a>(&'a [f32]);
struct Step<'a>(&'a mut [f32], &'a [f32]);
struct Weights<'a>(&'a [f32]);

impl Visitor for Init<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![f32::NAN; U::floats(self.0.len())];
        rule.init(self.0, &mut row);
        row
    }
}

impl Visitor for Step<'_> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        rule.update(self.0, self.1);
    }
}

impl Visitor for Weights<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut out = vec![f32::NAN; (self.0.len() - U::SCALARS) / U::PLANES];
        rule.weights(self.0, &mut out);
        out
    }
}

struct Sound<'a>(&'a [f32]);
struct Planes;

impl Visitor for Planes {
    type Out = usize;
    fn run<U: Update>(self, _: U) -> usize {
        U::PLANES
    }
}

impl Visitor for Sound<'_> {
    type Out = bool;
    fn run<U: Update>(self, rule: U) -> bool {
        rule.is_sound(self.0)
    }
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![4 => sums(), 6 => averages_and_groups()]
}

fn averages_and_groups() -> impl Strategy<Value = Rule> {
    let rate = || 0.001f32..1.0;
    let past = || prop_oneof![Just(0.0f32), 0.5f32..0.999];
    let strength = || prop_oneof![Just(0.0f32), 0.0f32..3.0];
    let adam = || (rate(), past(), past(), 1e-6f32..0.1, prop_oneof![Just(0.0f32), 0.0f32..0.5]);
    prop_oneof![
        (rate(), past(), any::<bool>()).prop_map(|(lr, momentum, nesterov)| Rule::Momentum(Momentum {
            lr,
            momentum,
            nesterov
        })),
        (rate(), past(), 1e-6f32..0.1).prop_map(|(lr, rho, eps)| Rule::RmsProp(RmsProp { lr, rho, eps })),
        adam().prop_map(|(lr, beta1, beta2, eps, decay)| Rule::Adam(Adam { lr, beta1, beta2, eps, decay })),
        adam().prop_map(|(lr, beta1, beta2, eps, decay)| Rule::AmsGrad(AmsGrad {
            lr,
            beta1,
            beta2,
            eps,
            decay
        })),
        (rate(), 1e-6f32..0.1, prop_oneof![Just(0.0f32), 0.01f32..1.0]).prop_map(
            |(lr, eps, initial_accumulator)| Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator })
        ),
        (rate(), 0.1f32..2.0, strength(), strength(), strength())
            .prop_map(|(alpha, beta, l1, l2, l21)| Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21 })),
    ]
}

/// Whether a coordinate's step depends on its own gradients alone.
fn is_per_coordinate(rule: &Rule) -> bool {
    !matches!(rule, Rule::RowAdaGrad(_) | Rule::GroupFtrl(_))
}

fn sums() -> impl Strategy<Value = Rule> {
    let rate = 0.001f32..1.0;
    prop_oneof![
        Just(Rule::Add(Add)),
        rate.clone().prop_map(|lr| Rule::Sgd(Sgd { lr })),
        (rate.clone(), 1e-6f32..0.1, prop_oneof![Just(0.0f32), 0.01f32..1.0]).prop_map(
            |(lr, eps, initial_accumulator)| Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator })
        ),
        (rate, 0.1f32..2.0, prop_oneof![Just(0.0f32), 0.0f32..3.0], prop_oneof![Just(0.0f32), 0.0f32..3.0])
            .prop_map(|(alpha, beta, l1, l2)| Rule::Ftrl(Ftrl { alpha, beta, l1, l2 })),
    ]
}

/// Gradients of every scale that a model sees, and zeros.
fn gradient() -> impl Strategy<Value = f32> {
    prop_oneof![1 => Just(0.0f32), 6 => -2.0f32..2.0, 2 => -0.01f32..0.01, 1 => -100.0f32..100.0]
}

/// A rule, initial weights, and steps of gradients, all of one dim.
fn work() -> impl Strategy<Value = (Rule, Vec<f32>, Vec<Vec<f32>>)> {
    (rules(), 1usize..=130, 1usize..8).prop_flat_map(|(rule, dim, steps)| {
        let start = prop_oneof![Just(0.0f32), -1.0f32..1.0];
        (Just(rule), vec(start, dim), vec(vec(gradient(), dim), steps))
    })
}

/// How much a derived weight may lose by cancellation, as a weight. `|z| - l1` and `1 - least / norm` round the
/// operands, not the difference.
fn slack(rule: &Rule, row: &[f64], j: usize, dim: usize) -> f64 {
    let (alpha, beta, l1, l2, l21) = match *rule {
        Rule::Ftrl(r) => (r.alpha, r.beta, r.l1, r.l2, 0.0),
        Rule::GroupFtrl(r) => (r.alpha, r.beta, r.l1, r.l2, r.l21),
        _ => return 0.0,
    };
    let [alpha, beta, l1, l2, l21] = [alpha, beta, l1, l2, l21].map(f64::from);
    let group = if l21 > 0.0 { row[..dim].iter().fold(row[j].abs(), |m, z| m.max(z.abs())) } else { 0.0 };
    (l1 + 2.0 * group) / ((beta + row[dim + j].sqrt()) / alpha + l2)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_step_is_the_papers((rule, start, steps) in work()) {
        let dim = start.len();
        let mut row = rule.visit(Init(&start));
        prop_assert_eq!(row.len(), rule.floats(dim));
        for gradient in &steps {
            // This starts from the float32 state, so it sees one step's rounding and not the drift of many.
            let before: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            let g: Vec<f64> = gradient.iter().map(|g| f64::from(*g)).collect();
            let mut theirs = before.clone();
            oracle(&rule, &mut theirs, &g);
            rule.visit(Step(&mut row, gradient));
            let was = oracle_weights(&rule, &before, dim);
            let largest = g.iter().fold(0.0f64, |m, g| m.max(g.abs()));
            for (i, (ours, t)) in row.iter().zip(&theirs).enumerate() {
                let j = i % dim;
                // The largest term of the sum. FTRL's sigma * w is one, and its roots cancel; a first plane's step is
                // another.
                let root = match rule { Rule::Ftrl(_) | Rule::GroupFtrl(_) => before[dim + j].sqrt() + g[j].abs(), _ => 0.0 };
                let term = match rule {
                    Rule::Ftrl(Ftrl { alpha, l1, .. }) | Rule::GroupFtrl(GroupFtrl { alpha, l1, .. }) if i < dim =>
                        root / f64::from(alpha) * (was[j].abs() + f64::from(l1) * f64::from(alpha)) + slack(&rule, &before, j, dim) * root / f64::from(alpha),
                    Rule::Momentum(r) if i < dim => f64::from(r.lr) * (before[dim + j].abs() + g[j].abs()),
                    _ => 0.0,
                };
                let scale = t.abs().max(before[i].abs()).max(if i < dim { g[j].abs() } else { 0.0 }).max(term)
                    .max(if i >= dim { largest.min(largest * largest) * f64::from(f32::EPSILON) } else { 0.0 });
                prop_assert!((f64::from(*ours) - t).abs() <= 2e-6 * scale,
                    "{:?} float {} of {}: {} beside {}", rule, i, dim, ours, t);
            }
            prop_assert!(rule.visit(Sound(&row)));
            // The weights, from the state as it was stored.
            let stored: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            let weights = rule.visit(Weights(&row));
            for (j, (ours, t)) in weights.iter().zip(oracle_weights(&rule, &stored, dim)).enumerate() {
                let lost = 1e-6 * (t.abs() + slack(&rule, &stored, j, dim));
                prop_assert!((f64::from(*ours) - t).abs() <= lost, "{:?}: weight {} beside {}", rule, ours, t);
            }
        }
    }

    #[test]
    fn a_coordinates_bits_do_not_depend_on_its_place(
        (rule, start, steps) in work(), turn in 0usize..130,
    ) {
        if !is_per_coordinate(&rule) {
            return Ok(());
        }
        // Reversed and rotated: what was in the tail of a vector is now in its body.
        let dim = start.len();
        let moved = |v: &[f32]| -> Vec<f32> { (0..dim).map(|j| v[(dim - 1 - j + turn) % dim]).collect() };
        let mut row = rule.visit(Init(&start));
        let mut other = rule.visit(Init(&moved(&start)));
        let mut alone: Vec<Vec<f32>> = start.iter().map(|w| rule.visit(Init(&[*w]))).collect();
        for gradient in &steps {
            rule.visit(Step(&mut row, gradient));
            rule.visit(Step(&mut other, &moved(gradient)));
            for (one, g) in alone.iter_mut().zip(gradient) {
                rule.visit(Step(one, &[*g]));
            }
        }
        let (planes, scalars) = row.split_at(rule.visit(Planes) * dim);
        for (p, plane) in planes.chunks(dim).enumerate() {
            prop_assert_eq!(bits(&moved(plane)), bits(&other[p * dim..(p + 1) * dim]));
            let ones: Vec<f32> = alone.iter().map(|one| one[p]).collect();
            prop_assert_eq!(bits(plane), bits(&ones));
        }
        prop_assert_eq!(bits(scalars), bits(&other[planes.len()..]));
        prop_assert_eq!(bits(scalars), bits(&alone[0][planes.len() / dim..]));
        prop_assert_eq!(bits(&moved(&rule.visit(Weights(&row)))), bits(&rule.visit(Weights(&other))));
    }

    #[test]
    fn a_fresh_row_gives_its_weights_back((rule, start, _) in work()) {
        let weights = rule.visit(Weights(&rule.visit(Init(&start))));
        for (w, back) in start.iter().zip(&weights) {
            let lost = match rule {
                Rule::Ftrl(r) => {
                    f32::EPSILON * (2.0 * w.abs() + r.l1 / (r.beta / r.alpha + r.l2))
                }
                Rule::GroupFtrl(r) => {
                    let least = r.l1 + r.l21 * (start.len() as f32).sqrt();
                    f32::EPSILON * (2.0 * w.abs() + 4.0 * least / (r.beta / r.alpha + r.l2))
                }
                _ => 0.0,
            };
            prop_assert!((w - back).abs() <= lost, "{} came back as {}", w, back);
            prop_assert!(*w != 0.0 || back.to_bits() == 0);
        }
    }

    #[test]
    fn a_zero_gradient_changes_no_sum_and_no_fresh_weight((rule, start, steps) in work()) {
        let mut row = rule.visit(Init(&start));
        let decays = matches!(rule, Rule::Adam(Adam { decay, .. }) | Rule::AmsGrad(AmsGrad { decay, .. }) if decay > 0.0);
        if !decays {
            let before = rule.visit(Weights(&row));
            let mut fresh = row.clone();
            rule.visit(Step(&mut fresh, &vec![0.0; start.len()]));
            prop_assert_eq!(rule.visit(Weights(&fresh)), before);
        }
        if !rule.replays() {
            return Ok(());
        }
        for gradient in &steps {
            rule.visit(Step(&mut row, gradient));
        }
        let before = row.clone();
        rule.visit(Step(&mut row, &vec![0.0; start.len()]));
        prop_assert_eq!(row, before);
    }

    #[test]
    fn ftrls_loop_form_has_the_bits_of_update((rule, start, steps) in work()) {
        if let Rule::Ftrl(r) = rule {
            let dim = start.len();
            let mut row = rule.visit(Init(&start));
            let mut own: Vec<(f32, f32)> = (0..dim).map(|j| (row[j], row[dim + j])).collect();
            for gradient in &steps {
                rule.visit(Step(&mut row, gradient));
                for ((z, n), g) in own.iter_mut().zip(gradient) {
                    (*z, *n) = r.step(*z, *n, r.weight(*z, n.sqrt()), *g);
                }
            }
            let weights: Vec<f32> = own.iter().map(|(z, n)| r.weight(*z, n.sqrt())).collect();
            prop_assert_eq!(bits(&weights), bits(&rule.visit(Weights(&row))));
            prop_assert_eq!(bits(&own.iter().map(|o| o.0).collect::<Vec<_>>()), bits(&row[..dim]));
            prop_assert_eq!(bits(&own.iter().map(|o| o.1).collect::<Vec<_>>()), bits(&row[dim..]));
        }
    }

    /// Compares group FTRL's weights with its objective, `z.w + |w|^2 (beta + sqrt(n)) / 2 alpha + l2 |w|^2 / 2 + l1
    /// |w|_1 + l21 sqrt(dim) |w|_2`. If the coordinates have equal `n`, no step away from the weights lowers it.
    #[test]
    fn group_ftrl_minimises_its_objective(
        (z, steps) in (1usize..=40).prop_flat_map(|d| (vec(-4.0f32..4.0, d), vec(vec(-1.0f64..1.0, d), 20))),
        n in 0.0f32..9.0, alpha in 0.05f32..2.0, beta in 0.1f32..2.0, l1 in 0.0f32..2.0, l2 in 0.0f32..2.0, l21 in 0.0f32..2.0,
    ) {
        let dim = z.len();
        let rule = Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21 });
        let row: Vec<f32> = z.iter().copied().chain(std::iter::repeat_n(n, dim)).collect();
        let w: Vec<f64> = rule.visit(Weights(&row)).iter().map(|w| f64::from(*w)).collect();
        let f = f64::from;
        let objective = |w: &[f64]| {
            let a = (f(beta) + f(n).sqrt()) / f(alpha) + f(l2);
            let squares = w.iter().map(|w| w * w).sum::<f64>();
            let linear = w.iter().zip(&z).map(|(w, z)| w * f(*z) + f(l1) * w.abs()).sum::<f64>();
            linear + a / 2.0 * squares + f(l21) * (dim as f64).sqrt() * squares.sqrt()
        };
        let at = objective(&w);
        for (i, step) in steps.iter().enumerate() {
            let size = 10f64.powi(-(i as i32) / 3);
            let near: Vec<f64> = w.iter().zip(step).map(|(w, s)| w + s * size).collect();
            // The weights are float32. So close to the minimum, the objective is flat to 1e-9 of itself.
            prop_assert!(objective(&near) >= at - 1e-9 * (1.0 + at.abs()), "{} below {}", objective(&near), at);
        }
    }

    /// The two rules that sum over a row equal the rule of one coordinate where the sum has no effect.
    #[test]
    fn rows_that_sum_have_the_bits_of_the_plain_rule((rule, start, steps) in work()) {
        let (plain, summed, dim) = match rule {
            Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }) =>
                (rule, Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }), 1),
            Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }) =>
                (rule, Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.0 }), start.len()),
            _ => return Ok(()),
        };
        let (mut a, mut b) = (plain.visit(Init(&start[..dim])), summed.visit(Init(&start[..dim])));
        for gradient in &steps {
            plain.visit(Step(&mut a, &gradient[..dim]));
            summed.visit(Step(&mut b, &gradient[..dim]));
        }
        prop_assert_eq!(bits(&a), bits(&b));
        prop_assert_eq!(bits(&plain.visit(Weights(&a))), bits(&summed.visit(Weights(&b))));
    }

    #[test]
    fn replayed_changes_add((row, change) in (1usize..=390).prop_flat_map(
        |n| (vec(-10.0f32..10.0, n), vec(gradient(), n)))) {
        let mut sum = row.clone();
        add_change(&mut sum, &change);
        for ((s, r), c) in sum.iter().zip(&row).zip(&change) {
            prop_assert_eq!(s.to_bits(), (r + c).to_bits());
        }
    }
}

#[test]
fn one_value_that_is_not_finite_is_found_wherever_it_stands() {
    let bad = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::from_bits(0x7f80_0001), // a signalling NaN
        f32::from_bits(0xffff_ffff),
    ];
    let good = [0.0, -0.0, 1.0, -1.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), -1e-45];
    for len in 0..=130 {
        let mut values: Vec<f32> = (0..len).map(|i| good[i % good.len()]).collect();
        assert!(all_finite(&values), "{len}");
        for at in 0..len {
            let was = values[at];
            for v in bad {
                values[at] = v;
                assert!(!all_finite(&values), "{v} at {at} of {len}");
            }
            values[at] = was;
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_shows_in_the_state() {
    for rule in one_of_each() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..17 {
                let mut row = rule.visit(Init(&[0.25; 17]));
                let mut gradient = [0.5; 17];
                gradient[at] = bad;
                rule.visit(Step(&mut row, &gradient));
                assert!(!all_finite(&row), "{rule:?} took {bad} at {at}");
            }
        }
    }
}

#[test]
fn wrong_lengths_panic_before_anything_is_written() {
    for rule in one_of_each() {
        let fresh = rule.visit(Init(&[0.25; 4]));
        for gradient in [&[1.0; 3][..], &[1.0; 5][..]] {
            let mut row = fresh.clone();
            let step = std::panic::AssertUnwindSafe(|| rule.visit(Step(&mut row, gradient)));
            assert!(std::panic::catch_unwind(step).is_err(), "{rule:?}");
            assert_eq!(row, fresh);
        }
    }
}

/// Every rule, once.
fn one_of_each() -> [Rule; 10] {
    let (lr, eps, initial_accumulator) = (0.1, 1e-8, 0.0);
    let (beta1, beta2, decay) = (0.9, 0.99, 0.1);
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.5, 0.5);
    [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr }),
        Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        Rule::Momentum(Momentum { lr, momentum: 0.9, nesterov: true }),
        Rule::RmsProp(RmsProp { lr, rho: 0.9, eps }),
        Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }),
        Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.1 }),
    ]
}
