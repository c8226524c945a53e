//! Watched keys: a reading returns exactly the keys that have changed, through pushes, deletions, reused slots and
//! images that are opened again, with pushes between its slices. Cuts go on meanwhile.

use super::cut::{Action, SHARDS, Table, action, cut, positions};
use gannet_core::limits::DELETIONS_MAX;
use gannet_core::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// A reader, and what it knows of each key: `None` for no row.
#[derive(Default)]
struct Reader {
    watched: WatchedKeys,
    keys: Vec<u64>,
    known: HashMap<u64, Option<Vec<f32>>>,
    /// The keys that this reading has returned.
    returned: HashSet<u64>,
    visits: usize,
}

impl Reader {
    fn watch(&mut self, keys: &[u64]) {
        self.watched.extend(keys);
        self.keys.extend_from_slice(keys);
    }

    /// Reads a slice. Returns whether the reading is over.
    fn read(&mut self, table: &mut Table, visits: usize, most: usize) -> bool {
        let (mut out, mut changed) = (vec![0.0; most], ChangedKeys::default());
        let slice = table
            .shards
            .read_changes(&mut self.watched, Read::State, visits, &mut out, &mut changed)
            .unwrap();
        assert!(slice.visits <= visits && changed.len() <= most);
        self.visits += slice.visits;
        for ((number, has_row), row) in changed.iter().zip(out.chunks(1)) {
            let key = self.keys[number as usize];
            assert_eq!(table.rows.get(&key).map(|row| &row[..]), has_row.then_some(row));
            self.known.insert(key, has_row.then(|| row.to_vec()));
            self.returned.insert(key);
        }
        slice.last
    }

    /// Reads all slices. Returns the keys that came, in ascending order.
    fn finish(&mut self, table: &mut Table) -> Vec<u64> {
        while !self.read(table, 1000, 1000) {}
        let mut returned: Vec<u64> = self.returned.drain().collect();
        returned.sort_unstable();
        returned
    }
}

/// The keys of an action that change: all that are pushed, and those whose row is deleted.
fn changes(table: &Table, action: &Action) -> Vec<u64> {
    let has_row = |key: &u64| table.rows.contains_key(key);
    match action {
        Action::Add(keys, _) => keys.clone(),
        Action::Delete(keys) => keys.iter().copied().filter(has_row).collect(),
        Action::Free(key) => [*key].into_iter().filter(has_row).collect(),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Act(Action),
    Watch(Vec<u64>),
    Read { visits: usize, most: usize },
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => action().prop_map(Step::Act),
        1 => prop::collection::vec(0u64..400, 1..40).prop_map(Step::Watch),
        8 => (1usize..80, 1usize..30).prop_map(|(visits, most)| Step::Read { visits, most }),
        1 => Just(Step::Cut),
    ]
}

proptest! {
    /// A reading returns the keys that changed between the beginning of the reading before and its own. It returns no
    /// key that has not changed since the reading before began. In the end the reader knows every row.
    #[test]
    fn a_reading_returns_what_has_changed(steps in prop::collection::vec(step(), 1..120), reopen in any::<bool>()) {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut table = Table::open(&store, 1);
        if reopen {
            // Slots from before the table was opened.
            (0..400).step_by(3).for_each(|key| table.act(&Action::Add(vec![key], 1)));
            table = table.reopen(&store);
        }
        let mut reader = Reader::default();
        // What changed since the reading before began until this one began, and since this one began.
        let (mut due, mut later) = (HashSet::new(), HashSet::new());
        // The keys that were watched when the reading before was over.
        let mut old = HashSet::new();
        for step in steps {
            match step {
                Step::Act(action) => {
                    let changed = changes(&table, &action);
                    match reader.watched.is_between_readings() {
                        true => due.extend(changed),
                        false => later.extend(changed),
                    }
                    table.act(&action);
                }
                Step::Watch(keys) => reader.watch(&keys),
                Step::Cut => drop(table.shards.mark_cut(CutReader::Checkpoint, &[])),
                Step::Read { visits, most } => {
                    if reader.read(&mut table, visits, most) {
                        let returned = std::mem::take(&mut reader.returned);
                        let now: HashSet<u64> = reader.keys.iter().copied().collect();
                        for key in &now {
                            if !old.contains(key) || due.contains(key) {
                                prop_assert!(returned.contains(key), "key {} did not come", key);
                            }
                        }
                        // A key that is watched twice may have come for its second number.
                        let twice = reader.keys.len() > now.len();
                        for key in &returned {
                            let changed = due.contains(key) || later.contains(key);
                            prop_assert!(changed || !old.contains(key) || twice, "key {} has not changed", key);
                        }
                        (old, due) = (now, std::mem::take(&mut later));
                    }
                }
            }
        }
        reader.finish(&mut table);
        reader.finish(&mut table);
        for key in &reader.keys {
            prop_assert_eq!(reader.known[key].as_ref(), table.rows.get(key), "key {}", key);
        }
    }
}

