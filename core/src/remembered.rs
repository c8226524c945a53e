//! What the shards remember of pushers, as it is asked and said apart from pushes: who is known, closed, fenced, and which rows came
//! under another's name.

use crate::error::PushError;
use crate::pushers::{CLOSED, DATA_PUSHERS, Entry, INTERRUPTED, PushName};
use crate::table::Shards;

impl Shards {
    /// A pusher of this incarnation says that it will push no more. One that never pushed is remembered too, by the
    /// first shard here, unless it is data ([`DATA_PUSHERS`]). Newer incarnations are not touched.
    ///
    /// # Errors
    /// There is no room to remember one that never pushed.
    pub fn close_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.remember(pusher, incarnation, CLOSED, false)
    }

    /// Remembers a pusher of this incarnation before its first push, in the first shard here; the incarnations below it are
    /// fenced there. Newer incarnations are not touched.
    ///
    /// # Errors
    /// There is no room to remember it.
    pub fn introduce_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.remember(pusher, incarnation, 0, false)
    }

    /// From now on pushes of this pusher are refused in every shard here, of this incarnation and of those below it.
    ///
    /// # Errors
    /// There is no room to remember one that never pushed.
    pub fn fence_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.remember(pusher, incarnation.saturating_add(1), 0, true)
    }

    /// Whether a shard has a part of this name, or a later one of its pusher; of a newer life of the pusher too. `false` for a
    /// shard that is not here.
    pub fn has(&mut self, shard: u32, name: &PushName) -> bool {
        let Some(shard) = self.shards.get_mut(shard.wrapping_sub(self.first) as usize) else { return false };
        let Some(i) = shard.pushers.find(name.pusher) else { return false };
        let entry = Entry::load(&shard.image, i);
        (entry.incarnation, entry.seq, entry.part) >= (name.incarnation, name.seq, name.part)
    }

    /// A shard has the rows of this name from now on, as part of a push of another: as if they had been pushed under it. A shard
    /// that is not here is left alone.
    ///
    /// # Errors
    /// There is no room to remember it.
    pub fn note(&mut self, shard: u32, name: &PushName) -> Result<(), PushError> {
        if self.has(shard, name) {
            return Ok(());
        }
        let Some(shard) = self.shards.get_mut(shard.wrapping_sub(self.first) as usize) else { return Ok(()) };
        let known = shard.pushers.find(name.pusher);
        let i = known.map_or_else(|| shard.place(), Ok)?;
        if known.is_none() {
            shard.pushers.put(i, name.pusher);
        }
        shard.store_entry(&shard.entry(name, 0, 0), i, false);
        shard.journal.settle(&shard.image);
        Ok(())
    }

    /// The shard in which a push of this pusher stopped in the middle and waits for the rest, if there is one.
    pub fn unfinished(&mut self, pusher: u64) -> Option<u32> {
        let first = self.first;
        let at = self.shards.iter_mut().position(|shard| {
            let known = shard.pushers.find(pusher);
            known.is_some_and(|i| Entry::load(&shard.image, i).flags & INTERRUPTED != 0)
        })?;
        Some(first + at as u32)
    }

    /// Sets flags in the entries of a pusher, which are of this incarnation afterwards; `all`: also where it has none.
    fn remember(&mut self, pusher: u64, incarnation: u64, flags: u32, all: bool) -> Result<(), PushError> {
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let known = shard.pushers.find(pusher);
            let mut entry =
                known.map_or(Entry { pusher, ..Entry::default() }, |i| Entry::load(&shard.image, i));
            let of_data = pusher >= DATA_PUSHERS && !all;
            if entry.incarnation > incarnation || (known.is_none() && (at > 0 && !all || of_data)) {
                continue;
            }
            if entry.incarnation < incarnation {
                entry = Entry { pusher, incarnation, ..Entry::default() };
            } else if known.is_some() && entry.flags & flags == flags {
                continue;
            }
            let i = known.map_or_else(|| shard.place(), Ok)?;
            if known.is_none() {
                shard.pushers.put(i, pusher);
            }
            entry.flags |= flags;
            shard.store_entry(&entry, i, false);
            shard.journal.settle(&shard.image);
        }
        Ok(())
    }
}
