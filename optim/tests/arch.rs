//! Compares every instruction set that this CPU has with the scalar rule: the same bits at every dimension from 1 to
//! 130, both in whole registers and at the end of a row.

use gannet_optim::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Applies some steps to a row. Returns the row and its weights.
struct Steps<'a> {
    row: Vec<f32>,
    gradients: &'a [Vec<f32>],
}

impl Work for Steps<'_> {
    type Out = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn run<I: Isa, U: Update>(mut self, isa: I, rule: U) -> Self::Out {
        let mut weights = vec![f32::NAN; self.gradients[0].len()];
        for gradient in self.gradients {
            rule.update_on(isa, &mut self.row, gradient);
        }
        rule.weights_on(isa, &self.row, &mut weights);
        (self.row, weights)
    }
}

struct Init<'a>(&'a [f32]);

impl Visitor for Init<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![f32::NAN; U::floats(self.0.len())];
        rule.init(self.0, &mut row);
        row
    }
}

fn rules() -> Vec<Rule> {
    let (lr, eps, initial_accumulator) = (0.1, 1e-6, 0.1);
    let (beta1, beta2, decay) = (0.9, 0.99, 0.1);
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.2, 0.5);
    let momentum = |nesterov| Rule::Momentum(Momentum { lr, momentum: 0.9, nesterov });
    vec![
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr }),
        Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        momentum(false),
        momentum(true),
        Rule::RmsProp(RmsProp { lr, rho: 0.9, eps }),
        Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }),
        Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.01 }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1: 0.0, l2, l21: 0.3 }),
        // With eps 0 the empty lanes of a register divide 0 by 0.
        Rule::AdaGrad(AdaGrad { lr, eps: 0.0, initial_accumulator }),
    ]
}

/// Values of every scale, including zeros of both signs and subnormal numbers.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        1 => prop::sample::select(vec![0.0f32, -0.0, 1e-40, -3e-42, f32::MIN_POSITIVE]),
        6 => -2.0f32..2.0,
        2 => -1e-3f32..1e-3,
        1 => -1e4f32..1e4,
    ]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Runs `rule` on each instruction set and compares the result with the scalar one.
fn same_bits(rule: &Rule, start: &[f32], gradients: &[Vec<f32>]) {
    let row = rule.visit(Init(start));
    let run = |cpu: Cpu| rule.work(cpu, Steps { row: row.clone(), gradients });
    let (oracle, oracles_weights) = run(Cpu::Scalar);
    for cpu in Cpu::all() {
        let (row, weights) = run(cpu);
        assert_eq!(bits(&row), bits(&oracle), "{rule:?} on {} at dim {}", cpu.name(), start.len());
        assert_eq!(bits(&weights), bits(&oracles_weights), "{rule:?} on {}: weights", cpu.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Every rule at every dimension from 1 to 130, on random values.
    #[test]
    fn every_instruction_set_has_the_bits_of_the_oracle(values in vec(value(), 5 * 130), shift in 0usize..600) {
        for dim in 1..=130 {
            let take = |n: usize| -> Vec<f32> { (0..dim).map(|j| values[(n * dim + j + shift) % values.len()]).collect() };
            let gradients: Vec<Vec<f32>> = (1..5).map(take).collect();
            for rule in rules() {
                same_bits(&rule, &take(0), &gradients);
            }
        }
    }
}

/// A value that is not finite appears on every instruction set, at every place, and stays in its coordinate.
#[test]
fn what_is_not_finite_shows_wherever_it_stands() {
    for rule in rules() {
        for dim in [7, 16, 21] {
            for (at, bad) in
                (0..dim).flat_map(|at| [(at, f32::NAN), (at, f32::INFINITY), (at, f32::NEG_INFINITY)])
            {
                let mut gradient = vec![0.5; dim];
                gradient[at] = bad;
                for cpu in Cpu::all() {
                    let row = rule.visit(Init(&vec![0.25; dim]));
                    let (row, _) = rule.work(cpu, Steps { row, gradients: std::slice::from_ref(&gradient) });
                    assert!(!all_finite(&row), "{rule:?} on {} took {bad} at {at} of {dim}", cpu.name());
                }
            }
        }
    }
}

#[test]
fn wrong_lengths_panic_before_anything_is_written() {
    struct Wrong<'a>(&'a mut [f32], &'a [f32]);
    impl Work for Wrong<'_> {
        type Out = bool;
        fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> bool {
            let step = std::panic::AssertUnwindSafe(|| rule.update_on(isa, self.0, self.1));
            std::panic::catch_unwind(step).is_err()
        }
    }
    for (rule, cpu) in rules().into_iter().flat_map(|rule| Cpu::all().into_iter().map(move |cpu| (rule, cpu)))
    {
        let fresh = rule.visit(Init(&[0.25; 20]));
        for gradient in [&[1.0; 19][..], &[1.0; 21]] {
            let mut row = fresh.clone();
            assert!(rule.work(cpu, Wrong(&mut row, gradient)), "{rule:?} on {}", cpu.name());
            assert_eq!(row, fresh);
        }
    }
}

#[test]
fn narrow_rows_take_narrow_registers() {
    let widest = Cpu::detect();
    assert_eq!(Cpu::all().last(), Some(&widest));
    assert_eq!(Cpu::all()[0], Cpu::Scalar);
    for dim in 1..=130 {
        let lanes = match widest.fit(dim).name() {
            "avx512" => 16,
            "avx2" => 8,
            _ => 1,
        };
        assert!(
            lanes <= dim && (lanes > 1 || dim < 8 || widest == Cpu::Scalar),
            "{lanes} lanes at dim {dim}"
        );
    }
    assert_eq!(widest.fit(64), widest);
}
