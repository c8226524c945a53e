//! Admission against a naive model: a map from key to an exact count, under random pushes, frees and reopenings.

use gannet_core::*;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::collections::HashMap;

fn schema(admission: Admission) -> Schema {
    let init = Init::Uniform { low: -0.5, high: 0.5 };
    Schema { dim: 2, init, seed: 11, shards: 2, admission, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn by_count(pushes: u32, sketch_bytes: u32) -> Admission {
    Admission::Count { pushes, sketch_bytes }
}

fn name(seq: u64) -> PushName {
    PushName { pusher: 9, incarnation: 1, seq, row: 0 }
}

fn cut(keys: &[u16]) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.iter().map(|&k| u64::from(k) * 7919).collect();
    keys.sort_by_key(|&k| shard_of(hash(k), 2));
    keys
}

/// Rows that were applied, and exact counts of the pushes that were not admitted.
#[derive(Default)]
struct Model {
    rows: HashMap<u64, f32>,
    counts: HashMap<u64, u32>,
}

impl Model {
    /// Whether a push of 1.0 is applied.
    fn push(&mut self, key: u64, pushes: u32) -> bool {
        let count = self.counts.entry(key).or_default();
        let applied = self.rows.contains_key(&key) || *count + 1 >= pushes;
        match applied {
            true => *self.rows.entry(key).or_default() += 1.0,
            false => *count += 1,
        }
        applied
    }
}

fn weights(table: &mut Shards, key: u64) -> [f32; 2] {
    let mut out = [0.0; 2];
    table.pull(&[key], Read::Weights, &mut out, None).unwrap();
    out
}

#[derive(Clone, Debug)]
enum Action {
    Push(Vec<u16>, bool),
    BadPush(u16),
    Free(u16),
    Reopen,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let keys = || prop::collection::vec(0..600u16, 1..200);
    let action = prop_oneof![
        8 => (keys(), any::<bool>()).prop_map(|(k, c)| Action::Push(k, c)),
        1 => (0..600u16).prop_map(Action::BadPush),
        1 => (0..600u16).prop_map(Action::Free),
        1 => Just(Action::Reopen),
    ];
    prop::collection::vec(action, 1..25)
}

fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]
    /// In a sketch that is much larger than its keys need, the counts are exact, whatever is freed, refused,
    /// resent or reopened meanwhile.
    #[test]
    fn a_large_sketch_agrees_with_a_map(actions in actions(), pushes in prop_oneof![Just(2u32), Just(3), Just(16), Just(17)], durable in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let schema = schema(by_count(pushes, SKETCH_BYTES_DEFAULT));
        let mut store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let mut table = Shards::open(&store, &schema, 0..2).unwrap();
        let mut model = Model::default();
        for (seq, action) in (1u64..).zip(actions) {
            match action {
                Action::Push(keys, change) => {
                    let keys = cut(&keys);
                    let write = if change { Write::Change } else { Write::Gradient };
                    let values = vec![1.0; keys.len() * 2];
                    let done = table.push(&name(seq), write, &keys, None, &values).unwrap();
                    let applied = keys.iter().filter(|&&key| model.push(key, pushes)).count() as u32;
                    let not_admitted = keys.len() as u32 - applied;
                    prop_assert_eq!(done, Applied { applied, not_admitted, ..Applied::default() });
                    // A resend is dropped completely, and counts nothing.
                    let again = table.push(&name(seq), write, &keys, None, &values).unwrap();
                    prop_assert_eq!(again, Applied { duplicate: keys.len() as u32, ..Applied::default() });
                }
                Action::BadPush(key) => {
                    let done = table.push(&name(seq), Write::Gradient, &[u64::from(key) * 7919], None, &[f32::NAN, 1.0]).unwrap();
                    prop_assert_eq!(done, Applied { not_finite: 1, ..Applied::default() });
                }
                Action::Free(key) => {
                    let key = u64::from(key) * 7919;
                    prop_assert_eq!(table.free(key), model.rows.remove(&key).is_some());
                }
                Action::Reopen => if durable {
                    drop(table);
                    drop(store);
                    store = Store::open_dir(folder.path()).unwrap();
                    table = Shards::open(&store, &schema, 0..2).unwrap();
                },
            }
            prop_assert_eq!(table.stats().rows as usize, model.rows.len());
        }
        for key in (0..600u64).map(|k| k * 7919) {
            let mut init = [0.0; 2];
            initial_weights(schema.init, schema.seed, key, &mut init);
            let sum = model.rows.get(&key).copied();
            // A row adds to its initial value, in the order of the pushes.
            let mut want = init;
            (0..sum.unwrap_or(0.0) as u32).for_each(|_| want.iter_mut().for_each(|w| *w += 1.0));
            prop_assert_eq!(weights(&mut table, key), want, "key {}", key);
        }
    }

    /// One line for all keys: pushes may be admitted too early, but until the line is halved none is admitted
    /// too late.
    #[test]
    fn a_small_sketch_is_never_late(keys in prop::collection::vec(0..40u16, 1..60), pushes in 3u32..6) {
        let mut table = Shards::open(&Store::memory(), &schema(by_count(pushes, 64)), 0..2).unwrap();
        let mut model = Model::default();
        for (seq, &key) in (1u64..).zip(&keys) {
            let key = cut(&[key]);
            let done = table.push(&name(seq), Write::Gradient, &key, None, &[1.0, 1.0]).unwrap();
            prop_assert!(done.applied == 1 || !model.push(key[0], pushes), "key {} is late", key[0]);
            if done.applied == 1 { model.rows.insert(key[0], 1.0); }
        }
    }
}

