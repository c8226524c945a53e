//! The commands of a shard, and the one place where rows change.
//!
//! A command is one change of a shard. There are three forms:
//! - a part of a push, of a deletion, or of a program: what lies between
//!   [`begin_part`](Shard::begin_part) and [`end_part`](Shard::end_part);
//! - what is to be remembered of a pusher, such as a fence, a note, its end, or a cursor, and the deletion of a row:
//!   [`apply`](Shard::apply);
//! - rows and deletions of a checkpoint ([`restore`](crate::table::cuts::restore)).
//!
//! A command takes the shard's next number before it changes anything, and each row that it changes gets that
//! number as its version. So the version of a row is the command at which the row last changed. A key that occurs
//! twice in a part makes the rest of the part a command of its own: two states of a row never have the same version.
//!
//! Every change of a row passes through [`write_row`](Shard::write_row), [`insert_row`](Shard::insert_row) or
//! [`delete_row`](Shard::delete_row). They arm the journal, save a row that a cut still needs
//! ([`cut`](crate::table::cuts::cut)), and note which page of slots has changed.

use crate::error::{GrowError, PushError};
use crate::hash::hash;
use crate::image::layout::*;
use crate::index::expansion;
use crate::index::hash_index::{self, NONE};
use crate::push_name::CLIENTS;
use crate::table::owned::position::Position;
use crate::table::owned::shard::Shard;
use crate::table::progress::pushers::{PusherEntry, Pushers};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A command that is applied in one call. Parts of pushes are not: their rows are applied one by one.
pub(crate) enum ShardCommand {
    /// Remembers this of a pusher, in place of what the shard knew of it. The version is filled in.
    Remember(PusherEntry),
    /// Deletes the row of a key.
    Delete(u64),
}

impl Shard {
    /// Applies a command under the journal. Returns whether there was something to change: a key may have no row.
    ///
    /// # Errors
    /// There is no space to remember a new pusher. The shard is as before.
    pub(crate) fn apply(&mut self, command: ShardCommand) -> Result<bool, PushError> {
        let changed = match command {
            ShardCommand::Remember(entry) => {
                let known = self.pushers.find(entry.pusher);
                let forgets = if entry.pusher == CLIENTS { entry.incarnation } else { 0 };
                let place = known.map_or_else(|| self.place(forgets), Ok)?;
                if known.is_none() {
                    self.pushers.put(place, entry.pusher);
                }
                let version = self.begin_command();
                self.store_entry(&PusherEntry { version, ..entry }, place, false);
                true
            }
            ShardCommand::Delete(key) => {
                self.begin_command();
                self.delete_row(key)
            }
        };
        self.journal.settle(&self.image);
        Ok(changed)
    }

    /// Remembers of pushers what the owner of this copy does, in the same places: a new pusher gets the first place
    /// whose pusher needs it no more.
    pub(crate) fn set_pushers(
        &mut self,
        entries: impl Iterator<Item = PusherEntry>,
    ) -> Result<(), PushError> {
        let (mut used, version) = (0, self.command);
        for entry in entries {
            let held = self.image.hold_pusher(used);
            held.map_err(|error| PushError::of_growth(self.number, error))?;
            self.store_entry(&PusherEntry { version, ..entry }, used, false);
            used += 1;
        }
        self.journal.settle(&self.image);
        self.image.word(PUSHERS_USED).store(used as u64, Release);
        self.pushers = Pushers::load(&self.image);
        Ok(())
    }

    /// Takes the number of the next command.
    #[inline(always)]
    pub(crate) fn begin_command(&mut self) -> u64 {
        self.command += 1;
        self.image.word(COMMAND).store(self.command, Release);
        self.plain = ((self.last_mark + 1) << 2, (self.command - self.last_mark - 1) << 2);
        self.command
    }

    /// Raises the number of the last command: the next command gets a higher number than `least`.
    pub(crate) fn raise_command(&mut self, least: u64) {
        if self.command < least {
            if self.skipped.1 != self.command {
                self.skipped.0 = self.command;
            }
            self.skipped.1 = least;
            self.command = least;
            self.image.word(COMMAND).store(least, Release);
        }
    }

    /// The number of the last command up to `before` that changed something. `before` is the current number or that of
    /// the last command.
    pub(crate) fn last_change(&self, before: u64) -> u64 {
        if before == self.skipped.1 { self.skipped.0 } else { before }
    }

    /// The shard's place in its history.
    pub(crate) fn position(&self) -> Position {
        Position {
            table: self.identity().uid,
            shard: self.number,
            birth: self.birth(),
            epoch: self.image.word(EPOCH).load(Relaxed),
            command: self.command,
        }
    }

    /// Called before the row in a slot changes or goes, if the row has the current command's version or has not changed
    /// since the last mark.
    #[cold]
    #[inline(never)]
    fn before_change(&mut self, slot: u32, version: u64) {
        if version == self.command {
            self.begin_command();
        }
        if version <= self.last_mark {
            self.note_row(slot);
            self.save_for_cuts(slot);
            self.pages.raise(slot, self.command);
        }
    }

    /// Notes in the checksums of the image that the row in a slot changes. Rows that have changed in this life are
    /// noted.
    #[inline]
    fn note_row(&mut self, slot: u32) {
        if let Some(sums) = &mut self.checksums {
            self.image.note_row(sums, slot);
        }
    }

