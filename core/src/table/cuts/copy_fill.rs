//! How a copy gets the rows that its owner had before it told commands, while the owner goes on.
//!
//! The owner tells the rows of each shard slot by slot, between its commands. As long as it has not told all of them,
//! it tells the rows that a command has changed in place of the command. So the rows of the copy are always rows of the
//! owner as they are at this point of the commands. At the end the owner tells what the shard remembers of pushers and
//! of keys without rows. From then on it tells commands. Nothing is copied or held back for this, and a cut of the
//! shards may be read meanwhile.

use crate::error::OpenError;
use crate::image::files::store::Store;
use crate::image::layout::FORGOTTEN;
use crate::schema::identity::{ImageOrigin, TableIdentity};
use crate::schema::shard_set::{ShardPlaces, ShardSet};
use crate::schema::table_schema::Schema;
use crate::table::commands::command_record::{
    CommandChange, CommandRecord, PusherRecord, RowStates, ShardMemory,
};
use crate::table::commands::replay::ReplayError;
use crate::table::cuts::copy_state::CopyState;
use crate::table::owned::shards::Shards;
use crate::table::progress::newest_incarnations::Incarnations;
use crate::table::progress::pushers::PusherEntry;
use std::sync::atomic::Ordering::Release;

impl Shards {
    /// Opens empty copies of the shards `births`, each with its owner's birth. They are in memory. They refuse commands
    /// until they are filled ([`fill`](Self::fill)).
    ///
    /// # Errors
    /// As [`open_as`](Self::open_as).
    pub fn open_copies(
        store: &Store,
        schema: &Schema,
        identity: TableIdentity,
        births: &[(u32, u64)],
    ) -> Result<Shards, OpenError> {
        let set = ShardSet::of(births.iter().map(|(shard, _)| *shard));
        let birth = |number| births.iter().find(|(shard, _)| *shard == number).map_or(1, |(_, birth)| *birth);
        let origin = |number| ImageOrigin { identity, birth: birth(number) };
        let mut copies = Shards::open_each(&store.beside(), schema, set, origin)?;
        copies.shards.iter_mut().for_each(|shard| shard.copy = CopyState::Filling(0));
        Ok(copies)
    }

    /// Whether these are copies with all that their owner had told when they last heard of it.
    pub fn are_whole(&self) -> bool {
        self.shards.iter().all(|shard| shard.copy == CopyState::Whole)
    }

    /// Makes these copies of shards of one table the owner of its shards. They have another history from now on, whose
    /// epoch must be above that of the owner before. Of two copies of a shard the first counts.
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 2, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut owner = Shards::open(&Store::memory(), &schema, 0..2)?;
    /// # let births = owner.births();
    /// # let mut copies = Vec::new();
    /// # for shard in 0..2 {
    /// #     let births = [(shard, births[shard as usize])];
    /// #     let mut copy = Shards::open_copies(&Store::memory(), &schema, owner.identity(), &births)?;
    /// #     owner.fill(shard, 0, 1000, 1, |record| copy.replay(record).unwrap());
    /// #     copies.push(copy);
    /// # }
    /// // Two copies, each of a shard of the table.
    /// let owner = Shards::of_copies(copies, 2)?;
    /// assert_eq!((owner.set().numbers(), owner.positions()[0].epoch), (&[0, 1][..], 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A copy does not have all that its owner had told.
    ///
    /// # Panics
    /// When there is no copy, or two are of different tables.
    pub fn of_copies(copies: Vec<Shards>, epoch: u64) -> Result<Shards, ReplayError> {
        let identity = copies[0].identity();
        assert!(copies.iter().all(|copy| copy.identity() == identity), "copies of different tables");
        let mut copies = copies.into_iter();
        let mut all = copies.next().expect("there is a copy");
        all.shards.extend(copies.flat_map(|copy| copy.shards));
        all.shards.sort_by_key(|shard| shard.number);
        all.shards.dedup_by_key(|shard| shard.number);
        all.set = ShardSet::of(all.shards.iter().map(|shard| shard.number));
        all.places = ShardPlaces::of(&all.set, all.schema.shards);
        all.incarnations = Incarnations::load(&all.shards);
        let first = all.shards[0].number;
        for shard in &mut all.shards {
            match shard.copy {
                CopyState::Whole => {}
                CopyState::Filling(_) => return Err(ReplayError::Filling(shard.number)),
                CopyState::Broken => return Err(ReplayError::Broken(shard.number)),
            }
            shard.begin_epoch(epoch);
            shard.served_with(first);
        }
        Ok(all)
    }