#[test]
fn a_key_comes_again_when_its_deletion_is_forgotten() {
    let mut table = Table::open(&Store::memory(), 1);
    let others: Vec<u64> =
        (1_000..).filter(|&key| shard_of(hash(key), SHARDS) == 0).take(DELETIONS_MAX).collect();
    let in_shard = |of: u32| (0..1_000).filter(move |&key| shard_of(hash(key), SHARDS) == of);
    let [a, b]: [u64; 2] = in_shard(0).take(2).collect::<Vec<_>>().try_into().unwrap();
    let elsewhere = in_shard(1).next().unwrap();
    let mut reader = Reader::default();
    let mut keys = vec![a, b, elsewhere];
    reader.watch(&keys);
    keys.sort_unstable();
    assert_eq!(reader.finish(&mut table), keys, "three keys without rows");
    // A row that came and went in between: its reader may have seen it.
    table.push(Write::Gradient, &[a], 1.0);
    table.push(Write::Delete, &[a], 0.0);
    assert_eq!(reader.finish(&mut table), [a]);
    assert!(reader.finish(&mut table).is_empty());
    // The ring of the shard forgets such a deletion. Then all its keys without rows come.
    table.push(Write::Gradient, &[a], 1.0);
    table.push(Write::Gradient, &others, 1.0);
    table.push(Write::Delete, &[a], 0.0);
    table.push(Write::Delete, &others, 0.0);
    let mut both = [a, b];
    both.sort_unstable();
    assert_eq!(reader.finish(&mut table), both);
    assert!(reader.finish(&mut table).is_empty());
}

/// A reader that watches keys sets marks all the time. A checkpoint finds the changes since its last cut nevertheless.
#[test]
fn an_increment_stays_one_while_keys_are_watched() {
    let mut table = Table::open(&Store::memory(), 1);
    table.push(Write::Gradient, &(0..10_000).collect::<Vec<_>>(), 1.0);
    let (full, rows) = cut(&mut table, &[]);
    assert_eq!(rows.len(), 10_000);
    let mut reader = Reader::default();
    reader.watch(&[3, 4, 5]);
    reader.finish(&mut table);
    for round in 0..500 {
        table.push(Write::Gradient, &[3 + round % 2, 6_000 + round], 1.0);
        assert_eq!(reader.finish(&mut table), [3 + round % 2]);
    }
    let (delta, rows) = cut(&mut table, &positions(&full));
    assert!(delta.iter().all(|cut| cut.from > 0), "an increment");
    assert_eq!(rows.len(), 502);
}

