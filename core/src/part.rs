//! The parts of pushes as a shard remembers them: what a name says of a part that comes, and how far it came.

use crate::error::PushError;
use crate::layout::*;
use crate::pushers::{Entry, INTERRUPTED, PushName, offset};
use crate::shard::Shard;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Where a part starts.
pub(crate) enum Start {
    /// The shard has it: the version that it was applied at.
    Doubled(u64),
    /// The first row to apply.
    From(u32),
}

impl Shard {
    /// Checks a part's name, and, when journaled, remembers it before its first row.
    pub(crate) fn begin_part(&mut self, name: &PushName, rows: u32) -> Result<Start, PushError> {
        let known = self.pushers.find(name.pusher);
        let mut from = 0;
        if let Some(i) = known {
            let e = Entry::load(&self.image, i);
            if e.incarnation > name.incarnation {
                let (pusher, incarnation, newer) = (name.pusher, name.incarnation, e.incarnation);
                return Err(PushError::Fenced { pusher, incarnation, newer });
            }
            if e.incarnation == name.incarnation {
                let interrupted = e.flags & INTERRUPTED != 0;
                match (name.seq, name.part).cmp(&e.name()) {
                    std::cmp::Ordering::Less => return Ok(Start::Doubled(e.version)),
                    std::cmp::Ordering::Greater if interrupted => {
                        return Err(PushError::Unfinished { seq: e.seq, part: e.part });
                    }
                    std::cmp::Ordering::Greater => {}
                    std::cmp::Ordering::Equal if e.rows != rows => {
                        let (seq, part, shard) = (e.seq, e.part, self.number);
                        return Err(PushError::Recut { seq, part, shard, first: e.rows, now: rows });
                    }
                    std::cmp::Ordering::Equal if !interrupted => return Ok(Start::Doubled(e.version)),
                    std::cmp::Ordering::Equal => from = e.done,
                }
            }
        }
        let place = known.map_or_else(|| self.place(), Ok)?;
        // A run of writes gets a version of its own.
        self.version += 1;
        self.image.word(VERSION).store(self.version, Release);
        if self.journal.on {
            let start = self.journal.step() + 1 - u64::from(from);
            self.store_entry(&self.entry(name, rows, start), place, true);
        }
        if known.is_none() {
            self.pushers.put(place, name.pusher);
        }
        Ok(Start::From(from))
    }

    /// An entry for a pusher that has none, with file space.
    pub(crate) fn place(&self) -> Result<usize, PushError> {
        let shard = self.number;
        let Some(place) = self.pushers.vacant(&self.image) else {
            return Err(PushError::TooManyPushers { shard, max: crate::limits::PUSHERS_MAX });
        };
        if place == self.pushers.len() {
            self.image.hold_pusher(place).map_err(|error| PushError::of_growth(shard, error))?;
        }
        Ok(place)
    }

    pub(crate) fn entry(&self, name: &PushName, rows: u32, start: u64) -> Entry {
        let PushName { pusher, incarnation, seq, part } = *name;
        Entry { pusher, incarnation, seq, part, rows, start, flags: 0, done: 0, version: self.version }
    }

    /// Writes a pusher's entry as one step; that of a part under way becomes the current one.
    pub(crate) fn store_entry(&mut self, entry: &Entry, i: usize, current: bool) {
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

    /// Commits the rows of a part and remembers how far it came.
    pub(crate) fn end_part(&mut self, name: &PushName, rows: u32, result: &Result<(), (u32, PushError)>) {
        self.journal.settle(&self.image);
        crate::kill_point!();
        let i = self.pushers.find(name.pusher).unwrap_or(0);
        let mut entry = if self.journal.on { Entry::load(&self.image, i) } else { self.entry(name, rows, 0) };
        entry.version = self.version;
        if let Err((done, _)) = result {
            entry.done = *done;
            entry.flags |= INTERRUPTED;
        }
        if self.journal.on {
            // Single words: until CURRENT is 0 a recovery works these out again.
            self.image.word(offset(i) + 48).store(entry.version, Release);
            self.image
                .word(offset(i) + 40)
                .store(u64::from(entry.done) << 32 | u64::from(entry.flags), Release);
            crate::kill_point!();
            self.image.word(CURRENT).store(0, Release);
        } else {
            entry.store(&self.image, i);
            let used = self.image.word(PUSHERS_USED).load(Relaxed).max(i as u64 + 1);
            self.image.word(PUSHERS_USED).store(used, Release);
        }
    }
}
