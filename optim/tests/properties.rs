//! Every rule at dims 1 to 130 beside a loop in double precision, and what no formula shows: the same bits
//! wherever a coordinate stands, weights that come back from a fresh row, values that are not finite found
//! wherever they are.

use gannet_optim::{AdaGrad, Add, Ftrl, Rule, Sgd, Update, Visitor, add_change, all_finite};
use proptest::collection::vec;
use proptest::prelude::*;

/// One coordinate in double precision, by the formula as its paper prints it. `state` are its planes.
fn oracle(rule: &Rule, state: &mut [f64], g: f64) {
    match rule {
        Rule::Add(_) => state[0] += g,
        Rule::Sgd(r) => state[0] -= f64::from(r.lr) * g,
        Rule::AdaGrad(r) => {
            state[1] += g * g;
            state[0] -= f64::from(r.lr) * g / (state[1].sqrt() + f64::from(r.eps));
        }
        Rule::Ftrl(r) => {
            let w = oracle_weight(rule, state);
            let sigma = ((state[1] + g * g).sqrt() - state[1].sqrt()) / f64::from(r.alpha);
            state[0] += g - sigma * w;
            state[1] += g * g;
        }
    }
}

fn oracle_weight(rule: &Rule, state: &[f64]) -> f64 {
    let Rule::Ftrl(r) = rule else { return state[0] };
    let (alpha, beta) = (f64::from(r.alpha), f64::from(r.beta));
    let (l1, l2) = (f64::from(r.l1), f64::from(r.l2));
    if state[0].abs() <= l1 {
        return 0.0;
    }
    -(state[0] - state[0].signum() * l1) / ((beta + state[1].sqrt()) / alpha + l2)
}

/// The three methods of a rule for callers that have no type.
struct Init<'a>(&'a [f32]);
struct Step<'a>(&'a mut [f32], &'a [f32]);
struct Weights<'a>(&'a [f32]);

impl Visitor for Init<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![f32::NAN; U::PLANES * self.0.len()];
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
        let mut out = vec![f32::NAN; self.0.len() / U::PLANES];
        rule.weights(self.0, &mut out);
        out
    }
}

fn rules() -> impl Strategy<Value = Rule> {
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

/// Gradients of every scale that a model sees; zeros too.
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

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_step_is_the_papers((rule, start, steps) in work()) {
        let (dim, planes) = (start.len(), rule.planes());
        let mut row = rule.visit(Init(&start));
        prop_assert_eq!(row.len(), planes * dim);
        for gradient in &steps {
            // From the float32 state: one step's rounding, not the drift of many.
            let before = row.clone();
            rule.visit(Step(&mut row, gradient));
            let weights = rule.visit(Weights(&row));
            for j in 0..dim {
                let mut state: Vec<f64> = (0..planes).map(|p| f64::from(before[p * dim + j])).collect();
                let weight = oracle_weight(&rule, &state).abs();
                oracle(&rule, &mut state, f64::from(gradient[j]));
                let g = f64::from(gradient[j]).abs();
                for p in 0..planes {
                    let (ours, was) = (f64::from(row[p * dim + j]), f64::from(before[p * dim + j]));
                    // The largest term of the sum: FTRL's sigma * w is one, and its roots cancel.
                    let root = f64::from(before[(planes - 1) * dim + j]).abs().sqrt() + g;
                    let term = match rule { Rule::Ftrl(r) if p == 0 => root / f64::from(r.alpha) * weight, _ => 0.0 };
                    let scale = state[p].abs().max(was.abs()).max(g).max(term);
                    prop_assert!((ours - state[p]).abs() <= 1e-6 * scale,
                        "plane {} of {}: {} beside {}", p, j, ours, state[p]);
                }
                // The weight, from the state as it was stored.
                let stored: Vec<f64> = (0..planes).map(|p| f64::from(row[p * dim + j])).collect();
                let theirs = oracle_weight(&rule, &stored);
                // |z| - l1 loses what it cancels: the rounding is of l1, not of the difference.
                let slack = match rule {
                    Rule::Ftrl(r) => f64::from(r.l1) / ((f64::from(r.beta) + stored[1].sqrt()) / f64::from(r.alpha)),
                    _ => 0.0,
                };
                prop_assert!((f64::from(weights[j]) - theirs).abs() <= 1e-6 * (theirs.abs() + slack));
            }
        }
    }

    #[test]
    fn a_coordinates_bits_do_not_depend_on_its_place(
        (rule, start, steps) in work(), turn in 0usize..130,
    ) {
        // Reversed and turned: what stood in the tail of a vector stands in the body.
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
        for (p, plane) in row.chunks(dim).enumerate() {
            prop_assert_eq!(bits(&moved(plane)), bits(&other[p * dim..(p + 1) * dim]));
            let ones: Vec<f32> = alone.iter().map(|one| one[p]).collect();
            prop_assert_eq!(bits(plane), bits(&ones));
        }
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
                _ => 0.0,
            };
            prop_assert!((w - back).abs() <= lost, "{} came back as {}", w, back);
            prop_assert!(*w != 0.0 || back.to_bits() == 0);
        }
    }

    #[test]
    fn a_zero_gradient_changes_nothing((rule, start, steps) in work()) {
        let mut row = rule.visit(Init(&start));
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
    let rules = [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr: 0.1 }),
        Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.0 }),
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 }),
    ];
    for rule in rules {
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
    let rules = [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr: 0.1 }),
        Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.0 }),
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 }),
    ];
    for rule in rules {
        let fresh = rule.visit(Init(&[0.25; 4]));
        for gradient in [&[1.0; 3][..], &[1.0; 5][..]] {
            let mut row = fresh.clone();
            let step = std::panic::AssertUnwindSafe(|| rule.visit(Step(&mut row, gradient)));
            assert!(std::panic::catch_unwind(step).is_err(), "{rule:?}");
            assert_eq!(row, fresh);
        }
    }
}
