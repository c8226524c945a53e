//! If a server is killed in a step, at any of its shards, it finishes the step from its file. Nothing else changes.

use crate::steps::clocks::{Clocks, Joiner};
use crate::steps::step::{IncomingPush, StepAdmission};
use crate::steps::step_files::*;
use crate::steps::step_merge::StepMerge;
use crate::steps::step_sums::{NextStep, StepSums};
use gannet_core::{DATA_PUSHERS, Origin, Read, Schema, TableIdentity};
use gannet_optim::{Add, Rule};
use gannet_wire::sync::{Merge, StepReduce, SyncConfig, SyncMode};
use std::collections::BTreeMap;
use std::time::Duration;

const SHARDS: u32 = 8;

const AGGREGATE: u64 = u64::MAX - 1;

fn whole() -> ShardSet {
    ShardSet::from(0..SHARDS)
}

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn shard(key: u64) -> u32 {
    shard_of(hash(key), SHARDS)
}

/// Every key has 1 in each step. The steps consist of the batches of task 5.
fn sum(step: u64, keys: u64) -> StepSum {
    let mut keys: Vec<u64> = (0..keys).collect();
    keys.sort_by_key(|&key| shard(key));
    let values = vec![1.0; keys.len()];
    let name = PushName { pusher: DATA_PUSHERS | 5, incarnation: 9, seq: step + 1, row: 0 };
    let rows = |of| keys.iter().filter(|&&key| shard(key) == of).count() as u32;
    let total = keys.len() as u64;
    let note = |shard| StepNote { shard, name: PushName { row: rows(shard), ..name }, total };
    let notes = (0..SHARDS).map(note).collect();
    StepSum { step, mask: 0b11, write: Write::Gradient, keys, values, notes }
}

/// Applies the steps below `whole`, and the next step only to the first `shards` shards, as a server that is killed
/// then.
fn killed(folder: &Path, whole: u64, shards: u32, sets: &[ShardSet]) {
    let store = Store::open_dir(folder).unwrap();
    for set in sets {
        let mut own = Shards::open(&store, &schema(), set.clone()).unwrap();
        let found = finish(&store, &mut own, AGGREGATE).unwrap();
        let mut steps = StepFiles::new(&store, &own);
        for step in found.at..=whole {
            let mut sum = sum(step, 100);
            sum.keys.retain(|&key| set.contains(shard(key)));
            sum.values.truncate(sum.keys.len());
            sum.notes.retain(|note| set.contains(note.shard));
            steps.write(&own, &sum, vec![0b11; step as usize + 1]).unwrap();
            if step == whole {
                sum.keys.retain(|&key| shard(key) < shards);
                sum.values.truncate(sum.keys.len());
                sum.notes.clear();
            }
            apply_step(&mut own, &sum, AGGREGATE).unwrap();
        }
    }
}

fn rows(shards: &mut Shards) -> BTreeMap<u64, f32> {
    let keys: Vec<u64> = (0..100).filter(|&key| shards.set().contains(shard(key))).collect();
    let mut out = vec![0.0; keys.len()];
    shards.pull(&keys, Read::Weights, &mut out, None).unwrap();
    keys.into_iter().zip(out).collect()
}

