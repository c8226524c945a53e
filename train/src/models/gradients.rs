//! Compares each model's gradients with finite differences of its own loss, and instruction sets with each other.

use super::batch_learner::{Passes, learn_on};
use super::*;
use gannet_optim::{AdaGrad, Cpu, Ftrl, Sgd};
use proptest::prelude::*;

const SETTINGS: ModelSettings = ModelSettings {
    rule: Rule::Sgd(Sgd { lr: 0.1 }),
    row_type: RowType::F32,
    shaping: GradientTransform::NONE,
    admission: Admission::All,
    seed: 1,
    deviation: 0.1,
    l2: 0.0,
};

/// The loss of the example of a batch.
fn loss(model: &mut dyn Model, batch: &Batch, rows: &mut [BatchRows]) -> f64 {
    let (task, mut loss) = (model.task(), f64::NAN);
    model.score(batch, rows, &mut |i, outputs| loss = task.loss(outputs, batch.block.labels[i]));
    loss
}

/// A batch of one example.
fn batch_of(keys: &[u64], places: &[u32], values: &[f32], label: f32) -> Batch {
    let mut batch = Batch { local: places.to_vec(), ..Batch::default() };
    batch.block.clear();
    batch.block.keys.extend(keys);
    batch.block.values.extend(values);
    batch.block.end(label);
    batch
}

/// The batch with the places of fields: none for the intercept, and two features of field 1.
fn with_fields(mut batch: Batch) -> Batch {
    let field = |&key: &u64| if key == INTERCEPT_KEY { NO_FIELD } else { [0, 1, 2, 1][key as usize % 4] };
    batch.block.fields = batch.block.keys.iter().map(field).collect();
    batch
}