    /// Writes the first `floats` floats of the row in `slot`, as one step of the journal. Without `JOURNAL`, the caller
    /// knows that the journal is off.
    #[inline(always)]
    pub(crate) fn write_row<const JOURNAL: bool>(
        &mut self,
        slot: u32,
        floats: usize,
        write: impl FnOnce(&mut [f32]),
    ) {
        let before = self.image.row(slot).version();
        let (from, length) = self.plain;
        if before.wrapping_sub(from) >= length {
            // The whole write is apart: a call in the middle of the hot path would cost every row its registers.
            return self.write_after_change::<JOURNAL>(slot, floats, before >> 2, write);
        }
        self.write_step::<JOURNAL>(slot, floats, write);
    }

    /// [`write_row`](Self::write_row), for a row that needs [`before_change`](Self::before_change).
    #[cold]
    #[inline(never)]
    fn write_after_change<const JOURNAL: bool>(
        &mut self,
        slot: u32,
        floats: usize,
        before: u64,
        write: impl FnOnce(&mut [f32]),
    ) {
        self.before_change(slot, before);
        self.write_step::<JOURNAL>(slot, floats, write);
    }

    #[inline(always)]
    fn write_step<const JOURNAL: bool>(&mut self, slot: u32, floats: usize, write: impl FnOnce(&mut [f32])) {
        if JOURNAL {
            self.journal.arm_row(&mut self.image, slot, 16 + floats * 4);
        }
        let command = self.command;
        self.image.row(slot).write(floats, command, write);
        self.journal.done();
    }

    /// Puts a row of the owner into this copy, as a part of the current command. A row may be put twice in one command:
    /// nobody reads a copy.
    pub(crate) fn put_row(&mut self, key: u64, row: &[f32]) -> Result<(), PushError> {
        match self.find(key) {
            NONE => {
                self.insert_row(key, row)?;
            }
            slot => {
                self.note_row(slot);
                self.write_step::<true>(slot, row.len(), |to| to.copy_from_slice(row));
                self.pages.raise(slot, self.command);
            }
        }
        Ok(())
    }

    /// Deletes a row from this copy that the owner has not, as a part of the current command.
    pub(crate) fn remove_row(&mut self, key: u64) {
        let slot = self.find(key);
        if slot != NONE {
            self.pages.raise(slot, self.command);
            self.free_row(key, slot);
        }
    }

    /// Inserts a row with these floats, as one step.
    #[inline(never)]
    pub(crate) fn insert_row(&mut self, key: u64, row: &[f32]) -> Result<u32, PushError> {
        let shard = self.number;
        let refuse = |error| PushError::of_growth(shard, error);
        let h = hash(key);
        let home = self.geometry.home(h);
        hash_index::prepare_insert(&mut self.image, home).map_err(refuse)?;
        let free = self.image.word(FREE_HEAD).load(Relaxed);
        let high = self.image.word(HIGH_WATER).load(Relaxed);
        let slot = if free != 0 { free as u32 - 1 } else { high as u32 };
        if slot >= self.image.slots() {
            let bytes = (slot as usize + 1) * (self.image.row_offset(1) - self.image.row_offset(0));
            self.image.grow(Region::Slab, bytes).map_err(refuse)?;
            if slot >= self.image.slots() {
                return Err(refuse(GrowError::Slots));
            }
        }
        self.pages.hold(slot);
        self.arm_slot(slot);
        if free != 0 {
            let next = self.image.row(slot).key();
            self.image.word(FREE_HEAD).store(next, Release);
        } else {
            self.image.word(HIGH_WATER).store(high + 1, Release);
        }
        crate::kill_point!();
        let command = self.command;
        let mut r = self.image.row(slot);
        r.set_key(key);
        r.write(row.len(), command, |floats| floats.copy_from_slice(row));
        hash_index::insert_key(&mut self.image, &mut self.journal, home, h, slot);
        crate::kill_point!();
        let live = self.live();
        self.image.word(LIVE_ROWS).store(live + 1, Release);
        expansion::expand_if_full(&mut self.image, &mut self.journal, &mut self.geometry, &mut self.moved);
        self.journal.done();
        self.pages.raise(slot, command);
        Ok(slot)
    }

    /// Deletes the row of `key`, as one step, and records the deletion. Returns `false` when there is no row.
    pub(crate) fn delete_row(&mut self, key: u64) -> bool {
        let slot = self.find(key);
        if slot == NONE {
            return false;
        }
        let before = self.image.row(slot).version() >> 2;
        self.before_change(slot, before);
        self.free_row(key, slot);
        true
    }

    /// Frees the slot of a key's row, as one step, and records the deletion.
    fn free_row(&mut self, key: u64, slot: u32) {
        let h = hash(key);
        self.arm_slot(slot);
        let home = self.geometry.home(h);
        hash_index::remove_key(&mut self.image, &mut self.journal, home, h, slot);
        crate::kill_point!();
        let next = self.image.word(FREE_HEAD).load(Relaxed);
        self.image.row(slot).free(self.command, next);
        crate::kill_point!();
        self.image.word(FREE_HEAD).store(u64::from(slot) + 1, Release);
        let live = self.live();
        self.image.word(LIVE_ROWS).store(live.saturating_sub(1), Release);
        self.record_deletion(key);
        self.journal.done();
    }

    /// Arms a step that takes a slot into use or frees it: it changes counters of the image, the row's head, and
    /// buckets, which the step logs as it goes.
    fn arm_slot(&mut self, slot: u32) {
        self.note_row(slot);
        if let Some(sums) = &mut self.checksums {
            self.image.note_index(sums);
        }
        self.journal.begin();
        self.journal.log(&mut self.image, HOT, HOT_BYTES);
        let head = self.image.row_offset(slot);
        self.journal.log(&mut self.image, head, 16);
        self.journal.arm(&self.image);
    }
}