/// A reading visits the watched keys on pages that have changed, and passes over other pages.
#[test]
fn a_reading_skips_what_has_not_changed() {
    let mut table = Table::open(&Store::memory(), 1);
    for from in (0..200_000).step_by(50_000) {
        table.push(Write::Gradient, &(from..from + 50_000).collect::<Vec<_>>(), 1.0);
    }
    let mut reader = Reader::default();
    reader.watch(&(0..100_000).collect::<Vec<_>>());
    assert_eq!(reader.finish(&mut table).len(), 100_000);
    // Keys that nobody watches, and one that is watched.
    table.push(Write::Gradient, &(150_000..200_000).collect::<Vec<_>>(), 1.0);
    table.push(Write::Gradient, &[7], 1.0);
    reader.visits = 0;
    assert_eq!(reader.finish(&mut table), [7]);
    assert!(reader.visits < 100_000 / 64 * 3, "{} visits", reader.visits);
}

#[test]
fn a_key_of_another_thread_is_refused() {
    let schema = Schema { shards: SHARDS, ..Schema::scalar("t", gannet_optim::Rule::Add(gannet_optim::Add)) };
    let mut shards = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    let foreign = (0..).find(|&key| shard_of(hash(key), SHARDS) == 1).unwrap();
    let (mut watched, mut changed, mut out) = (WatchedKeys::default(), ChangedKeys::default(), [0.0; 4]);
    watched.extend(&[foreign]);
    for _ in 0..2 {
        let refused = shards.read_changes(&mut watched, Read::State, 10, &mut out, &mut changed);
        assert!(matches!(refused, Err(PullError::WrongShard { key, .. }) if key == foreign));
    }
}

/// Prints what a reading costs, and beside it a pull that asks for the changes of every key.
#[test]
#[ignore = "a measurement; docs/benchmarks.md has the command"]
fn what_a_reading_costs() {
    const ROWS: u64 = 1_000_000;
    const WATCHED: u64 = 100_000;
    let mut table = Table::open(&Store::memory(), 1);
    let push = |table: &mut Table, keys: &[u64]| {
        keys.chunks(50_000).for_each(|keys| table.push(Write::Gradient, keys, 1.0));
    };
    push(&mut table, &(0..ROWS).map(mix).collect::<Vec<_>>());
    // Every tenth row, so that each page of slots has watched ones.
    let watch: Vec<u64> = (0..WATCHED).map(|i| mix(i * 10)).collect();
    let mut reader = Reader::default();
    reader.watch(&watch);
    reader.finish(&mut table);
    let mut in_order = watch.clone();
    in_order.sort_by_key(|&key| shard_of(hash(key), SHARDS));
    let (mut slots, mut answers, mut out) = (Vec::new(), Vec::new(), vec![0.0; in_order.len()]);
    let mut from = table.shards.snapshot_version();
    for changed in [0, 1_000, ROWS] {
        let (mut reading, mut pull) = (Vec::new(), Vec::new());
        for round in 0..9 {
            push(&mut table, &(0..changed).map(|i| mix((i * 1009 + round) % ROWS)).collect::<Vec<_>>());
            let began = std::time::Instant::now();
            let (mut rows, mut changes) = (vec![0.0; 8192], ChangedKeys::default());
            let mut found = 0;
            while {
                let slice = table.shards.read_changes(
                    &mut reader.watched,
                    Read::State,
                    1 << 15,
                    &mut rows,
                    &mut changes,
                );
                found += changes.len();
                !slice.unwrap().last
            } {}
            reading.push(began.elapsed());
            let began = std::time::Instant::now();
            let cached = vec![CachedVersion::Row(from); in_order.len()];
            slots.clear();
            answers.clear();
            let what = (Read::State, Segments::ALL);
            let (newer, version) = table
                .shards
                .pull_newer(&in_order, &cached, what, &mut out, &mut slots, &mut answers)
                .unwrap();
            pull.push(began.elapsed());
            assert_eq!(newer, found);
            from = version;
        }
        reading.sort();
        pull.sort();
        println!(
            "{changed} of {ROWS} rows changed, {WATCHED} watched: {:?} a reading, {:?} a pull of all keys",
            reading[4], pull[4]
        );
    }
}
