//! A restore: rows of a checkpoint are put into shards as they were saved, with the state of their optimizer.

use crate::error::{PullError, PushError};
use crate::hash::{hash, shard_of};
use crate::index::hash_index::{self, NONE};
use crate::index::resolve::ShardIndex;
use crate::schema::table_schema::Schema;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;

/// How many keys ahead of the current one have their buckets prefetched.
const AHEAD: usize = 16;

/// Why rows cannot be restored. [`Shards::restore_rows`] has an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreRowsError {
    /// The shard cannot take the row: most often there is no memory.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The table's rule cannot have made this row.
    #[error(
        "the row of key {key} in table {table:?} has values that its rule cannot have made (NaN, infinite, or state out \
         of its range)"
    )]
    Unsound {
        /// The table's name.
        table: String,
        /// The row's key.
        key: u64,
    },
}

/// A key on its way to its row.
#[derive(Clone, Copy)]
struct KeyAhead {
    hash: u64,
    /// The index of its shard among the shards here; `NONE` for a shard that is not here.
    owner: u32,
}

/// The shards that a call has changed.
struct Changed(Vec<bool>);

impl Changed {
    /// Begins a command for the first change of a shard.
    #[inline(always)]
    fn begin(&mut self, shard: &mut Shard, owner: u32) {
        if !std::mem::replace(&mut self.0[owner as usize], true) {
            shard.begin_command();
        }
    }

    fn settle(&self, shards: &mut [Shard]) {
        for (shard, _) in shards.iter_mut().zip(&self.0).filter(|(_, changed)| **changed) {
            shard.journal.settle(&shard.image);
        }
    }
}

impl Shards {
    /// Puts rows of a checkpoint into the shards here: `keys`, and [`Schema::floats`] floats for each. A row that is
    /// there already is replaced. Rows of other shards are skipped, so several owners may read one file. The rows pass
    /// no admission and have no push. Returns the number of rows that belong here.
    ///
    /// ```
    /// # use gannet_core::{Read, Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// assert_eq!(shards.restore_rows(&[7, 8], &[1.5, 2.5])?, 2);
    /// assert_eq!(shards.restore_rows(&[8], &[3.5])?, 1);
    /// assert_eq!(shards.restore_deletions(&[7]), 1);
    /// let mut weights = [0.0; 2];
    /// shards.pull(&[7, 8], Read::Weights, &mut weights, None)?;
    /// assert_eq!(weights, [0.0, 3.5]);
    ///
    /// let unsound = shards.restore_rows(&[9], &[f32::NAN]).unwrap_err();
    /// assert!(unsound.to_string().contains("the row of key 9"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Schema::floats`]: crate::Schema::floats
    ///
    /// # Errors
    /// `rows` has another length, a row cannot be one of this table, or there is no space. Rows before it are there.
    pub fn restore_rows(&mut self, keys: &[u64], rows: &[f32]) -> Result<u64, RestoreRowsError> {
        let floats = self.schema.floats();
        let want = keys.len() * floats;
        if rows.len() != want {
            let wrong = PullError::Length { what: "floats of the rows", got: rows.len(), want };
            return Err(PushError::Keys(wrong).into());
        }
        self.restore_each(keys, |schema, shard, found, at| {
            let row = &rows[at * floats..(at + 1) * floats];
            if !schema.is_sound_row(keys[at], row) {
                return Err(RestoreRowsError::Unsound { table: schema.name.clone(), key: keys[at] });
            }
            match found {
                NONE => {
                    shard.insert_row(keys[at], row)?;
                }
                slot => shard.write_row::<true>(slot, floats, |to| to.copy_from_slice(row)),
            }
            Ok(1)
        })
    }

    /// Deletes rows that a later checkpoint no longer has. Keys without a row, and keys of other shards, are skipped.
    /// Returns the number of rows that were there. [`restore_rows`](Self::restore_rows) has an example.
    pub fn restore_deletions(&mut self, keys: &[u64]) -> u64 {
        let deleted = self.restore_each::<PushError>(keys, |_, shard, found, at| {
            Ok(if found == NONE { 0 } else { u64::from(shard.delete_row(keys[at])) })
        });
        deleted.unwrap_or(0)
    }

    /// Calls `change` for each key of a shard here: with the shard, the key's slot ([`NONE`]: it has no row), and the
    /// key's place in `keys`. Returns the sum of what `change` returns.
    #[inline(always)]
    fn restore_each<E>(
        &mut self,
        keys: &[u64],
        mut change: impl FnMut(&Schema, &mut Shard, u32, usize) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let Shards { schema, places, shards, .. } = self;
        let mut changed = Changed(vec![false; shards.len()]);
        let locate = |shards: &[Shard], key: u64| {
            let hash = hash(key);
            let owner = places.place(shard_of(hash, schema.shards));
            match shards.get(owner as usize) {
                Some(shard) => {
                    shard.locate(hash); // prefetches its bucket
                    KeyAhead { hash, owner }
                }
                None => KeyAhead { hash, owner: NONE },
            }
        };
        let mut ring = [KeyAhead { hash: 0, owner: NONE }; AHEAD];
        for (place, &key) in ring.iter_mut().zip(keys) {
            *place = locate(shards, key);
        }
        let mut sum = 0;
        for (at, &key) in keys.iter().enumerate() {
            let KeyAhead { hash, owner } = ring[at % AHEAD];
            if let Some(&next) = keys.get(at + AHEAD) {
                ring[at % AHEAD] = locate(shards, next);
            }
            let Some(shard) = shards.get_mut(owner as usize) else { continue };
            changed.begin(shard, owner);
            let found = hash_index::find_slot(&shard.image, shard.geometry.home(hash), hash, key);
            match change(schema, shard, found, at) {
                Ok(one) => sum += one,
                Err(error) => {
                    changed.settle(shards);
                    return Err(error);
                }
            }
        }
        changed.settle(shards);
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cursor, PushName, Store, Write};
    use gannet_optim::{AdaGrad, Add, Rule};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn all_rows(shards: &mut Shards) -> HashMap<u64, Vec<u32>> {
        let (floats, mut all) = (shards.schema().floats(), HashMap::new());
        for shard in shards.set().clone().iter() {
            let (mut keys, mut rows, mut next) = (Vec::new(), Vec::new(), Some(0));
            while let Some(from) = next {
                next = shards.scan(shard, from, 50, &mut keys, &mut rows);
            }
            for (key, row) in keys.iter().zip(rows.chunks(floats)) {
                let twice = all.insert(*key, row.iter().map(|float| float.to_bits()).collect());
                assert_eq!(twice, None, "key {key} has two rows");
            }
        }
        all
    }