#[test]
fn a_step_is_finished_from_its_file_by_whoever_opens_the_shards() {
    let splits = [
        vec![whole()],
        vec![ShardSet::from(0..3), ShardSet::from(3..8)],
        vec![ShardSet::from(0..4), ShardSet::from(4..6), ShardSet::from(6..8)],
        vec![ShardSet::of([0, 3, 6]), ShardSet::of([1, 2, 7]), ShardSet::of([4, 5])],
    ];
    for applied in 0..=SHARDS {
        for (at, then) in [(0, 0), (0, 1), (1, 2), (2, 0), (2, 1), (0, 3), (2, 3), (3, 1), (3, 3)] {
            let folder = tempfile::tempdir().unwrap();
            killed(folder.path(), 3, applied, &splits[at]);
            let store = Store::open_dir(folder.path()).unwrap();
            for set in &splits[then] {
                let mut own = Shards::open(&store, &schema(), set.clone()).unwrap();
                let found = finish(&store, &mut own, AGGREGATE).unwrap();
                assert_eq!((found.at, found.masks), (4, vec![0b11; 4]));
                assert!(rows(&mut own).values().all(|&sum| sum == 4.0), "{applied} shards, {set}");
                let name = |seq| PushName { pusher: DATA_PUSHERS | 5, incarnation: 9, seq, row: 0 };
                assert!(set.iter().all(|shard| own.has(shard, &name(4)) && !own.has(shard, &name(5))));
                // A second time changes nothing.
                assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap().at, 4);
                assert!(rows(&mut own).values().all(|&sum| sum == 4.0));
            }
        }
    }
}

/// Once a name came back with the last step of its pusher, if the data was closed after the step and its place was
/// given to other data: the file of the step still had it.
#[test]
fn names_of_data_that_was_closed_after_the_last_step_came_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let open = || Shards::open(&store, &schema(), whole()).unwrap();
    let of = |own: &Shards, task| {
        own.pushers().into_iter().filter(|known| known.pusher == DATA_PUSHERS | task).count() as u32
    };
    {
        let mut own = open();
        let mut steps = StepFiles::new(&store, &own);
        steps.write(&own, &sum(0, 100), vec![0b11]).unwrap();
        apply_step(&mut own, &sum(0, 100), AGGREGATE).unwrap();
        steps.applied();
        assert!(of(&own, 5) > 0);
        own.close_pusher(DATA_PUSHERS | 5, 9).unwrap();
        let other = PushName { pusher: DATA_PUSHERS | 6, incarnation: 9, seq: 1, row: 1 };
        (0..SHARDS).for_each(|shard| own.note(shard, &other, 8).unwrap());
        assert_eq!(of(&own, 5), 0);
    }
    let mut own = open();
    let found = finish(&store, &mut own, AGGREGATE).unwrap();
    assert_eq!((found.at, found.masks, of(&own, 5), of(&own, 6) > 0), (1, vec![0b11], 0, true));
    assert!(rows(&mut own).values().all(|&sum| sum == 1.0));
}

/// Nor does it come back if the server was killed between the last row of the step and the mark.
#[test]
fn a_step_that_a_restart_has_finished_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), 2, 3, &[whole()]);
    let store = Store::open_dir(folder.path()).unwrap();
    for _ in 0..2 {
        let mut own = Shards::open(&store, &schema(), whole()).unwrap();
        let found = finish(&store, &mut own, AGGREGATE).unwrap();
        assert_eq!((found.at, &found.masks), (3, &vec![0b11; 3]));
        assert!(rows(&mut own).values().all(|&sum| sum == 3.0));
        StepFiles::new(&store, &own).begin(&own, &found);
        let all = step_files_of(&store, "t").unwrap();
        assert!(all.iter().all(|path| read_step(path).unwrap().unwrap().applied) && all.len() == 2);
    }
}

/// Step files of earlier sets of shards brought back names of data that had been closed, at every start.
#[test]
fn names_of_closed_data_do_not_come_back_with_steps_that_are_long_over() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [ShardSet::from(0..3), ShardSet::from(3..8)];
    killed(folder.path(), 1, SHARDS, &sets);
    // Another number of threads makes more steps. Then the data is closed.
    killed(folder.path(), 4, SHARDS, &[whole()]);
    let store = Store::open_dir(folder.path()).unwrap();
    let open = |set: &ShardSet| Shards::open(&store, &schema(), set.clone()).unwrap();
    {
        let mut own = open(&whole());
        finish(&store, &mut own, AGGREGATE).unwrap();
        own.close_pusher(DATA_PUSHERS | 5, 9).unwrap();
        apply_step(&mut own, &StepSum { notes: Vec::new(), ..sum(5, 100) }, AGGREGATE).unwrap();
    }
    for set in &sets {
        let mut own = open(set);
        finish(&store, &mut own, AGGREGATE).unwrap();
        let known: Vec<_> =
            own.pushers().into_iter().filter(|known| known.pusher == DATA_PUSHERS | 5).collect();
        assert!(known.iter().all(|known| known.closed), "{known:?}");
    }
}

