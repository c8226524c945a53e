//! The ring of deletions: the key of each of the last deleted rows, and the command that deleted it. It is part of the
//! image. Who reads the changes of a shard learns from it which rows are gone, unless the ring has forgotten some of
//! them since.

use crate::image::layout::*;
use crate::limits::DELETIONS_MAX;
use crate::table::owned::shard::Shard;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Shard {
    /// Records that the current command has deleted the row of `key`, as a part of the step under way. If the system
    /// has no space for the entry, the deletion counts as forgotten.
    pub(crate) fn record_deletion(&mut self, key: u64) {
        self.journal.log(&mut self.image, DELETED, 16);
        let deleted = self.image.word(DELETED).load(Relaxed);
        let place = (deleted % DELETIONS_MAX as u64) as usize;
        if deleted < DELETIONS_MAX as u64 && self.image.hold_deletion(place).is_err() {
            self.image.word(FORGOTTEN).store(self.command, Release);
            return;
        }
        self.journal.log(&mut self.image, DELETIONS + place * DELETION_BYTES, DELETION_BYTES);
        let [of, command] = self.image.deletion(place);
        if deleted >= DELETIONS_MAX as u64 {
            // An earlier deletion without space may be newer than the one that is overwritten.
            let forgotten = self.image.word(FORGOTTEN);
            forgotten.store(command.load(Relaxed).max(forgotten.load(Relaxed)), Release);
        }
        of.store(key, Release);
        command.store(self.command, Release);
        crate::kill_point!();
        self.image.word(DELETED).store(deleted + 1, Release);
    }

    /// The keys of the rows that commands above `from` have deleted, oldest first. A key may occur several times, and
    /// may have a row again by now. `None` when the ring has forgotten some of these deletions.
    pub(crate) fn deletions_since(&self, from: u64) -> Option<Vec<u64>> {
        if self.image.word(FORGOTTEN).load(Relaxed) > from {
            return None;
        }
        let deleted = self.image.word(DELETED).load(Relaxed);
        let first = deleted.saturating_sub(DELETIONS_MAX as u64);
        let entry =
            |n: u64| self.image.deletion((n % DELETIONS_MAX as u64) as usize).map(|w| w.load(Relaxed));
        let mut keys = Vec::new();
        for [key, command] in (first..deleted).rev().map(entry) {
            if command <= from {
                break;
            }
            keys.push(key);
        }
        keys.reverse();
        Some(keys)
    }
}