    #[derive(Clone, Debug)]
    enum Change {
        Rows(Vec<(u64, u16)>),
        Deletions(Vec<u64>),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let rows = prop::collection::vec((0..900u64, any::<u16>()), 0..200).prop_map(Change::Rows);
        let deletions = prop::collection::vec(0..900u64, 0..100).prop_map(Change::Deletions);
        prop::collection::vec(prop_oneof![2 => rows, 1 => deletions], 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn restored_shards_hold_what_a_map_holds(
            changes in changes(), log_shards in 0u32..5, from in 0u32..32, durable in any::<bool>(),
        ) {
            let shards = 1 << log_shards;
            let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
            let schema = Schema { dim: 2, shards, ..Schema::scalar("clicks", rule) };
            let folder = tempfile::tempdir().unwrap();
            let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
            let range = from % shards..shards;
            let mut table = Shards::open(&store, &schema, range.clone()).unwrap();
            let mut model = HashMap::new();
            let is_here = |key: u64| range.contains(&shard_of(hash(key), shards));
            for change in &changes {
                match change {
                    Change::Rows(rows) => {
                        let keys: Vec<u64> = rows.iter().map(|(key, _)| *key).collect();
                        let row = |value: u16| [f32::from(value), 1.0, f32::from(value) + 0.5, 2.0];
                        let floats: Vec<f32> = rows.iter().flat_map(|(_, value)| row(*value)).collect();
                        let restored = table.restore_rows(&keys, &floats).unwrap();
                        prop_assert_eq!(restored, keys.iter().filter(|key| is_here(**key)).count() as u64);
                        let here = rows.iter().filter(|(key, _)| is_here(*key));
                        model.extend(here.map(|(key, value)| (*key, row(*value).map(f32::to_bits).to_vec())));
                    }
                    Change::Deletions(keys) => {
                        let gone = keys.iter().filter(|key| model.remove(*key).is_some()).count();
                        prop_assert_eq!(table.restore_deletions(keys), gone as u64);
                    }
                }
            }
            prop_assert_eq!(&all_rows(&mut table), &model);
            if durable {
                drop(table); // as a kill leaves it
                let mut again = Shards::open(&store, &schema, range.clone()).unwrap();
                prop_assert_eq!(&all_rows(&mut again), &model);
            }
        }
    }

    #[test]
    fn a_cut_after_a_restore_holds_every_row_and_pushes_go_on() {
        let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
        let mut shards = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
        shards.restore_rows(&[1, 2, 3, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        shards.set_cursor(&Cursor { pusher: 1, incarnation: 4, seq: 9, closed: false }).unwrap();
        let name = |seq| PushName { pusher: 1, incarnation: 4, seq, row: 0 };
        let old = shards.push(&name(9), Write::Gradient, &[1], None, &[5.0]).unwrap();
        assert_eq!((old.applied, old.duplicate), (0, 1));
        shards.push(&name(10), Write::Gradient, &[1], None, &[5.0]).unwrap();
        shards.mark_cut(crate::CutReader::Checkpoint, &[]);
        let mut rows = Vec::new();
        while shards.read_cut(crate::CutReader::Checkpoint, 0, 10, |keys, floats| {
            rows.extend(keys.iter().copied().zip(floats.to_vec()))
        }) == crate::CutProgress::More
        {}
        rows.sort_unstable_by_key(|(key, _)| *key);
        assert_eq!(rows, [(1, 6.0), (2, 4.0), (3, 3.0)]);
    }

    #[test]
    fn rows_of_a_wrong_length_and_without_memory_are_refused() {
        let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
        let mut shards = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
        let wrong = shards.restore_rows(&[1], &[1.0, 2.0]).unwrap_err();
        assert!(wrong.to_string().contains("floats of the rows"), "{wrong}");
        let growing = crate::GrowthConfig { memory_limit: 4 << 20, clock: None };
        let mut small = Shards::open(&Store::memory_with(growing), &schema, 0..1).unwrap();
        let (keys, rows): (Vec<u64>, Vec<f32>) = (0..1_000_000).map(|key| (key, 1.0)).unzip();
        let full = small.restore_rows(&keys, &rows).unwrap_err();
        assert!(matches!(full, RestoreRowsError::Push(PushError::Limit { .. })), "{full}");
    }
}