    /// Makes one record of the rows of up to `most` slots of a shard from slot `from` (0 at first), and passes it to
    /// `told`. Behind the last slot the record has the shard's memory. `piece`: the number of the record in the fill,
    /// from 1. Returns the slot to continue at; `None` after the shard's memory. While it is not `None`, the copy needs
    /// rows in place of commands ([`ToldShard::states`](crate::ToldShard::states)).
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut owner = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    /// owner.push(&name, Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    ///
    /// let births = [(0, owner.births()[0])];
    /// let mut copy = Shards::open_copies(&Store::memory(), &schema, owner.identity(), &births)?;
    /// let (mut from, mut piece) = (Some(0), 0);
    /// while let Some(slot) = from {
    ///     piece += 1;
    ///     from = owner.fill(0, slot, 1000, piece, |record| copy.replay(record).unwrap());
    /// }
    /// assert!(copy.are_whole());
    /// let mut weights = [0.0; 2];
    /// copy.pull(&[7, 8], Read::Weights, &mut weights, None)?;
    /// assert_eq!(weights, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the shard is not here.
    pub fn fill(
        &mut self,
        shard: u32,
        from: u32,
        most: usize,
        piece: u64,
        told: impl FnOnce(&CommandRecord<'_>),
    ) -> Option<u32> {
        let floats = self.schema.floats();
        let sketch = self.schema.admission.sketch_bytes();
        let shard = self.shard_mut(shard).expect("the shard is here");
        let command = shard.command;
        let previous = shard.last_change(command);
        let number = shard.number;
        let tell = |change| {
            told(&CommandRecord { shard: number, previous, before: command, after: command, change });
        };
        if from < shard.high_water() {
            let (mut keys, mut rows) = (Vec::new(), Vec::new());
            let next = shard.scan(from, most, floats, |key, _, row| {
                keys.push(key);
                rows.extend_from_slice(row);
            });
            tell(CommandChange::Rows(RowStates { piece, keys: &keys, rows: &rows, gone: &[] }));
            return Some(next.unwrap_or(u32::MAX));
        }
        let entries = (0..shard.pushers.len()).map(|place| PusherEntry::load(&shard.image, place));
        let pushers: Vec<PusherRecord> = entries.map(|entry| PusherRecord::of(&entry)).collect();
        let sketch = shard.sketch_bytes(sketch);
        tell(CommandChange::Memory(ShardMemory { piece, pushers: &pushers, sketch: &sketch }));
        None
    }

    /// Puts rows of the owner into a copy that is being filled.
    pub(crate) fn replay_rows(&mut self, number: u32, states: &RowStates<'_>) -> Result<(), ReplayError> {
        let Shards { schema, places, shards, .. } = self;
        let (floats, shard) = (schema.floats(), &mut shards[places.place(number) as usize]);
        let &RowStates { keys, rows, gone, .. } = states;
        if rows.len() != keys.len() * floats {
            return Err(ReplayError::Rows(number));
        }
        for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
            if !schema.is_sound_row(key, row) {
                return Err(ReplayError::Rows(number));
            }
            shard.put_row(key, row)?;
        }
        gone.iter().for_each(|&key| shard.remove_row(key));
        shard.journal.settle(&shard.image);
        Ok(())
    }

    /// Ends the fill of a copy.
    pub(crate) fn replay_memory(&mut self, number: u32, memory: &ShardMemory<'_>) -> Result<(), ReplayError> {
        let Shards { schema, places, shards, incarnations, .. } = self;
        let shard = &mut shards[places.place(number) as usize];
        shard.set_pushers(memory.pushers.iter().map(PusherRecord::entry))?;
        memory.pushers.iter().for_each(|record| incarnations.raise(record.pusher, record.incarnation));
        if !shard.set_sketch(schema, memory.sketch) {
            return Err(ReplayError::Rows(number));
        }
        // The owner may have deleted rows before that were not here yet. The ring knows nothing of them.
        shard.image.word(FORGOTTEN).store(shard.command, Release);
        shard.copy = CopyState::Whole;
        Ok(())
    }
}
