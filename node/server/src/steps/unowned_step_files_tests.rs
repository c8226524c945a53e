//! Servers that are started again and again with other threads: their step files do not add up, and no step is lost.

use crate::steps::step::{StepNote, StepSum};
use crate::steps::step_files::{apply_step, finish};
use crate::steps::unowned_step_files::*;
use gannet_core::{DATA_PUSHERS, PushName, Read, Schema, Write, hash, shard_of};
use gannet_optim::{Add, Rule};
use std::fs;

const SHARDS: u32 = 8;

const KEYS: u64 = 100;

const AGGREGATE: u64 = u64::MAX - 1;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn shard(key: u64) -> u32 {
    shard_of(hash(key), SHARDS)
}

/// The shards of each of `threads` threads.
fn sets(threads: u32) -> Vec<ShardSet> {
    let first = |thread: u32| thread * SHARDS / threads;
    (0..threads).map(|thread| ShardSet::from(first(thread)..first(thread + 1))).collect()
}

/// A step of the keys of these shards. Every key has 1 in it.
fn sum(step: u64, set: &ShardSet) -> StepSum {
    let mut keys: Vec<u64> = (0..KEYS).filter(|&key| set.contains(shard(key))).collect();
    keys.sort_by_key(|&key| shard(key));
    let name = PushName { pusher: DATA_PUSHERS | 5, incarnation: 9, seq: step + 1, row: 1 };
    let notes = set.iter().map(|shard| StepNote { shard, name, total: u64::from(SHARDS) }).collect();
    StepSum { step, mask: 0b11, write: Write::Gradient, values: vec![1.0; keys.len()], keys, notes }
}

/// A thread of a server that has opened its shards.
struct Thread {
    shards: Shards,
    files: StepFiles,
    at: u64,
    masks: Vec<u32>,
}

impl Thread {
    fn open(store: &Store, set: &ShardSet, present: &[ShardSet]) -> Thread {
        let mut shards = Shards::open(store, &schema(), set.clone()).unwrap();
        let found = finish(store, &mut shards, AGGREGATE).unwrap();
        assert_eq!(found.ahead, Vec::new());
        let files = crate::steps::unowned_step_files::open_step_files(store, &shards, &found, present);
        Thread { shards, files, at: found.at, masks: found.masks }
    }

    /// Makes the next step. Only the shards below `reached` get it before the server is killed.
    fn step(&mut self, reached: u32) {
        let mut sum = sum(self.at, self.shards.set());
        self.masks.insert(0, 0b11);
        self.files.write(&self.shards, &sum, self.masks.clone()).unwrap();
        self.at += 1;
        if reached == SHARDS {
            apply_step(&mut self.shards, &sum, AGGREGATE).unwrap();
            self.files.applied();
            return;
        }
        sum.keys.retain(|&key| shard(key) < reached);
        sum.values.truncate(sum.keys.len());
        sum.notes.clear();
        apply_step(&mut self.shards, &sum, AGGREGATE).unwrap();
    }

    /// Checks that each row has each step once, and that the thread knows who was in all of them.
    fn check(&mut self, steps: u64) {
        assert_eq!((self.at, &self.masks), (steps, &vec![0b11; steps as usize]));
        let keys: Vec<u64> = (0..KEYS).filter(|&key| self.shards.set().contains(shard(key))).collect();
        let mut out = vec![0.0; keys.len()];
        self.shards.pull(&keys, Read::Weights, &mut out, None).unwrap();
        assert!(out.iter().all(|&sum| sum == steps as f32), "{out:?}");
    }
}

fn count(store: &Store) -> usize {
    step_files_of(store, "t").unwrap().len()
}

/// Once each number of threads left two files for each of its threads, for ever.
#[test]
fn step_files_of_former_threads_were_never_removed() {
    for reached in [0, 3, SHARDS] {
        for steps in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open_dir(folder.path()).unwrap();
            let mut made = 0;
            for threads in [1, 2, 4, 3, 8, 2, 5, 1, 7, 6, 1] {
                let present = sets(threads);
                let open = |set| Thread::open(&store, set, &present);
                let mut all: Vec<Thread> = present.iter().map(open).collect();
                all.iter_mut().for_each(|thread| thread.check(made));
                assert!(count(&store) <= 2 * threads as usize, "{} files, {threads} threads", count(&store));
                for thread in &mut all {
                    (0..steps).for_each(|_| thread.step(SHARDS));
                    thread.step(reached);
                }
                made += steps + 1;
            }
        }
    }
}

