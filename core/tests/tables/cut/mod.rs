//! Cuts: a reader gets every row as it was at the mark, once, whatever the shard does meanwhile. A chain of a full cut
//! and deltas gives the same table.

mod readers;

use gannet_core::limits::DELETIONS_MAX;
use gannet_core::*;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::collections::HashMap;

pub(super) const SHARDS: u32 = 4;

fn schema(dim: u32) -> Schema {
    Schema { shards: SHARDS, dim, ..Schema::scalar("t", Rule::Add(Add)) }
}

pub(super) type Rows = HashMap<u64, Vec<f32>>;

/// A table, and a model of its rows.
pub(super) struct Table {
    pub(super) shards: Shards,
    dim: usize,
    seq: u64,
    pub(super) rows: Rows,
}

impl Table {
    pub(super) fn open(store: &Store, dim: u32) -> Table {
        let shards = Shards::open(store, &schema(dim), 0..SHARDS).unwrap();
        Table { shards, dim: dim as usize, seq: 0, rows: Rows::new() }
    }

    pub(super) fn push(&mut self, write: Write, keys: &[u64], value: f32) {
        let mut keys = keys.to_vec();
        keys.sort_by_key(|&key| shard_of(hash(key), SHARDS));
        self.seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq: self.seq, row: 0 };
        let values = vec![value; if write == Write::Delete { 0 } else { keys.len() * self.dim }];
        self.shards.push(&name, write, &keys, None, &values).unwrap();
        for key in keys {
            match write {
                Write::Delete => drop(self.rows.remove(&key)),
                _ => self.rows.entry(key).or_insert(vec![0.0; self.dim]).iter_mut().for_each(|x| *x += value),
            }
        }
    }

    /// Closes the table and opens it again.
    pub(super) fn reopen(self, store: &Store) -> Table {
        let Table { shards, dim, rows, seq } = self;
        drop(shards);
        Table { rows, seq, ..Table::open(store, dim as u32) }
    }

    pub(super) fn act(&mut self, action: &Action) {
        match action {
            Action::Add(keys, value) => self.push(Write::Gradient, keys, f32::from(*value)),
            Action::Delete(keys) => self.push(Write::Delete, keys, 0.0),
            Action::Free(key) => {
                assert_eq!(self.shards.free(*key), self.rows.remove(key).is_some());
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Add(Vec<u64>, u8),
    Delete(Vec<u64>),
    Free(u64),
}

pub(super) fn action() -> impl Strategy<Value = Action> {
    let keys = || prop::collection::vec(0u64..400, 1..60);
    prop_oneof![
        4 => (keys(), 1u8..9).prop_map(|(keys, value)| Action::Add(keys, value)),
        1 => keys().prop_map(Action::Delete),
        1 => (0u64..400).prop_map(Action::Free),
    ]
}

/// What a reader has of a cut. Each row must come once.
#[derive(Default)]
struct Reader {
    rows: Rows,
    ended: [bool; SHARDS as usize],
}

impl Reader {
    fn read(&mut self, table: &mut Table, shard: u32, most: usize) {
        let dim = table.dim;
        let rows = &mut self.rows;
        let progress = table.shards.read_cut(CutReader::Checkpoint, shard, most, |keys, floats| {
            assert_eq!(keys.len() * dim, floats.len());
            for (&key, row) in keys.iter().zip(floats.chunks(dim)) {
                assert_eq!(shard_of(hash(key), SHARDS), shard);
                assert_eq!(rows.insert(key, row.to_vec()), None, "key {key} came twice");
            }
        });
        self.ended[shard as usize] = progress == CutProgress::End;
    }

    fn finish(mut self, table: &mut Table, most: usize) -> Rows {
        for shard in 0..SHARDS {
            while !self.ended[shard as usize] {
                self.read(table, shard, most);
            }
        }
        assert_eq!(table.shards.saved_bytes(CutReader::Checkpoint), 0);
        self.rows
    }
}

/// Applies a cut to a copy of the table: deletions first, then rows.
fn apply(copy: &mut Rows, cuts: &[MarkedShard], rows: Rows) {
    for cut in cuts {
        if cut.from == 0 {
            copy.retain(|&key, _| shard_of(hash(key), SHARDS) != cut.position.shard);
        }
        cut.deletions.iter().for_each(|key| drop(copy.remove(key)));
    }
    copy.extend(rows);
}

proptest! {
    /// Cuts are marked and read in slices between pushes and deletions. A copy that takes each cut equals the table at
    /// the mark. Cuts are full or deltas, and some are given up. Others watch keys meanwhile. The table closes and
    /// opens again in between.
    #[test]
    fn a_copy_that_takes_cuts_equals_the_table(
        rounds in prop::collection::vec(
            (
                prop::collection::vec(action(), 0..12),
                prop::collection::vec((action(), 0..SHARDS, 1usize..40, any::<bool>()), 0..12),
                prop_oneof![4 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))],
                any::<bool>(),
            ),
            1..6,
        ),
        dim in 1u32..4,
    ) {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let mut table = Table::open(&store, dim);
        let (mut copy, mut from) = (Rows::new(), Vec::new());
        for (before, during, other, reopen) in rounds {
            before.iter().for_each(|action| table.act(action));
            if other == Some(true) {
                from.clear(); // a full cut
            }
            let cuts = table.shards.mark_cut(CutReader::Checkpoint, &from);
            let (want, mut reader) = (table.rows.clone(), Reader::default());
            let mut watched = WatchedKeys::default();
            watched.extend(&(0..100).collect::<Vec<_>>());
            for (action, shard, most, watches) in &during {
                table.act(action);
                if *watches {
                    let (mut out, mut changed) = (vec![0.0; 400], ChangedKeys::default());
                    table.shards.read_changes(&mut watched, Read::State, 90, &mut out, &mut changed).unwrap();
                }
                reader.read(&mut table, *shard, *most);
            }
            if other == Some(false) {
                table.shards.end_cut(CutReader::Checkpoint); // the next cut begins where the last whole one was
                prop_assert_eq!(table.shards.saved_bytes(CutReader::Checkpoint), 0);
            } else {
                apply(&mut copy, &cuts, reader.finish(&mut table, 7));
                prop_assert_eq!(&copy, &want);
                from = cuts.iter().map(|cut| cut.position).collect();
            }
            if reopen {
                table = table.reopen(&store);
            }
        }
    }
}