/// Compares at random rows of three features and the intercept.
fn compare(model: &mut dyn Model, values: [f32; 3], label: f32, seed: u64) -> Result<(), TestCaseError> {
    let mut state = seed;
    let mut chance = || {
        state = gannet_core::hash(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut rows: Vec<BatchRows> = std::iter::once((model.sparse(), 4))
        .chain(model.dense())
        .map(|(schema, n)| {
            let weights = (0..schema.weights() as u64 * n).map(|_| chance()).collect();
            BatchRows::alone(&schema, weights)
        })
        .collect();
    let features = if model.name() == "mf" { 2 } else { 3 };
    let mut keys = vec![INTERCEPT_KEY];
    keys.extend(1..=features as u64);
    let (places, mut x) = ([2u32, 0, 3, 1], vec![1.0]);
    x.extend(&values[..features]);
    if model.name() == "mf" {
        x.fill(1.0);
    }
    let batch = with_fields(batch_of(&keys, &places[..=features], &x, label));
    prop_assert_eq!(model.check(Example::of(&batch, 0)), Ok(()));
    let mut wanted = Vec::new();
    model.score(&batch, &mut rows, &mut |_, outputs| wanted.extend_from_slice(outputs));
    let explained = model.explain(&batch, 0, &mut rows);
    let output = f64::from(wanted[explained.output]);
    prop_assert!(
        (explained.total() - output).abs() < 1e-5 * (1.0 + output.abs())
            && explained.features.len() == keys.len(),
        "{}: {explained:?} is not {output}",
        model.name()
    );
    let mut not_finite = 0;
    let step = BatchStep { batch: &batch, rows: &mut rows, measures: None, not_finite: &mut not_finite };
    model.learn(step).unwrap();
    prop_assert_eq!(not_finite, 0);
    for table in 0..rows.len() {
        for at in 0..rows[table].parts_of().0.len() {
            let gradient = f64::from(rows[table].parts_of().1[at]);
            let weight = rows[table].parts_of().0[at];
            let mut at_shift = |shift: f32| {
                rows[table].parts_of().0[at] = weight + shift;
                loss(model, &batch, &mut rows)
            };
            // A rectified unit gives the loss a kink. There the gradient is that of one side. With a kink on each
            // side, only smaller steps find it.
            let mut seen = Vec::new();
            let agrees = [1e-2f32, 1e-3, 3e-4].into_iter().any(|h| {
                let (below, here, above) = (at_shift(-h), at_shift(0.0), at_shift(h));
                let (left, right) = ((here - below) / f64::from(h), (above - here) / f64::from(h));
                seen.push((left, right));
                (left.min(right) - 1e-2..left.max(right) + 1e-2).contains(&gradient)
            });
            rows[table].parts_of().0[at] = weight;
            prop_assert!(
                agrees,
                "{} table {table} weight {at}: {gradient}, differences {seen:?}",
                model.name()
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn gradients_are_those_of_the_loss(values in [-1.5f32..1.5, -1.5f32..1.5, -1.5f32..1.5], label in -2.0f32..2.0, seed: u64) {
        let click = f32::from(u8::from(label > 0.0));
        compare(&mut Linear::new(SETTINGS), values, label, seed)?;
        compare(&mut Softmax::new(SETTINGS, 5), values, (seed % 5) as f32, seed)?;
        compare(&mut FactorizationMachine::new(SETTINGS, 4), values, click, seed)?;
        compare(&mut Factorization::new(SETTINGS, 4), values, label, seed)?;
        compare(&mut DeepFm::new(SETTINGS, 1, 4, &[5, 3]), values, click, seed)?;
        compare(&mut DeepFm::new(SETTINGS, 3, 4, &[5, 3]), values, click, seed)?;
        compare(&mut FieldAwareMachine::new(SETTINGS, 3, 4), values, click, seed)?;
        for loss in [NumberLoss::Squared, NumberLoss::Poisson, NumberLoss::Quantile(800_000)] {
            let (of, label) = (Objective::Number(loss), label.abs());
            compare(&mut Linear::new(SETTINGS).with_objective(of), values, label, seed)?;
            compare(&mut FactorizationMachine::new(SETTINGS, 4).with_objective(of), values, label, seed)?;
            compare(&mut DeepFm::new(SETTINGS, 3, 4, &[5]).with_objective(of), values, label, seed)?;
            compare(&mut FieldAwareMachine::new(SETTINGS, 3, 4).with_objective(of), values, label, seed)?;
        }
        let of = Objective::Separation;
        compare(&mut Linear::new(SETTINGS).with_objective(of), values, click, seed)?;
        compare(&mut FactorizationMachine::new(SETTINGS, 4).with_objective(of), values, click, seed)?;
    }
}

#[test]
fn a_factorization_needs_a_pair() {
    let model = Factorization::new(SETTINGS, 2);
    let check = |keys: &[u64], values: &[f32]| {
        let places: Vec<u32> = (0..keys.len() as u32).collect();
        model.check(Example { keys, places: &places, values, fields: &[] })
    };
    assert!(check(&[1, 2], &[1.0, 1.0]).is_ok() && check(&[INTERCEPT_KEY, 1, 2], &[1.0; 3]).is_ok());
    for (keys, values) in [(&[1u64][..], &[1.0f32][..]), (&[1, 2, 3], &[1.0; 3]), (&[1, 2], &[1.0, 2.0])] {
        assert!(check(keys, values).unwrap_err().contains("a user and an item"));
    }
}

/// Learns an example three times on each instruction set, by replay and by gradients: the rows get the same bits.
fn compare_instruction_sets<M: Model + Passes>(new: impl Fn() -> M, settings: ModelSettings, keys: &[u64]) {
    let places: Vec<u32> = (0..keys.len() as u32).collect();
    let values: Vec<f32> = keys.iter().map(|&key| if key > 2 { 0.7 } else { 1.0 }).collect();
    let batch = with_fields(batch_of(keys, &places, &values, 1.0));
    let learned = |cpu: Cpu, replayed: bool| {
        let mut model = new();
        let tables = std::iter::once((model.sparse(), keys.len() as u64)).chain(model.dense());
        let mut rows: Vec<BatchRows> = tables
            .map(|(schema, n)| {
                let floats = if replayed { schema.floats() } else { schema.weights() } as u64 * n;
                // Sums of squares are not negative.
                let chance = |i| (gannet_core::hash(i + settings.seed) >> 40) as f32 / (1u64 << 25) as f32;
                let values = (0..floats).map(chance).collect();
                if replayed {
                    BatchRows::alone_replayed(&schema, values)
                } else {
                    BatchRows::alone(&schema, values)
                }
            })
            .collect();
        let mut not_finite = 0;
        for _ in 0..3 {
            let step =
                BatchStep { batch: &batch, rows: &mut rows, measures: None, not_finite: &mut not_finite };
            learn_on(cpu, &mut model, step).unwrap();
        }
        assert_eq!(not_finite, 0);
        rows.iter().map(BatchRows::bits).collect::<Vec<_>>()
    };
    for replayed in [true, false] {
        let oracle = learned(Cpu::Scalar, replayed);
        for cpu in Cpu::all() {
            assert!(learned(cpu, replayed) == oracle, "{} {} {replayed}", new().name(), cpu.name());
        }
    }
}

#[test]
fn every_instruction_set_learns_the_same_bits() {
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.01, l2: 0.3 });
    let keys = [INTERCEPT_KEY, 1, 2, 3, 4];
    for rule in [SETTINGS.rule, adagrad, ftrl] {
        for dim in [1, 3, 8, 10, 16, 21, 40, 70] {
            let s = ModelSettings { rule, seed: dim as u64, l2: 0.01, ..SETTINGS };
            compare_instruction_sets(|| Softmax::new(s, dim + 1), s, &keys);
            compare_instruction_sets(|| FactorizationMachine::new(s, dim), s, &keys);
            compare_instruction_sets(|| DeepFm::new(s, 1, dim, &[dim + 2, 9]), s, &keys);
            compare_instruction_sets(|| DeepFm::new(s, 3, dim, &[dim + 2, 9]), s, &keys);
            compare_instruction_sets(|| FieldAwareMachine::new(s, 3, dim), s, &keys);
            compare_instruction_sets(|| Factorization::new(s, dim), s, &keys[..3]);
            compare_instruction_sets(|| Linear::new(s), s, &keys);
        }
    }
}