#[test]
fn a_torn_file_also_one_whose_version_is_no_digit_is_of_a_step_that_was_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), 2, 0, &[whole()]);
    let path = folder.path().join("t").join(file_name(&whole(), 0));
    let whole = fs::read(&path).unwrap();
    for at in [0, 7, 8, 16, 30, whole.len() - 1] {
        let mut torn = whole.clone();
        torn[at] ^= 0x80;
        fs::write(&path, torn).unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut own = Shards::open(&store, &schema(), 0..8).unwrap();
        let found = finish(&store, &mut own, AGGREGATE).unwrap();
        // The other file has the workers of the steps before.
        assert_eq!((found.at, found.masks), (2, vec![0b11; 2]));
        assert!(rows(&mut own).values().all(|&sum| sum == 2.0), "byte {at}");
    }
    fs::write(&path, &whole[..20]).unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut own = Shards::open(&store, &schema(), 0..8).unwrap();
    assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap().at, 2);
}

/// A file of another version may have a step that was begun, so the table is not opened without it.
#[test]
fn a_file_of_another_version_is_refused_by_name_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), 2, 3, &[whole()]);
    let path = folder.path().join("t").join(file_name(&whole(), 0));
    let ours = fs::read(&path).unwrap();
    for version in *b"2346" {
        let mut other = ours.clone();
        other[7] = version;
        fs::write(&path, &other).unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut own = Shards::open(&store, &schema(), whole()).unwrap();
        let why = finish(&store, &mut own, AGGREGATE).unwrap_err();
        assert!(
            why.contains(&path.display().to_string()) && why.contains("run the gannet that wrote it"),
            "{why}"
        );
        assert_eq!(fs::read(&path).unwrap(), other);
    }
    fs::write(&path, ours).unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut own = Shards::open(&store, &schema(), whole()).unwrap();
    assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap().at, 3);
}

/// A step was left out in a shard that had been opened less often than the other shards of the step.
#[test]
fn a_step_is_finished_in_shards_that_were_opened_less_often_than_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    drop(Shards::open(&store, &schema(), whole()).unwrap());
    // The second half of the shards could not be opened, twice.
    (0..2).for_each(|_| drop(Shards::open(&store, &schema(), 0..4).unwrap()));
    drop(store);
    killed(folder.path(), 1, 0, &[whole()]);
    let store = Store::open_dir(folder.path()).unwrap();
    for range in [0..4, 4..8] {
        let mut own = Shards::open(&store, &schema(), range.clone()).unwrap();
        assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap().at, 2, "{range:?}");
        assert!(rows(&mut own).values().all(|&sum| sum == 2.0), "{range:?}");
    }
}

#[test]
fn images_that_were_made_anew_have_nothing_to_do_with_it() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), 1, 0, &[whole()]);
    for number in 0..SHARDS {
        fs::remove_file(folder.path().join(format!("t/shard-{number:04}.image"))).unwrap();
    }
    fs::remove_file(folder.path().join("TABLES")).unwrap(); // else the loss would be named
    let store = Store::open_dir(folder.path()).unwrap();
    // The new images are opened more often than the old ones: they still do not count as the old ones.
    let origin = Origin { identity: TableIdentity::NONE, seed: 9 };
    (0..4).for_each(|_| drop(Shards::open_as(&store, &schema(), 0..8, &origin).unwrap()));
    let mut own = Shards::open_as(&store, &schema(), 0..8, &origin).unwrap();
    assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap(), RecoveredSteps::default());
    assert_eq!(own.stats().rows, 0);
    drop(own);
    // In memory there is nothing to finish.
    let store = Store::memory();
    let mut own = Shards::open(&store, &schema(), 0..8).unwrap();
    StepFiles::new(&store, &own).write(&own, &sum(0, 10), vec![1]).unwrap();
    assert_eq!(finish(&store, &mut own, AGGREGATE).unwrap(), RecoveredSteps::default());
}