/// Marks a cut, and returns the cuts and how many rows they have.
pub(super) fn cut(table: &mut Table, from: &[Position]) -> (Vec<MarkedShard>, Rows) {
    let cuts = table.shards.mark_cut(CutReader::Checkpoint, from);
    let rows = Reader::default().finish(table, 1000);
    (cuts, rows)
}

pub(super) fn positions(cuts: &[MarkedShard]) -> Vec<Position> {
    cuts.iter().map(|cut| cut.position).collect()
}

#[test]
fn who_is_behind_the_ring_of_deletions_gets_a_full_cut() {
    let mut table = Table::open(&Store::memory(), 1);
    let keys: Vec<u64> = (0..5 * DELETIONS_MAX as u64).collect();
    table.push(Write::Gradient, &keys[..50_000], 1.0);
    table.push(Write::Gradient, &keys[50_000..], 1.0);
    let (full, _) = cut(&mut table, &[]);
    // As many deletions as each shard's ring remembers.
    let in_shard = |of: u32| keys.iter().copied().filter(move |&key| shard_of(hash(key), SHARDS) == of);
    let gone: Vec<u64> = (0..SHARDS).flat_map(|shard| in_shard(shard).take(DELETIONS_MAX)).collect();
    gone.chunks(50_000).for_each(|keys| table.push(Write::Delete, keys, 0.0));
    let (delta, rows) = cut(&mut table, &positions(&full));
    assert!(delta.iter().all(|cut| cut.from > 0 && cut.deletions.len() == DELETIONS_MAX), "a delta");
    assert!(rows.is_empty());
    // One more in shard 0: its ring has forgotten one. The others still know all.
    let more = in_shard(0).nth(DELETIONS_MAX).unwrap();
    table.push(Write::Delete, &[more], 0.0);
    let (delta, rows) = cut(&mut table, &positions(&full));
    assert_eq!(delta.iter().map(|cut| cut.from == 0).collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!(rows.len(), in_shard(0).filter(|key| table.rows.contains_key(key)).count());
    // Who has the cut before it needs only that deletion.
    let (last, _) = cut(&mut table, &positions(&delta));
    assert!(last.iter().all(|cut| cut.from > 0 && cut.deletions.is_empty()));
}

#[test]
fn a_position_of_another_history_is_not_a_base() {
    let mut table = Table::open(&Store::memory(), 1);
    table.push(Write::Gradient, &(0..100).collect::<Vec<_>>(), 1.0);
    let (full, _) = cut(&mut table, &[]);
    let mut stranger = positions(&full);
    stranger.iter_mut().for_each(|p| p.birth ^= 1);
    let mut later = positions(&full);
    later.iter_mut().for_each(|p| p.command += 1000); // commands that this shard never had
    for from in [stranger, later] {
        let (cuts, rows) = cut(&mut table, &from);
        assert!(cuts.iter().all(|cut| cut.from == 0));
        assert_eq!(rows.len(), 100);
    }
}

/// A delta visits only pages of slots that have changed: with `most` rows a slice, few slices find one changed row.
#[test]
fn a_delta_skips_what_has_not_changed() {
    let mut table = Table::open(&Store::memory(), 1);
    for from in (0..200_000).step_by(50_000) {
        table.push(Write::Gradient, &(from..from + 50_000).collect::<Vec<_>>(), 1.0);
    }
    let (full, _) = cut(&mut table, &[]);
    table.push(Write::Gradient, &[3], 1.0);
    table.shards.mark_cut(CutReader::Checkpoint, &positions(&full));
    let (mut slices, mut found) = (0, 0);
    for shard in 0..SHARDS {
        while table.shards.read_cut(CutReader::Checkpoint, shard, 8, |keys, _| found += keys.len())
            == CutProgress::More
        {
            slices += 1;
        }
    }
    assert_eq!(found, 1);
    assert!(slices < 200_000 / 64 / 64, "{slices} slices of 128 visits");
}

#[test]
fn sketches_that_are_merged_admit_no_key_later() {
    let admission = Admission::Count { pushes: 3, sketch_bytes: 4096 };
    let of = |shards| Schema { shards, admission, ..schema(1) };
    let push = |shards: &mut Shards, schema: &Schema, seq: u64, keys: &[u64]| {
        let mut keys = keys.to_vec();
        keys.sort_by_key(|&key| shard_of(hash(key), schema.shards));
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        shards.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()]).unwrap()
    };
    let (keys, old) = ((0..60).collect::<Vec<u64>>(), of(4));
    let mut shards = Shards::open(&Store::memory(), &old, 0..4).unwrap();
    for seq in 1..3 {
        assert_eq!(push(&mut shards, &old, seq, &keys).not_admitted, 60);
    }
    let cuts = shards.mark_cut(CutReader::Checkpoint, &[]);
    for new in [1, 2, 4, 8] {
        let schema = of(new);
        let mut shards = Shards::open(&Store::memory(), &schema, 0..new).unwrap();
        for cut in &cuts {
            // The hash ranges of old and new shards that overlap.
            let old = cut.position.shard;
            for shard in (0..new).filter(|shard| shard * 4 < (old + 1) * new && old * new < (shard + 1) * 4) {
                shards.merge_sketch(shard, &cut.sketch);
            }
        }
        assert_eq!(push(&mut shards, &schema, 3, &keys).applied, 60, "{new} shards");
    }
}

