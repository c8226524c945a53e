//! Damped changes of state against a map of rows, with any expected counts, resends and refusals.

use gannet_core::*;
use gannet_optim::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn table() -> Schema {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.5 });
    Schema { dim: 2, shards: 4, ..Schema::scalar("t", rule) }
}

fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn sorted(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable_by_key(|&key| (shard_of(hash(key), 4), key));
    keys.dedup();
    keys
}

fn shards(schema: &Schema) -> Shards {
    Shards::open(&Store::memory(), schema, 0..4).unwrap()
}

/// The state of a row, and the number of its pushes.
type Row = (Vec<f32>, u64);

fn fresh() -> Row {
    (vec![0.0, 0.0, 0.5, 0.5], 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_map(pushes in prop::collection::vec(
        (prop::collection::vec(0..300u64, 1..150), 0..4u64, 0.0f32..1.0, any::<bool>()), 1..30)) {
        let schema = table().counting();
        prop_assert!(schema.counts() && schema.floats() == 5);
        let mut table = shards(&schema);
        let mut rows: HashMap<u64, Row> = HashMap::new();
        for (seq, (keys, behind, by, twice)) in (1u64..).zip(pushes) {
            let (keys, mut values) = (sorted(keys), Vec::new());
            for &key in &keys {
                let (row, count) = rows.entry(key).or_insert_with(fresh);
                let others = behind.min(*count);
                let change = [by, -by, by * by, 0.25];
                row.iter_mut().zip(change).for_each(|(row, change)| {
                    *row += if others == 0 { change } else { change * (1.0 / (1.0 + others as f32)) };
                });
                values.extend(change);
                values.push((*count - others) as f32);
                *count += 1;
            }
            let name = PushName { pusher: 7, incarnation: 1, seq, row: 0 };
            let applied = table.push(&name, Write::Damped, &keys, None, &values).unwrap();
            prop_assert_eq!((applied.applied, applied.duplicate), (keys.len() as u32, 0));
            if twice {
                let again = table.push(&name, Write::Damped, &keys, None, &values).unwrap();
                prop_assert_eq!((again.applied, again.duplicate), (0, keys.len() as u32));
            }
        }
        let keys = sorted((0..300).collect());
        let mut found = vec![0.0; keys.len() * 5];
        table.pull(&keys, Read::State, &mut found, None).unwrap();
        for (key, found) in keys.iter().zip(found.chunks_exact(5)) {
            let (row, count) = rows.get(key).cloned().unwrap_or_else(fresh);
            prop_assert_eq!((&found[..4], found[4]), (&row[..], count as f32));
        }
    }
}

fn refused(schema: &Schema, values: &[f32]) -> PushError {
    let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    shards(schema).push(&name, Write::Damped, &[5], None, values).unwrap_err()
}

#[test]
fn only_tables_that_count_take_them() {
    let error = refused(&table(), &[1.0; 4]);
    assert!(matches!(error, PushError::NoCount(_)), "{error}");
    let adam = Rule::Adam(Adam { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-6, decay: 0.0 });
    let schema = Schema { rule: adam, ..table() }.counting();
    assert!(matches!(refused(&schema, &vec![1.0; schema.floats()]), PushError::NoReplay(..)));
}

#[test]
fn what_would_spoil_a_row_is_dropped_and_not_counted() {
    let mut table = shards(&table().counting());
    let push = |table: &mut Shards, seq, values: [f32; 5]| {
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        table.push(&name, Write::Damped, &[5], None, &values).unwrap()
    };
    for (seq, bad) in [(1, f32::NAN), (3, f32::INFINITY)] {
        assert_eq!(push(&mut table, seq, [0.0, 1.0, 1.0, 1.0, bad]).not_finite, 1);
        assert_eq!(push(&mut table, seq + 1, [bad, 1.0, 1.0, 1.0, 0.0]).applied, 0);
    }
    // A sum of squares below 0, and a count that no row can have.
    assert_eq!(push(&mut table, 8, [0.0, 0.0, -9.0, 0.0, 0.0]).not_finite, 1);
    assert_eq!(push(&mut table, 9, [0.5, 1.0, 1.0, 1.0, 1e30]).applied, 1);
    let mut row = [0.0; 5];
    table.pull(&[5], Read::State, &mut row, None).unwrap();
    assert!(row[4] == 1.0 && row.iter().all(|value| value.is_finite()), "{row:?}");
}
