//! Parts of pushes as a shard remembers them: which rows of a part are new, and how many of them were applied.

use crate::error::PushError;
use crate::image::layout::*;
use crate::push_name::PushName;
use crate::table::owned::shard::Shard;
use crate::table::progress::pushers::{PusherEntry, offset};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// What to do with a part.
pub(crate) enum PartStart {
    /// Drop the part: the shard has all its rows.
    Duplicate,
    /// Apply the part from some row on.
    From(PartProgress),
}

/// A part that is being applied: its pusher's entry, and which of its rows were applied before.
pub(crate) struct PartProgress {
    place: usize,
    entry: PusherEntry,
    /// The position of the part's first row in the run.
    row: u32,
    /// Rows of the part.
    rows: u32,
    /// The first row of the part that must be applied.
    pub(crate) from: u32,
}

impl Shard {
    /// Checks the name of a part of `rows` rows, of a push of `total` rows over all shards (0: unknown). If the shard
    /// has a journal, also records the part before its first row is applied.
    pub(crate) fn begin_part(
        &mut self,
        name: &PushName,
        rows: u32,
        total: u64,
    ) -> Result<PartStart, PushError> {
        let (shard, seq, row) = (self.number, name.seq, name.row);
        let end = row.checked_add(rows).ok_or(PushError::Gap { shard, seq, row, done: 0 })?;
        let known = self.pushers.find(name.pusher);
        let mut before = PusherEntry::default();
        if let Some(e) = known.map(|i| PusherEntry::load(&self.image, i)) {
            if e.incarnation > name.incarnation {
                let (pusher, incarnation, newer) = (name.pusher, name.incarnation, e.incarnation);
                return Err(PushError::Fenced { pusher, incarnation, newer });
            }
            if e.incarnation == name.incarnation {
                match seq.cmp(&e.seq) {
                    Ordering::Less => return Ok(PartStart::Duplicate),
                    Ordering::Greater if e.is_unfinished() => {
                        return Err(PushError::Unfinished { shard, seq: e.seq, done: e.done, rows: e.rows });
                    }
                    Ordering::Greater => {}
                    Ordering::Equal if end <= e.done && rows > 0 => return Ok(PartStart::Duplicate),
                    Ordering::Equal => before = e,
                }
            }
        }
        if known.is_none() && self.pushers.has_forgotten(&self.image, name.pusher, name.incarnation) {
            return Err(PushError::Forgotten { client: name.incarnation });
        }
        let done = before.done;
        if row > done {
            return Err(PushError::Gap { shard, seq, row, done });
        }
        let place = known.map_or_else(|| self.place(0), Ok)?;
        self.before_part = self.command;
        self.begin_command();
        let start = (self.journal.step() + 1).wrapping_sub(u64::from(done));
        let entry = PusherEntry { done, rows: before.rows.max(end), start, total, ..self.entry(name) };
        if self.journal.on {
            self.store_entry(&entry, place, true);
        }
        if known.is_none() {
            self.pushers.put(place, name.pusher);
        }
        Ok(PartStart::From(PartProgress { place, entry, row, rows, from: done - row }))
    }

    /// A free entry for a new pusher, with file space. `forgets`: the shard is about to forget closed clients up to
    /// this number.
    pub(crate) fn place(&self, forgets: u64) -> Result<usize, PushError> {
        let shard = self.number;
        let forgotten = self.pushers.forgotten(&self.image).max(forgets);
        let Some(place) = self.pushers.vacant(&self.image, forgotten) else {
            return Err(PushError::TooManyPushers { shard, max: crate::limits::PUSHERS_MAX });
        };
        if place == self.pushers.len() {
            self.image.hold_pusher(place).map_err(|error| PushError::of_growth(shard, error))?;
        }
        Ok(place)
    }

    /// The entry of a push of which no row is applied yet.
    pub(crate) fn entry(&self, name: &PushName) -> PusherEntry {
        let PushName { pusher, incarnation, seq, .. } = *name;
        PusherEntry { pusher, incarnation, seq, version: self.command, ..PusherEntry::default() }
    }

    /// Writes a pusher's entry as one step. With `current`, also marks it as the entry of the part that is
    /// being applied.
    pub(crate) fn store_entry(&mut self, entry: &PusherEntry, i: usize, current: bool) {
        self.journal.begin();
        self.journal.log(&mut self.image, offset(i), PUSHER_BYTES);
        self.journal.log(&mut self.image, CURRENT, 16);
        self.journal.arm(&self.image);
        entry.store(&self.image, i);
        let used = self.image.word(PUSHERS_USED).load(Relaxed).max(i as u64 + 1);
        self.image.word(PUSHERS_USED).store(used, Release);
        if self.journal.on && current {
            crate::kill_point!();
            self.image.word(CURRENT).store(i as u64 + 1, Release);
        }
        self.journal.done();
    }

    /// Commits the rows of a part and records how many were applied: all of them, or those before the refused row.
    /// `refused`: the number of the refused row.
    pub(crate) fn end_part(&mut self, part: PartProgress, refused: Option<u32>) {
        self.journal.settle(&self.image);
        crate::kill_point!();
        let PartProgress { place: i, mut entry, row, rows, .. } = part;
        entry.version = self.command;
        entry.done = row + refused.unwrap_or(rows);
        if self.journal.on {
            // Single words suffice: while CURRENT is not 0, a recovery computes these words again.
            self.image.word(offset(i) + 48).store(entry.version, Release);
            self.image.word(offset(i) + 24).store(entry.rows_word(), Release);
            crate::kill_point!();
            self.image.word(CURRENT).store(0, Release);
        } else {
            entry.store(&self.image, i);
            let used = self.image.word(PUSHERS_USED).load(Relaxed).max(i as u64 + 1);
            self.image.word(PUSHERS_USED).store(used, Release);
        }
    }
}