#[test]
fn a_cursor_covers_its_push_and_all_earlier_ones() {
    let mut table = Table::open(&Store::memory(), 1);
    for cursor in [
        Cursor { pusher: 1, incarnation: 4, seq: 9, closed: false },
        Cursor { pusher: 2, incarnation: 3, seq: 0, closed: true },
    ] {
        table.shards.set_cursor(&cursor).unwrap();
    }
    let push = |shards: &mut Shards, pusher, incarnation, seq| {
        let name = PushName { pusher, incarnation, seq, row: 0 };
        let keys: Vec<u64> = [1, 2, 3].into_iter().filter(|&key| shard_of(hash(key), SHARDS) == 0).collect();
        let keys = if keys.is_empty() {
            vec![(0..).find(|&k| shard_of(hash(k), SHARDS) == 0).unwrap()]
        } else {
            keys
        };
        shards.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()])
    };
    let shards = &mut table.shards;
    assert!(matches!(push(shards, 1, 3, 10), Err(PushError::Fenced { .. })));
    assert_eq!(push(shards, 1, 4, 8).unwrap().applied, 0);
    assert_eq!(push(shards, 1, 4, 9).unwrap().applied, 0);
    assert!(push(shards, 1, 4, 10).unwrap().applied > 0);
    assert!(push(shards, 2, 3, 1).unwrap().applied > 0);
    let of = |pusher| shards.push_progress().into_iter().find(|p| p.pusher == pusher).unwrap();
    assert_eq!((of(1).seq, of(1).closed), (10, false));
    assert!(of(1).is_whole());
    // An older cursor changes nothing.
    shards.set_cursor(&Cursor { pusher: 1, incarnation: 4, seq: 9, closed: false }).unwrap();
    assert_eq!(shards.last_push(0, 1), Some(10));
}