/// Once a thread failed to open its shards when another one removed a former file that it had listed.
#[test]
fn a_file_that_another_thread_removed_was_an_error() {
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        for (made, threads) in (0..).zip([8, 7, 8, 3, 5, 8, 1, 6]) {
            let present = sets(threads);
            let begin = std::sync::Barrier::new(threads as usize);
            let open = |set| {
                begin.wait();
                Thread::open(&store, set, &present)
            };
            let mut all: Vec<Thread> = std::thread::scope(|scope| {
                let opening: Vec<_> = present.iter().map(|set| scope.spawn(|| open(set))).collect();
                opening.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            all.iter_mut().for_each(|thread| thread.check(made));
            assert!(count(&store) <= 2 * threads as usize, "{} files, {threads} threads", count(&store));
            all.iter_mut().for_each(|thread| thread.step([0, 3, SHARDS][round % 3]));
        }
    }
}

/// A file goes only when the last thread whose shards are in it has finished its step.
#[test]
fn an_unowned_file_stays_for_a_thread_that_has_not_opened_its_shards() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let (one, two, three) = (sets(1), sets(2), sets(3));
    // The server is killed in its third step, which no shard has.
    let mut whole = Thread::open(&store, &one[0], &one);
    [SHARDS, SHARDS, 0].iter().for_each(|&reached| whole.step(reached));
    drop(whole);
    // The first thread goes on, and the second one cannot open its shards, in two lives.
    for present in [&two, &three] {
        let mut first = Thread::open(&store, &present[0], present);
        first.check(3);
        assert!(one.iter().all(|set| folder.path().join("t").join(file_name(set, 0)).is_file()));
    }
    let open = |set| Thread::open(&store, set, &two);
    two.iter().map(open).for_each(|mut thread| thread.check(3));
    assert!(count(&store) <= 4, "{:?}", step_files_of(&store, "t"));
}

/// A shard that is ahead of the others keeps the file that says how far it is.
#[test]
fn an_unowned_file_stays_while_its_shards_are_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let (one, two) = (sets(1), sets(2));
    for (set, steps) in two.iter().zip([3, 1]) {
        let mut thread = Thread::open(&store, set, &two);
        (0..steps).for_each(|_| thread.step(SHARDS));
    }
    for _ in 0..2 {
        let mut shards = Shards::open(&store, &schema(), one[0].clone()).unwrap();
        let found = finish(&store, &mut shards, AGGREGATE).unwrap();
        let ahead: Vec<_> = two[0].iter().map(|shard| (shard, 3)).collect();
        assert_eq!((found.at, &found.ahead), (1, &ahead));
        crate::steps::unowned_step_files::open_step_files(&store, &shards, &found, &one);
        assert!([0, 1].iter().any(|&turn| folder.path().join("t").join(file_name(&two[0], turn)).is_file()));
    }
    // The shards that were behind make the steps. Then nothing is left of the threads before.
    let mut second = Thread::open(&store, &two[1], &two);
    (0..2).for_each(|_| second.step(SHARDS));
    drop(second);
    Thread::open(&store, &one[0], &one).check(3);
    assert!(count(&store) <= 2, "{:?}", step_files_of(&store, "t"));
}

/// Torn files go with the others. With one of another version of Gannet, the table is not opened: it may have a step
/// that was begun.
#[test]
fn a_torn_unowned_file_goes_and_one_of_another_version_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let (one, two) = (sets(1), sets(2));
    for set in &two {
        let mut thread = Thread::open(&store, set, &two);
        (0..2).for_each(|_| thread.step(SHARDS));
    }
    let path = |set, turn| folder.path().join("t").join(file_name(set, turn));
    for (path, byte) in [(path(&two[0], 0), 40), (path(&two[1], 0), 7)] {
        let mut bytes = fs::read(&path).unwrap();
        bytes[byte] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let mut shards = Shards::open(&store, &schema(), one[0].clone()).unwrap();
    let why = finish(&store, &mut shards, AGGREGATE).unwrap_err();
    let other = path(&two[1], 0);
    assert!(why.contains(&other.display().to_string()) && why.contains("another version"), "{why}");
    drop(shards);
    assert!(other.is_file() && path(&two[0], 0).is_file());
    // With the file as it was, the table is opened, and the torn file goes.
    let mut bytes = fs::read(&other).unwrap();
    bytes[7] ^= 1;
    fs::write(&other, bytes).unwrap();
    Thread::open(&store, &one[0], &one).check(2);
    assert!(count(&store) <= 2, "{:?}", step_files_of(&store, "t"));
}
