//! Shared by the tests of mapped shards: mapped shards in the same process, an owner that writes and a reader that
//! checks.
#![allow(dead_code)] // each test uses a part

use gannet_core::*;
use gannet_optim::Rule;
use std::fs::File;

pub fn schema(rule: Rule, dim: u32, shards: u32) -> Schema {
    Schema { dim, init: Init::Uniform { low: -1.0, high: 1.0 }, shards, ..Schema::scalar("t", rule) }
}

pub fn view(shards: &Shards) -> MappedShards {
    let files = shards
        .images(shards.set())
        .unwrap()
        .into_iter()
        .map(|(_, fd, incarnation)| (File::from(fd), incarnation))
        .collect();
    MappedShards::open(shards.schema(), shards.set().clone(), files).unwrap()
}

pub fn cut(mut keys: Vec<u64>, shards: u32) -> Vec<u64> {
    keys.sort_by_key(|&key| shard_of(hash(key), shards));
    keys
}

pub fn name(seq: u64) -> PushName {
    PushName { pusher: 1, incarnation: 1, seq, row: 0 }
}

/// At rest a reader finds what the owner finds, at the same slots, with the same bits.
pub fn agree(shards: &mut Shards, view: &mut MappedShards, keys: &[u64]) {
    let segments: &[Segments] = match shards.schema().more.len() {
        0 => &[Segments::ALL],
        _ => &[Segments::ALL, Segments::only(&[1]), Segments::only(&[0])],
    };
    for read in [Read::Weights, Read::State] {
        for &segments in segments {
            let floats = shards.schema().read_floats_of(read, segments).unwrap();
            let (mut want, mut got) = (vec![0.0; keys.len() * floats], vec![f32::NAN; keys.len() * floats]);
            let (mut owned, mut slots) = (Vec::new(), vec![7]);
            shards.pull_segments(keys, read, segments, &mut want, Some(&mut owned)).unwrap();
            let misses = view.pull(keys, read, segments, &mut got, &mut slots).unwrap();
            assert_eq!(owned, slots);
            assert_eq!(misses, slots.iter().filter(|&&slot| slot == NO_SLOT).count());
            for (i, (want, got)) in want.chunks(floats).zip(got.chunks(floats)).enumerate() {
                assert!(slots[i] == NO_SLOT || want == got, "key {}: {want:?}, {got:?}", keys[i]);
            }
        }
    }
}

/// The value that is pushed to `key`. Floats differ between places of a row and between keys, and every sum of
/// them is exact.
pub fn value(key: u64, float: usize) -> f32 {
    (key % 61 + 1) as f32 * 64.0 + float as f32
}

/// Whether the floats of a hit are `n` pushes of `key`, for one `n`.
pub fn is_whole(key: u64, row: &[f32]) -> bool {
    let n = row[0] / value(key, 0);
    n >= 1.0 && n.fract() == 0.0 && row.iter().enumerate().all(|(i, &x)| x == n * value(key, i))
}

pub const KEYS: u64 = 100;

/// The owner of the torn-read tests. It pushes, frees and reuses slots of the first `KEYS` keys, which are hot, while
/// the table grows beside them. It stops when `on` returns false.
pub fn write_on(table: &mut Shards, incarnation: u64, mut on: impl FnMut() -> bool) {
    let floats = table.schema().dim as usize;
    let (mut seq, mut fresh) = (0, KEYS);
    while on() {
        seq += 1;
        let mut random = seq;
        let mut keys: Vec<u64> = (0..64)
            .map(|_| {
                random = mix(random);
                random % KEYS
            })
            .collect();
        if fresh < 60_000 {
            keys.extend(fresh..fresh + 16);
            fresh += 16;
        }
        let keys = cut(keys, table.schema().shards);
        let values: Vec<f32> = keys.iter().flat_map(|&key| (0..floats).map(move |i| value(key, i))).collect();
        let name = PushName { incarnation, ..name(seq) };
        table.push(&name, Write::Gradient, &keys, None, &values).unwrap();
        // The upper half of the keys is freed and added again, so its rows change slots, and never grow to sums that
        // are not exact.
        for _ in 0..8 {
            random = mix(random);
            table.free(KEYS / 2 + random % (KEYS / 2));
        }
        if seq % 500 == 0 {
            (0..KEYS).for_each(|key| {
                table.free(key);
            });
        }
    }
}

/// Pulls for `rounds` rounds. Every row that it gets must be whole. Returns hits and misses.
pub fn read_on(view: &mut MappedShards, rounds: u64) -> (usize, usize) {
    let floats = view.schema().dim as usize;
    let (mut out, mut slots) = (Vec::new(), Vec::new());
    let (mut hits, mut misses) = (0, 0);
    for round in 0..rounds {
        let keys: Vec<u64> = (0..256).map(|i| mix(round * 256 + i) % KEYS).collect();
        out.resize(keys.len() * floats, 0.0);
        let missed = view.pull(&keys, Read::Weights, Segments::ALL, &mut out, &mut slots).unwrap();
        for ((&key, &slot), row) in keys.iter().zip(&slots).zip(out.chunks(floats)) {
            assert!(slot == NO_SLOT || is_whole(key, row), "key {key} at {slot}: {row:?}");
        }
        misses += missed;
        hits += keys.len() - missed;
    }
    (hits, misses)
}
