//! Tables of vectors beside a model: rows of f64 in a map, programs computed row by row.

use gannet_core::*;
use gannet_optim::lbfgs::{project, pseudo_gradient, split};
use proptest::prelude::*;
use std::collections::BTreeMap;

const VECTORS: Vectors = Vectors { wide: 4, narrow: 2 };
const COLUMNS: usize = 7;
const SHARDS: u32 = 4;
/// The key without penalties.
const FREE: u64 = 3;

type Model = BTreeMap<u64, ([f64; COLUMNS], u64)>;

fn cut(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_by_key(|&key| (shard_of(hash(key), SHARDS), key));
    keys.dedup();
    keys
}

fn name(seq: u64) -> PushName {
    PushName { pusher: 1, incarnation: 1, seq, row: 0 }
}

fn open(store: &Store) -> Shards {
    Shards::open(store, &VECTORS.schema("v", SHARDS), 0..SHARDS).unwrap()
}

/// Rows as the table holds them.
fn rows(table: &mut Shards, pass: u64) -> BTreeMap<u64, Vec<f64>> {
    let (mut keys, mut floats) = (Vec::new(), Vec::new());
    (0..SHARDS).for_each(|shard| assert_eq!(table.scan(shard, 0, 9999, &mut keys, &mut floats), None));
    let row = |row: &[f32]| (0..COLUMNS as u16).map(|c| VECTORS.value(row, c, pass)).collect();
    keys.into_iter().zip(floats.chunks_exact(table.schema().floats()).map(row)).collect()
}

/// Every value of the model is a multiple of 1/1024 and not large, so one or two floats hold it exactly, and products
/// too.
fn run_model(model: &mut Model, program: &Program) -> Vec<f64> {
    let mut sums = vec![0.0; program.sums.len()];
    for (&key, (row, pass)) in model.iter_mut() {
        let free = Some(key) == program.free;
        let stored = row[0];
        row[0] = if *pass == program.pass { stored } else { 0.0 };
        for step in &program.steps {
            match step {
                ProgramStep::Combine { to, terms } => {
                    let terms = terms.iter().filter(|term| !(free && term.penalised));
                    row[*to as usize] = terms.map(|term| term.factor * row[term.column as usize]).sum();
                }
                ProgramStep::Slope { to, gradient, weights, l1 } => {
                    let (g, w) = (row[*gradient as usize], row[*weights as usize]);
                    row[*to as usize] = pseudo_gradient(g, w, if free { 0.0 } else { *l1 });
                }
                ProgramStep::Support { to, of } => {
                    row[*to as usize] = if row[*of as usize] == 0.0 { 0.0 } else { 1.0 }
                }
                ProgramStep::Multiply { to, by } => row[*to as usize] *= row[*by as usize],
                ProgramStep::Reciprocal { to, of, plus } => {
                    row[*to as usize] = 1.0 / (row[*of as usize] + if free { 0.0 } else { *plus })
                }
                ProgramStep::Project { to, weights, step, slope } => {
                    let (w, d, v) = (row[*weights as usize], row[*step as usize], row[*slope as usize]);
                    row[*to as usize] = if free { w + d } else { project(w, d, v) };
                }
            }
        }
        for (sum, reduce) in sums.iter_mut().zip(&program.sums) {
            *sum += match *reduce {
                ColumnSum::Dot { penalised: true, .. } | ColumnSum::Norm1 { penalised: true, .. } if free => {
                    0.0
                }
                ColumnSum::Dot { a, b, .. } => row[a as usize] * row[b as usize],
                ColumnSum::Weighted { a, b, by } => row[a as usize] * row[by as usize] * row[b as usize],
                ColumnSum::Norm1 { a, .. } => row[a as usize].abs(),
            };
        }
        row[0] = stored;
    }
    sums
}

fn column() -> impl Strategy<Value = u16> {
    0u16..COLUMNS as u16
}

fn step() -> impl Strategy<Value = ProgramStep> {
    let factor = prop_oneof![Just(1.0), Just(-1.0), Just(0.5), Just(2.0)];
    let term = (factor, column(), any::<bool>());
    let term = term.prop_map(|(factor, column, penalised)| Term { factor, column, penalised });
    prop_oneof![
        (column(), prop::collection::vec(term, 0..4))
            .prop_map(|(to, terms)| ProgramStep::Combine { to, terms }),
        (column(), column(), column(), 0u8..3).prop_map(|(to, gradient, weights, l1)| {
            ProgramStep::Slope { to, gradient, weights, l1: f64::from(l1) }
        }),
        (column(), column()).prop_map(|(to, of)| ProgramStep::Support { to, of }),
        (column(), column(), column(), column())
            .prop_map(|(to, weights, step, slope)| ProgramStep::Project { to, weights, step, slope }),
    ]
}

