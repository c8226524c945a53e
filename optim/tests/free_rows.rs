//! Free rows of FTRL and group FTRL: rows on which the penalties do not act, as those of intercepts.

use gannet_optim::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A row, and its weights. `init_free` or `init` makes the row from weights.
struct Made<'a> {
    weights: &'a [f32],
    is_free: bool,
}

impl Visitor for Made<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![f32::NAN; U::floats(self.weights.len())];
        if self.is_free {
            rule.init_free(self.weights, &mut row);
        } else {
            rule.init(self.weights, &mut row);
        }
        row
    }
}

/// Steps a row. Returns the row and its weights.
struct Steps<'a> {
    row: Vec<f32>,
    gradients: &'a [Vec<f32>],
}

impl Work for Steps<'_> {
    type Out = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn run<I: Isa, U: Update>(mut self, isa: I, rule: U) -> Self::Out {
        let mut weights = vec![f32::NAN; self.row.len() / 2];
        for gradient in self.gradients {
            rule.update_on(isa, &mut self.row, gradient);
        }
        rule.weights_on(isa, &self.row, &mut weights);
        (self.row, weights)
    }
}

/// Whether a row is sound, and whether it is as one that may be free.
struct Sound<'a>(&'a [f32]);

impl Visitor for Sound<'_> {
    type Out = (bool, bool);
    fn run<U: Update>(self, rule: U) -> (bool, bool) {
        (rule.is_sound(self.0), rule.is_sound_free(self.0))
    }
}

fn free(rule: &Rule, weights: &[f32]) -> Vec<f32> {
    rule.visit(Made { weights, is_free: true })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The row with the other sign of `n`.
fn negated(row: &[f32]) -> Vec<f32> {
    let (z, n) = row.split_at(row.len() / 2);
    z.iter().copied().chain(n.iter().map(|n| -n)).collect()
}

/// A rule with penalties, and the same rule without.
fn rules() -> impl Strategy<Value = [Rule; 2]> {
    let strength = || prop_oneof![Just(0.0f32), 0.001f32..3.0, Just(1e6)];
    let of = (0.01f32..1.0, prop_oneof![Just(0.0f32), 0.1f32..2.0], strength(), strength(), strength());
    let with_penalty = of.prop_filter("a rule with a penalty", |&(_, beta, l1, l2, l21)| {
        l1 + l2 + l21 > 0.0 && beta + l2 > 0.0
    });
    (with_penalty, any::<bool>()).prop_map(|((alpha, beta, l1, l2, l21), group)| {
        let without = Rule::Ftrl(Ftrl { alpha, beta, l1: 0.0, l2: 0.0 });
        let with = match group || l1 + l2 == 0.0 || beta + l2 == 0.0 {
            true => Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21 }),
            false => Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        };
        [with, without]
    })
}

/// Weights, and steps of gradients.
fn work() -> impl Strategy<Value = (Vec<f32>, Vec<Vec<f32>>)> {
    let gradient =
        prop_oneof![1 => Just(0.0f32), 6 => -2.0f32..2.0, 1 => -100.0f32..100.0, 1 => -1e-25f32..1e-25];
    (1usize..=70, 1usize..8).prop_flat_map(move |(dim, steps)| {
        let weight = prop_oneof![Just(0.0f32), -1.0f32..1.0];
        (vec(weight, dim), vec(vec(gradient.clone(), dim), steps))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A free row has the bits of the rule without penalties, with `n` negated, on each instruction set.
    #[test]
    fn a_free_row_is_one_without_penalties([with, without] in rules(), (start, gradients) in work()) {
        let row = free(&with, &start);
        for cpu in Cpu::all() {
            let (ours, weights) = with.work(cpu, Steps { row: row.clone(), gradients: &gradients });
            let plain = Steps { row: negated(&row), gradients: &gradients };
            let (theirs, their_weights) = without.work(cpu, plain);
            prop_assert_eq!(bits(&ours), bits(&negated(&theirs)), "{:?} on {}", with, cpu.name());
            prop_assert_eq!(bits(&weights), bits(&their_weights), "{:?} on {}", with, cpu.name());
            prop_assert!(all_finite(&weights));
            prop_assert_eq!(with.visit(Sound(&ours)), (false, true));
        }
    }

    /// It begins with the weights that it gets. A rule without penalties has no free rows.
    #[test]
    fn a_free_row_begins_with_its_weights([with, without] in rules(), (start, _) in work()) {
        let (_, weights) = with.work(Cpu::Scalar, Steps { row: free(&with, &start), gradients: &[] });
        for (got, wanted) in weights.iter().zip(&start) {
            prop_assert!((got - wanted).abs() <= 1e-6 * wanted.abs(), "{got} for {wanted}");
        }
        if without.check().is_ok() {
            let fresh = without.visit(Made { weights: &start, is_free: false });
            prop_assert_eq!(bits(&free(&without, &start)), bits(&fresh));
            prop_assert_eq!(without.visit(Sound(&free(&with, &start))), (false, false));
        }
    }

    /// Changes of state of two workers add up, and the row stays free, also after changes of 0.
    #[test]
    fn changes_of_free_rows_add_up([with, _] in rules(), (start, gradients) in work()) {
        let before = free(&with, &start);
        let mut row = before.clone();
        for gradient in &gradients {
            let one = Steps { row: before.clone(), gradients: std::slice::from_ref(gradient) };
            let (after, _) = with.work(Cpu::Scalar, one);
            let change: Vec<f32> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            add_change(&mut row, &change);
            add_change(&mut row, &vec![0.0; before.len()]);
        }
        prop_assert_eq!(with.visit(Sound(&row)), (false, true));
        let dim = start.len();
        for (j, n) in row[dim..].iter().enumerate() {
            let sum: f32 = gradients.iter().map(|gradient| gradient[j] * gradient[j]).sum();
            prop_assert!((n + sum).abs() <= 1e-5 * sum + 1e-37, "{n} of {sum}");
        }
    }
}

/// With these settings a free row would begin with the weight 0 / 0, so the penalty stays.
#[test]
fn a_row_is_never_undefined() {
    let rule = Rule::Ftrl(Ftrl { alpha: 1e35, beta: 0.0, l1: 1.0, l2: 1.0 });
    rule.check().unwrap();
    let (row, weights) = rule.work(Cpu::Scalar, Steps { row: free(&rule, &[0.0]), gradients: &[vec![0.0]] });
    assert!(all_finite(&weights) && rule.visit(Sound(&row)).0, "{row:?} {weights:?}");
}

/// A row is free as a whole or not at all.
#[test]
fn a_row_that_is_free_in_part_is_not_sound() {
    let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 1.0, l2: 1.0 });
    for (n, sound) in
        [([1.0, 2.0], (true, true)), ([-1.0, -2.0], (false, true)), ([-1.0, 0.0], (false, false))]
    {
        assert_eq!(rule.visit(Sound(&[0.5, 0.5, n[0], n[1]])), sound, "{n:?}");
    }
}