/// A worker of two that keep step over some shards.
fn joiner(rank: u32) -> Joiner {
    Joiner { rank, pusher: u64::from(rank) + 1, incarnation: 1, session: rank }
}

/// Two workers make the steps from `from` on, with all keys of these shards, as if no push had been acknowledged.
fn go_on(shards: &mut Shards, found: &RecoveredSteps, from: u64, to: u64) {
    let mode = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Mean });
    let timeout = Duration::from_secs(9);
    let member = SyncConfig { rank: 0, workers: 2, mode, worker_timeout: timeout, strict: false };
    let mut clocks = Clocks::new(&member, found.at);
    let mut sums = StepSums::after(found);
    for rank in 0..2 {
        clocks.join(joiner(rank), Some(from), sums.entry()).unwrap();
        sums.join(rank, from, false);
    }
    for step in from..to {
        for rank in 0..2 {
            let StepSum { write, mut keys, mut values, .. } = sum(step, 100);
            keys.retain(|&key| shards.set().contains(shard(key)));
            values.truncate(keys.len());
            let push = IncomingPush { write, keys: &keys, values: &values, name: None, total: 0, ends: &[] };
            assert_eq!(sums.store(rank, step, &push), StepAdmission::Kept);
            sums.tick(rank, step, step + 1, false);
            clocks.tick(rank, step + 1);
        }
        let how = StepMerge { merge: Merge::Mean, floats: |_| 1, shards: SHARDS };
        while let NextStep::Step(step) = sums.next(&clocks, 2, &how, |_, _| false) {
            match step {
                Some(sum) => {
                    apply_step(shards, &sum, AGGREGATE).unwrap();
                    sums.applied();
                }
                None => sums.pass(&clocks),
            }
        }
    }
    assert_eq!(sums.at(), to);
}

/// Steps of the shards that were behind were lost: the thread went on where the furthest shard was.
#[test]
fn a_thread_with_shards_of_two_stands_where_the_one_behind_was_and_doubles_nothing_of_the_other() {
    for at in [1, 4, 6] {
        for (first, second) in [(4, 2), (2, 4), (3, 2), (0, 1), (3, 3)] {
            let (a, b) = (ShardSet::from(0..at), ShardSet::from(at..SHARDS));
            let splits = [
                vec![whole()],
                vec![ShardSet::from(0..3), ShardSet::from(3..8)],
                vec![ShardSet::from(0..2), ShardSet::from(2..5), ShardSet::from(5..8)],
                vec![ShardSet::of([0, 2, 7]), ShardSet::of([1, 3, 4, 5, 6])],
                vec![a.clone(), b.clone()],
            ];
            for split in splits {
                let folder = tempfile::tempdir().unwrap();
                killed(folder.path(), first, SHARDS, std::slice::from_ref(&a));
                killed(folder.path(), second, SHARDS, std::slice::from_ref(&b));
                let store = Store::open_dir(folder.path()).unwrap();
                for set in split {
                    let mut own = Shards::open(&store, &schema(), set.clone()).unwrap();
                    let found = finish(&store, &mut own, AGGREGATE).unwrap();
                    let reached = |shard: u32| 1 + if a.contains(shard) { first } else { second };
                    let (low, high) = (set.iter().map(reached).min(), set.iter().map(reached).max());
                    assert_eq!(Some(found.at), low, "{set}, cut at {at}");
                    assert_eq!(found.masks, vec![0b11; found.at as usize], "{set}, cut at {at}");
                    assert_eq!(Some(StepSums::after(&found).entry()), high, "{set}, cut at {at}");
                    go_on(&mut own, &found, found.at, 7);
                    assert!(rows(&mut own).values().all(|&sum| sum == 7.0), "{set}, cut at {at}");
                }
            }
        }
    }
}