fn reduce() -> impl Strategy<Value = ColumnSum> {
    prop_oneof![
        (column(), column(), any::<bool>()).prop_map(|(a, b, penalised)| ColumnSum::Dot { a, b, penalised }),
        (column(), any::<bool>()).prop_map(|(a, penalised)| ColumnSum::Norm1 { a, penalised }),
    ]
}

#[derive(Debug, Clone)]
enum Action {
    Sum { pass: u64, keys: Vec<u64>, value: i32 },
    Run { steps: Vec<ProgramStep>, sums: Vec<ColumnSum>, pass: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (1u64..4, prop::collection::vec(0u64..200, 0..120), -8i32..9)
            .prop_map(|(pass, keys, value)| Action::Sum { pass, keys, value }),
        (prop::collection::vec(step(), 0..4), prop::collection::vec(reduce(), 0..4), 1u64..4)
            .prop_map(|(steps, sums, pass)| Action::Run { steps, sums, pass }),
    ]
}

/// A preconditioner made of a sum, a column multiplied by it, and dot products weighted by it: powers of two, so that
/// all of it is exact.
#[test]
fn products_and_reciprocals_are_those_of_rows() {
    let store = Store::memory();
    let (mut table, mut model) = (open(&store), Model::new());
    for (i, value) in [1.0, 3.0, 7.0].into_iter().enumerate() {
        let keys = cut((0..200).filter(|key| key % 3 == i as u64).collect());
        let name = PushName { pusher: 10 + i as u64, incarnation: 1, seq: Vectors::first_seq(1), row: 0 };
        table.push(&name, Write::Sum, &keys, None, &split(value).repeat(keys.len())).unwrap();
        model.extend(keys.iter().map(|&key| (key, ([value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1))));
    }
    // Only the free row has 1 / value, which has to be exact too.
    let name_free = PushName { pusher: 20, incarnation: 1, seq: Vectors::first_seq(2), row: 0 };
    table.push(&name_free, Write::Sum, &[FREE], None, &split(4.0)).unwrap();
    model.insert(FREE, ([4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 2));
    for pass in [1, 2] {
        let steps = vec![
            ProgramStep::Reciprocal { to: 1, of: 0, plus: 1.0 },
            ProgramStep::Combine { to: 2, terms: vec![Term::new(2.0, 0), Term::new(1.0, 1)] },
            ProgramStep::Multiply { to: 2, by: 1 },
        ];
        let sums = vec![
            ColumnSum::Weighted { a: 2, b: 1, by: 1 },
            ColumnSum::Weighted { a: 0, b: 2, by: 1 },
            ColumnSum::Dot { a: 1, b: 1, penalised: true },
        ];
        let program = Program { pass, free: Some(FREE), steps, sums };
        if pass == 1 {
            // The free row's sum is of the other pass, so its reciprocal is that of 0, which is 1.
            model.get_mut(&FREE).unwrap().1 = 2;
        }
        let mut got = vec![0.0; 3];
        for shard in 0..SHARDS {
            let part = table.run_program(shard, &name(pass), &program).unwrap();
            got.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let free = model.remove(&FREE).unwrap();
        let mut want = run_model(&mut model, &program);
        let value = if pass == 2 { 4.0 } else { 0.0 };
        let by = if pass == 2 { 0.25 } else { 1.0 };
        let made = (2.0 * value + by) * by;
        want[0] += made * by * by;
        want[1] += value * by * made;
        model.insert(FREE, free);
        assert_eq!(got, want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn like_rows_in_a_map(actions in prop::collection::vec(action(), 1..14)) {
        let store = Store::memory();
        let mut table = open(&store);
        let mut model = Model::new();
        let mut seq = 0;
        for action in actions {
            match action {
                Action::Sum { pass, keys, value } => {
                    // Sequence numbers grow with the passes, so each pass has its own pusher here.
                    let keys = cut(keys);
                    let values = split(f64::from(value)).repeat(keys.len());
                    seq += 1;
                    let name = PushName { pusher: 10 + seq, incarnation: 1, seq: Vectors::first_seq(pass), row: 0 };
                    table.push(&name, Write::Sum, &keys, None, &values).unwrap();
                    for key in keys {
                        let (row, of) = model.entry(key).or_insert(([0.0; COLUMNS], 0));
                        if pass > *of {
                            (row[0], *of) = (0.0, pass);
                        }
                        row[0] += if pass == *of { f64::from(value) } else { 0.0 };
                    }
                }
                Action::Run { steps, sums, pass } => {
                    let program = Program { pass, free: Some(FREE), steps, sums };
                    seq += 1;
                    let name = name(seq);
                    let before = rows(&mut table, pass);
                    let mut got = vec![0.0; program.sums.len()];
                    let mut again = got.clone();
                    let sound = program.check(VECTORS).is_ok();
                    for shard in 0..SHARDS {
                        let ran = table.run_program(shard, &name, &program);
                        prop_assert_eq!(ran.is_ok(), sound);
                        let Ok(sums) = ran else { continue };
                        got.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
                        let sums = table.run_program(shard, &name, &program).unwrap();
                        again.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
                    }
                    if sound {
                        prop_assert_eq!(&got, &run_model(&mut model, &program));
                        prop_assert_eq!(&got, &again);
                    } else {
                        prop_assert_eq!(before, rows(&mut table, pass));
                    }
                }
            }
            for pass in 1..4 {
                let got = rows(&mut table, pass);
                prop_assert_eq!(got.len(), model.len());
                for (key, (row, of)) in &model {
                    prop_assert_eq!(got[key][0], if *of == pass { row[0] } else { 0.0 });
                    prop_assert_eq!(&got[key][1..], &row[1..]);
                }
            }
        }
    }
}

#[test]
fn a_fenced_incarnation_and_a_foreign_table_are_refused() {
    let store = Store::memory();
    let mut table = open(&store);
    let program = Program::default();
    table.run_program(0, &PushName { incarnation: 2, ..name(1) }, &program).unwrap();
    let fenced = table.run_program(0, &PushName { incarnation: 1, ..name(9) }, &program);
    assert!(matches!(fenced, Err(PushError::Fenced { newer: 2, .. })), "{fenced:?}");
    let away = table.run_program(SHARDS, &name(9), &program).unwrap_err();
    assert_eq!(away.to_string(), "table \"v\": shard 4 is not open here, only shards 0 to 3");
    let plain = Schema::scalar("plain", gannet_optim::Rule::Add(gannet_optim::Add));
    let mut plain = Shards::open(&store, &plain, 0..64).unwrap();
    assert!(plain.run_program(0, &name(1), &program).is_err());
    let sum = plain.push(&name(1), Write::Sum, &[], None, &[]).unwrap_err();
    assert_eq!(sum.to_string(), "table \"plain\": only tables of vectors take sums of a pass");
}

#[test]
fn values_that_are_not_finite_are_not_stored_and_show_in_the_sums() {
    let store = Store::memory();
    let mut table = open(&store);
    let keys = cut(vec![1, 2]);
    table.push(&name(Vectors::first_seq(1)), Write::Sum, &keys, None, &split(1e30).repeat(2)).unwrap();
    let steps = vec![ProgramStep::Combine { to: 1, terms: vec![Term::new(1e30, 0)] }];
    let program =
        Program { pass: 1, steps, sums: vec![ColumnSum::Norm1 { a: 1, penalised: false }], free: None };
    let name = name(Vectors::first_seq(1) + 1);
    let sums: Vec<f64> =
        (0..SHARDS).map(|shard| table.run_program(shard, &name, &program).unwrap()[0]).collect();
    assert!(sums.iter().any(|sum| !sum.is_finite()), "{sums:?}");
    assert!(rows(&mut table, 1).values().all(|row| row[1] == 0.0));
}

#[test]
fn a_schema_of_vectors_is_known_again() {
    for vectors in [VECTORS, Vectors { wide: 4, narrow: 0 }, Vectors { wide: 7, narrow: 22 }] {
        let schema = vectors.schema("v", 8);
        schema.check().unwrap();
        assert_eq!(Vectors::of(&schema), Some(vectors));
        assert_eq!(Vectors::of(&Schema { dim: 5, ..schema }), None);
    }
}