/// A sketch takes as many bytes as its parameter says, however many keys it sees.
#[test]
fn memory_is_bounded() {
    let bytes = |admission, keys: u64| {
        let mut table = Shards::open(&Store::memory(), &schema(admission), 0..2).unwrap();
        let mut not_admitted = 0;
        for (seq, start) in (1u64..).zip((0..keys).step_by(1000)) {
            let keys: Vec<u64> = (start..start + 1000).filter(|&k| shard_of(hash(k), 2) == 0).collect();
            let values = vec![1.0; keys.len() * 2];
            not_admitted +=
                table.push(&name(seq), Write::Gradient, &keys, None, &values).unwrap().not_admitted;
        }
        (table.stats(), not_admitted)
    };
    let empty = bytes(Admission::All, 0).0.bytes;
    let (waiting, not_admitted) = bytes(by_count(256, 64 << 10), 100_000);
    assert_eq!((waiting.rows, waiting.bytes - empty), (0, 2 * (64 << 10)));
    assert!(not_admitted > 49_000, "{not_admitted}");
}

/// The number of keys of the same shard before the key at this index.
fn row_of(keys: &[u64], at: usize) -> u32 {
    let shard = |key: &u64| shard_of(hash(*key), 2);
    keys[..at].iter().rev().take_while(|key| shard(key) == shard(&keys[at])).count() as u32
}

/// By probability: the name of the push decides, so a second table with other shards admits the same keys.
#[test]
fn a_draw_depends_on_the_push_and_nothing_else() {
    let keys: Vec<u16> = (0..20_000).collect();
    let run = |incarnation: u64, durable: bool| {
        let folder = tempfile::tempdir().unwrap();
        let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let mut table = Shards::open(&store, &schema(Admission::Probability(0.25)), 0..2).unwrap();
        let keys = cut(&keys);
        let all = keys.clone();
        let mut applied = 0;
        let mut at = 0;
        for keys in keys.chunks(if durable { 777 } else { 5000 }) {
            let name = PushName { incarnation, row: row_of(&all, at), ..name(1) };
            at += keys.len();
            let done = table.push(&name, Write::Change, keys, None, &vec![1.0; keys.len() * 2]).unwrap();
            assert_eq!(done.applied + done.not_admitted, keys.len() as u32);
            applied += done.applied;
        }
        let mut found: (Vec<u64>, Vec<f32>) = Default::default();
        for shard in 0..2 {
            assert_eq!(table.scan(shard, 0, 100_000, &mut found.0, &mut found.1), None);
        }
        found.0.sort_unstable();
        (applied, found.0)
    };
    let (applied, rows) = run(1, false);
    assert!((4_600..5_400).contains(&applied), "{applied} of 20000 at probability 0.25");
    assert_eq!(run(2, true), (applied, rows));
}
