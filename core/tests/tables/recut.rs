//! Pushes that are divided into other parts when they are resent: after a restart with another number of
//! threads, other limits of frames or other links. Each row must be applied once, whatever the parts are and
//! whenever the shards were killed. A map is the oracle.

use gannet_core::*;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::collections::HashMap;

const SHARDS: u32 = 8;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn shard(key: u64) -> u32 {
    shard_of(hash(key), SHARDS)
}

/// A part of a push: a range of its keys, and the row of the first of them in its shard's run.
#[derive(Debug, Clone)]
struct Part {
    keys: std::ops::Range<usize>,
    row: u32,
}

/// The threads of a server. Each owns some of the shards.
struct Threads {
    _store: Store,
    all: Vec<Shards>,
}

impl Threads {
    /// Threads with a range of shards each. If `scattered`, with shards that are no neighbours.
    fn open(folder: &std::path::Path, threads: u32, scattered: bool) -> Threads {
        let store = Store::open_dir(folder).unwrap();
        let own = |i: u32| match scattered {
            false => ShardSet::from(i * SHARDS / threads..(i + 1) * SHARDS / threads),
            true => ShardSet::of((0..SHARDS).filter(|shard| shard % threads == i)),
        };
        let all = (0..threads).map(|i| Shards::open(&store, &schema(), own(i)).unwrap()).collect();
        Threads { _store: store, all }
    }

    /// Cuts keys, which are in shard order, into parts of at most `most` rows for each thread.
    fn cut(&self, keys: &[u64], most: usize) -> Vec<(usize, Part)> {
        let owner = |key: u64| self.all.iter().position(|own| own.set().contains(shard(key))).unwrap();
        let mut parts = Vec::new();
        // Where the part begins, where the run of its first key begins, and where the current run begins.
        let (mut from, mut first, mut begin) = (0, 0, 0);
        for at in 1..=keys.len() {
            let ends = at == keys.len() || owner(keys[at]) != owner(keys[from]) || at - from == most;
            if at < keys.len() && shard(keys[at]) != shard(keys[at - 1]) {
                begin = at;
            }
            if ends {
                parts.push((owner(keys[from]), Part { keys: from..at, row: (from - first) as u32 }));
                (from, first) = (at, begin);
            }
        }
        parts
    }

    fn push(&mut self, name: PushName, keys: &[u64], (owner, part): &(usize, Part)) -> Applied {
        let keys = &keys[part.keys.clone()];
        let name = PushName { row: part.row, ..name };
        let pushed = self.all[*owner].push(&name, Write::Gradient, keys, None, &vec![1.0; keys.len()]);
        pushed.unwrap_or_else(|error| panic!("{part:?}: {error}"))
    }

    fn sums(&mut self, keys: &[u64]) -> Vec<f32> {
        let mut out = vec![0.0];
        keys.iter()
            .map(|&key| {
                let own = self.all.iter_mut().find(|own| own.set().contains(shard(key))).unwrap();
                own.pull(&[key], Read::Weights, &mut out, None).unwrap();
                out[0]
            })
            .collect()
    }
}

/// One incarnation of the server: its threads, whether their shards are scattered, the most rows of a part, and after
/// how many parts it is killed.
type Life = (u32, bool, usize, usize);

fn incarnations() -> impl Strategy<Value = Vec<Life>> {
    prop::collection::vec(
        (1u32..=SHARDS, any::<bool>(), prop_oneof![1usize..8, 8usize..200], 0usize..40),
        1..6,
    )
}

/// A folder on tmpfs if there is one: dropped shards are as after a kill there too, and no sync waits for a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Four checks in one: rows applied twice, rows lost, parts answered as duplicates, parts refused.
    #[test]
    fn a_push_that_is_cut_anew_when_it_comes_again_is_applied_once(
        batches in prop::collection::vec(prop::collection::hash_set(0u64..300, 1..150), 1..5),
        incarnations in incarnations(), of_data: bool,
    ) {
        let folder = folder();
        let mut model = HashMap::<u64, f32>::new();
        let batches: Vec<Vec<u64>> = batches.into_iter().map(|batch| {
            let mut keys: Vec<u64> = batch.into_iter().collect();
            keys.sort_by_key(|&key| (shard(key), key.wrapping_mul(0x9E37_79B9)));
            keys.iter().for_each(|key| *model.entry(*key).or_default() += 1.0);
            keys
        }).collect();
        let pusher = if of_data { DATA_PUSHERS | 9 } else { 9 };
        let name = |seq: usize| PushName { pusher, incarnation: 3, seq: seq as u64 + 1, row: 0 };
        // Each incarnation sends all that the one before had not acknowledged, from the first such part on, cut by its
        // own threads.
        let mut acked = vec![vec![false; 300]; batches.len()];
        for (n, &(threads, scattered, most, until)) in incarnations.iter().enumerate() {
            let mut server = Threads::open(folder.path(), threads, scattered);
            let last = n + 1 == incarnations.len();
            let mut sent = 0;
            'incarnation: for (seq, keys) in batches.iter().enumerate() {
                for part in server.cut(keys, most) {
                    let rows = part.1.keys.clone();
                    if rows.clone().all(|row| acked[seq][row]) {
                        continue;
                    }
                    if sent == until && !last {
                        break 'incarnation;
                    }
                    sent += 1;
                    server.push(name(seq), keys, &part);
                    // The last answer before a kill is lost.
                    if sent < until || last {
                        rows.for_each(|row| acked[seq][row] = true);
                    }
                }
            }
        }
        let keys: Vec<u64> = (0..300).collect();
        let mut server = Threads::open(folder.path(), 3, false);
        let sums = server.sums(&keys);
        for (key, sum) in keys.iter().zip(sums) {
            prop_assert_eq!(sum, model.get(key).copied().unwrap_or(0.0), "key {}", key);
        }
    }
}

/// A part that leaves a gap after the shard's last row is refused by name: accepting it would lose the rows before it.
#[test]
fn a_gap_in_a_push_is_refused_by_name() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..SHARDS).unwrap();
    let keys: Vec<u64> = (0..1000).filter(|&key| shard(key) == 5).take(20).collect();
    let mut push = |seq, rows: std::ops::Range<usize>| {
        let name = PushName { pusher: 1, incarnation: 1, seq, row: rows.start as u32 };
        let values = vec![1.0; rows.len()];
        shards.push(&name, Write::Gradient, &keys[rows], None, &values)
    };
    assert!(matches!(push(1, 3..9), Err(PushError::Gap { shard: 5, seq: 1, row: 3, done: 0 })));
    assert_eq!(push(1, 0..9).unwrap().applied, 9);
    let gap = push(1, 10..20).unwrap_err();
    assert_eq!(
        gap.to_string(),
        "push 1 begins at row 10 of its run in shard 5, which has 9 rows of it: send the rows between first"
    );
    // Of overlapping parts, the rows that the shard has are dropped, whatever the cut.
    let mixed = push(1, 4..12).unwrap();
    assert_eq!((mixed.duplicate, mixed.applied), (5, 3));
    assert_eq!(push(1, 0..12).unwrap().duplicate, 12);
    assert_eq!(push(1, 11..20).unwrap().applied, 8);
    assert!(matches!(push(2, 1..2), Err(PushError::Gap { seq: 2, row: 1, done: 0, .. })));
    assert_eq!(push(2, 0..20).unwrap().applied, 20);
    assert_eq!(push(1, 0..20).unwrap().duplicate, 20);
}
