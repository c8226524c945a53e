//! What the shards remember of pushers, apart from pushes: who is known, closed or fenced, and which rows came under another's
//! name.

use crate::error::PushError;
use crate::push_name::{DATA_PUSHERS, PushName};
use crate::table::pushers::{CLOSED, PusherEntry};
use crate::table::shards::Shards;

impl Shards {
    /// Whether pushes of this incarnation of a pusher are taken here: in all the shards, or in none.
    ///
    /// # Errors
    /// [`PushError::Fenced`]: one of the shards knows a newer incarnation, or the pusher was fenced.
    pub fn check_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        let newer = self.incarnations.newest(pusher);
        if newer > incarnation {
            return Err(PushError::Fenced { pusher, incarnation, newer });
        }
        Ok(())
    }

    /// A pusher of this incarnation says that it will push no more. One that never pushed is remembered too, by the
    /// first shard here, unless it is data ([`DATA_PUSHERS`]). Newer incarnations are not touched.
    ///
    /// # Errors
    /// There is no space to remember one that never pushed.
    pub fn close_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.remember(pusher, incarnation, CLOSED, false)
    }

    /// Remembers a pusher of this incarnation before its first push, in every shard here: the incarnations below it are fenced.
    ///
    /// # Errors
    /// It is fenced itself ([`check_pusher`](Self::check_pusher)), or there is no space to remember it.
    pub fn introduce_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.check_pusher(pusher, incarnation)?;
        self.remember(pusher, incarnation, 0, true)
    }

    /// From now on pushes of this pusher are refused in every shard here, of this incarnation and of those below it.
    ///
    /// # Errors
    /// There is no space to remember one that never pushed. The last incarnation, 2^64 - 1, cannot be fenced.
    pub fn fence_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        let Some(next) = incarnation.checked_add(1) else {
            return Err(PushError::LastIncarnation { pusher });
        };
        self.remember(pusher, next, 0, true)
    }

    /// Whether a shard has the first `name.row` rows of its run of this push, or a later push of the pusher; of a newer
    /// incarnation too. `false` for a shard that is not here.
    pub fn has(&mut self, shard: u32, name: &PushName) -> bool {
        let Some(shard) = self.shards.get_mut(shard.wrapping_sub(self.first) as usize) else { return false };
        let Some(i) = shard.pushers.find(name.pusher) else { return false };
        let entry = PusherEntry::load(&shard.image, i);
        (entry.incarnation, entry.seq, entry.done) >= (name.incarnation, name.seq, name.row)
    }

    /// The last push of a pusher that a shard has heard of, of its newest incarnation; `None` for a shard that is not here.
    pub fn last_push(&mut self, shard: u32, pusher: u64) -> Option<u64> {
        let shard = self.shards.get_mut(shard.wrapping_sub(self.first) as usize)?;
        let i = shard.pushers.find(pusher)?;
        Some(PusherEntry::load(&shard.image, i).seq)
    }

    /// From now on a shard has the first `name.row` rows of its run of this push: they came as part of a push of another name.
    /// A shard that is not here is left alone.
    ///
    /// # Errors
    /// There is no space to remember it.
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
        let entry = PusherEntry { done: name.row, rows: name.row, ..shard.entry(name) };
        shard.store_entry(&entry, i, false);
        shard.journal.settle(&shard.image);
        self.incarnations.raise(name.pusher, name.incarnation);
        Ok(())
    }

    /// The shard in which a push of this pusher stopped in the middle and waits for the rest, if there is one.
    pub fn unfinished(&mut self, pusher: u64) -> Option<u32> {
        let first = self.first;
        let at = self.shards.iter_mut().position(|shard| {
            let known = shard.pushers.find(pusher);
            known.is_some_and(|i| PusherEntry::load(&shard.image, i).is_unfinished())
        })?;
        Some(first + at as u32)
    }

    /// Sets flags in the entries of a pusher, which are of this incarnation afterwards; `all`: also where it has none.
    fn remember(&mut self, pusher: u64, incarnation: u64, flags: u32, all: bool) -> Result<(), PushError> {
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let known = shard.pushers.find(pusher);
            let mut entry = known.map_or(PusherEntry { pusher, ..PusherEntry::default() }, |i| {
                PusherEntry::load(&shard.image, i)
            });
            let of_data = pusher >= DATA_PUSHERS && !all;
            if entry.incarnation > incarnation || (known.is_none() && (at > 0 && !all || of_data)) {
                continue;
            }
            if entry.incarnation < incarnation {
                entry = PusherEntry { pusher, incarnation, ..PusherEntry::default() };
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
            self.incarnations.raise(pusher, incarnation);
        }
        Ok(())
    }
}
