//! kill -9 while rows die. Each row must have the sums of all its pushes since one of them, the row's first. A kill
//! leaves no row half dead: the index, the counters and the deltas agree.

use crate::{child, finishes, folder, number};
use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const ROWS_A_PART: u64 = 24;
const PARTS: u64 = 10;
const CAPACITY: u64 = 40;

fn schema() -> Schema {
    Schema { dim: 2, shards: 1, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// Keys of a part: half of them are those of the part before, and some come again and again.
fn part(n: u64) -> Vec<u64> {
    let moving = (0..ROWS_A_PART).map(|i| 100 + n * ROWS_A_PART / 2 + i);
    moving.chain(0..4).map(|key| key * 7919).collect()
}

fn push(table: &mut Shards, n: u64) {
    let keys = part(n);
    let values: Vec<f32> = keys.iter().flat_map(|_| [1.0, 2f32.powi(n as i32)]).collect();
    let name = PushName { pusher: 3, incarnation: 1, seq: n + 1, row: 0 };
    table.push(&name, Write::Gradient, &keys, None, &values).unwrap();
}

fn open(folder: &Path) -> (Store, Shards, Evictor) {
    let store = Store::open_dir(folder).unwrap();
    let shards = Shards::open(&store, &schema(), 0..1).unwrap();
    let full = Eviction { capacity: Some(Capacity::Rows(CAPACITY)), ..Eviction::default() };
    (store, shards, Evictor::new(full, &schema()).unwrap())
}

/// Pushes the parts from `first` on, and evicts after each. `acked` hears of each part that was pushed.
fn work(table: &mut Shards, evictor: &mut Evictor, first: u64, acked: impl Fn(u64)) {
    for n in first..PARTS {
        push(table, n);
        acked(n);
        while evictor.slice(table, Duration::ZERO).more {}
    }
}

#[test]
fn play() {
    let Ok(folder) = std::env::var("KILL_FOLDER") else { return };
    let (_store, mut table, mut evictor) = open(Path::new(&folder));
    kill::after(number("KILL_AFTER"));
    work(&mut table, &mut evictor, 0, |n| {
        // The note is written as a whole or not at all.
        let new = Path::new(&folder).join("new");
        std::fs::write(&new, n.to_string()).unwrap();
        std::fs::rename(&new, Path::new(&folder).join("acked")).unwrap();
    });
    std::process::exit(42);
}

/// Each row has the pushes of its key from one of them on: its count, and a bit for each.
fn check(table: &mut Shards, upto: u64, context: &str) -> BTreeSet<u64> {
    let mut pushes = BTreeMap::<u64, Vec<u64>>::new();
    (0..upto).for_each(|n| part(n).into_iter().for_each(|key| pushes.entry(key).or_default().push(n)));
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    assert_eq!(table.scan(0, 0, 10_000, &mut keys, &mut rows), None);
    for (key, row) in keys.iter().zip(rows.chunks(2)) {
        let all = &pushes[key];
        let since = (0..all.len()).map(|from| {
            let bits = all[from..].iter().map(|&n| 2f32.powi(n as i32)).sum::<f32>();
            [(all.len() - from) as f32, bits]
        });
        assert!(since.into_iter().any(|sum| sum == row), "{context}: key {key} has {row:?} of {all:?}");
        let mut found = [0.0; 2];
        table.pull(&[*key], Read::Weights, &mut found, None).unwrap();
        assert_eq!(found, row, "{context}: key {key} by the index");
    }
    assert_eq!(table.stats().rows as usize, keys.len(), "{context}: count");
    let gone: BTreeSet<u64> = pushes.keys().copied().filter(|key| !keys.contains(key)).collect();
    for key in &gone {
        let mut found = [1.0; 2];
        table.pull(&[*key], Read::Weights, &mut found, None).unwrap();
        assert_eq!(found, [0.0; 2], "{context}: dead key {key}");
    }
    gone
}

#[test]
fn every_death_can_be_the_last_step() {
    let stride = std::env::var("KILL_STRIDE").ok().map_or(5, |s| s.parse().unwrap());
    let (mut kills, mut after) = (0, 1);
    loop {
        let folder = folder();
        let empty = {
            let (_store, mut table, _) = open(folder.path());
            table.free(0); // a command, so that the position is not the beginning
            table.positions()
        };
        let finished = finishes(child("evictions::play", folder.path(), after));
        let (_store, mut table, mut evictor) = open(folder.path());
        let acked = std::fs::read_to_string(folder.path().join("acked"));
        let acked = acked.map_or(0, |n| n.parse::<u64>().unwrap() + 1);
        // The part that was pushed in part is sent again. Then the work goes on.
        let context = format!("killed at point {after}");
        if acked < PARTS {
            push(&mut table, acked);
            check(&mut table, acked + 1, &context);
        }
        work(&mut table, &mut evictor, acked, |_| {});
        while evictor.slice(&mut table, Duration::ZERO).more {}
        let gone = check(&mut table, PARTS, &context);
        assert!(table.stats().rows <= CAPACITY && gone.len() > 60, "{context}: {} are gone", gone.len());
        // The delta above the empty table names all of the dead.
        let cuts = table.mark_cut(gannet_core::CutReader::Checkpoint, &empty);
        assert_eq!(cuts[0].deletions, gone.into_iter().collect::<Vec<_>>(), "{context}");
        if finished {
            break;
        }
        kills += 1;
        after += stride;
    }
    assert!(kills > 100, "only {kills} kill points were passed");
}
