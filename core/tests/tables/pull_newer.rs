//! Pulls of changed rows against plain pulls. A reader that applies the answers to its cache must have what a plain
//! pull reads: through pushes, frees, reused slots, images that are reopened and images that are lost.

use gannet_core::*;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::collections::HashMap;

const KEYS: u64 = 40;

fn schema() -> Schema {
    let init = Init::Uniform { low: -0.5, high: 0.5 };
    Schema { dim: 3, shards: 4, init, seed: 5, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// What a reader has cached: rows with snapshot versions, and their incarnation.
#[derive(Default)]
struct Holder {
    incarnation: u64,
    rows: HashMap<u64, (CachedVersion, Vec<f32>)>,
    spared: usize,
}

impl Holder {
    /// Pulls the changed rows of some keys and compares the cache with a plain pull.
    fn ask(&mut self, shards: &mut Shards, incarnation: u64, keys: &[u64]) {
        if self.incarnation != incarnation {
            self.incarnation = incarnation;
            self.rows.clear();
        }
        let held: Vec<CachedVersion> =
            keys.iter().map(|key| self.rows.get(key).map_or(CachedVersion::Nothing, |row| row.0)).collect();
        let (mut out, mut slots, mut answers) = (vec![0.0; keys.len() * 3], vec![9], Vec::new());
        let what = (Read::State, Segments::ALL);
        let (rows, snapshot) =
            shards.pull_newer(keys, &held, what, &mut out, &mut slots, &mut answers).unwrap();
        assert_eq!((slots.len(), answers.len()), (keys.len() + 1, keys.len()));
        let mut answered = out.chunks_exact(3);
        for (&key, &newer) in keys.iter().zip(&answers) {
            let held = match newer {
                NewerRow::Same => {
                    self.spared += 1;
                    continue;
                }
                NewerRow::Row => CachedVersion::Row(snapshot),
                NewerRow::NoRow => CachedVersion::NoRow,
            };
            self.rows.insert(key, (held, answered.next().unwrap().to_vec()));
        }
        assert_eq!(answers.iter().filter(|newer| **newer != NewerRow::Same).count(), rows);
        let mut plain = vec![0.0; keys.len() * 3];
        shards.pull(keys, Read::State, &mut plain, None).unwrap();
        for (key, row) in keys.iter().zip(plain.chunks_exact(3)) {
            assert_eq!(&self.rows[key].1, row, "key {key}");
        }
    }
}

fn in_order(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable_by_key(|&key| hash(key));
    keys.dedup();
    keys
}

#[derive(Debug, Clone)]
enum Step {
    Push(Vec<u64>),
    Free(u64),
    Ask(usize, Vec<u64>),
    /// The images are reopened, or lost.
    Again,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = prop::collection::vec(0..KEYS, 0..12).prop_map(in_order);
    prop::collection::vec(
        prop_oneof![
            4 => keys.clone().prop_map(Step::Push),
            3 => (0..KEYS).prop_map(Step::Free),
            6 => (0usize..3, keys).prop_map(|(who, keys)| Step::Ask(who, keys)),
            1 => Just(Step::Again),
        ],
        1..120,
    )
}

/// Runs the steps. Returns how many rows did not have to be answered.
fn run(steps: &[Step], durable: bool) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let open = || match durable {
        true => Store::open_dir(folder.path()).unwrap(),
        false => Store::memory(),
    };
    let mut shards = Some(Shards::open(&open(), &schema(), 0..4).unwrap());
    let (mut incarnation, mut seq) = (1, 0);
    let mut holders: [Holder; 3] = Default::default();
    for step in steps {
        let here = shards.as_mut().unwrap();
        match step {
            Step::Push(keys) => {
                seq += 1;
                let values: Vec<f32> = (0..keys.len() * 3).map(|i| (i as u64 + seq) as f32).collect();
                let name = PushName { pusher: 1, incarnation, seq, row: 0 };
                here.push(&name, Write::Gradient, keys, None, &values).unwrap();
            }
            Step::Free(key) => {
                here.free(*key);
            }
            Step::Ask(who, keys) => holders[*who].ask(here, incarnation, keys),
            Step::Again => {
                drop(shards.take());
                shards = Some(Shards::open(&open(), &schema(), 0..4).unwrap());
                incarnation += 1;
            }
        }
    }
    holders.iter().map(|holder| holder.spared).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn unanswered_rows_have_not_changed(steps in steps(), durable in any::<bool>()) {
        run(&steps, durable);
    }
}

#[test]
fn unchanged_rows_are_not_answered() {
    let keys = in_order((0..KEYS).collect());
    let ask = || Step::Ask(0, keys.clone());
    // 40 keys without rows, then 40 with rows; one push and one free in between.
    let steps =
        [ask(), ask(), Step::Push(keys.clone()), ask(), ask(), Step::Push(vec![7]), Step::Free(9), ask()];
    assert_eq!(run(&steps, false), 40 + 40 + 38);
    // The cache of another incarnation is not used, even if the counters of an image in memory have the same values.
    let steps = [Step::Push(keys.clone()), ask(), Step::Again, Step::Push(keys.clone()), ask(), ask()];
    assert_eq!(run(&steps, false), 40);
}

#[test]
fn snapshot_versions_are_of_all_shards() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..4).unwrap();
    let mut name = PushName { pusher: 1, incarnation: 1, seq: 0, row: 0 };
    for key in (0..200).map(|i| i * i % KEYS) {
        let before = shards.snapshot_version();
        name.seq += 1;
        shards.push(&name, Write::Gradient, &[key], None, &[1.0; 3]).unwrap();
        let (_, pushed) = shards.versions()[shard_of(hash(key), 4) as usize];
        assert!(pushed > before && shards.snapshot_version() >= pushed);
    }
    let (mut out, mut slots, mut answers) = ([0.0; 3], Vec::new(), Vec::new());
    let what = (Read::State, Segments::ALL);
    assert!(shards.pull_newer(&[1], &[], what, &mut out, &mut slots, &mut answers).is_err());
}
