//! What the shards remember of pushers besides the progress of their pushes: which pushers are known, closed or
//! fenced, and which rows arrived as part of another pusher's push.

use crate::error::PushError;
use crate::push_name::{CLIENTS, DATA_PUSHERS, PushName, is_client};
use crate::table::commands::command::ShardCommand;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::progress::pushers::{CLOSED, PusherEntry};

impl Shards {
    /// Checks that pushes of this incarnation of a pusher are accepted. All shards here give the same answer.
    ///
    /// # Errors
    /// [`PushError::Fenced`]: a shard knows a newer incarnation, or the pusher was fenced.
    pub fn check_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        let newer = self.incarnations.newest(pusher);
        if newer > incarnation {
            return Err(PushError::Fenced { pusher, incarnation, newer });
        }
        if newer == 0 && is_client(pusher, incarnation) && incarnation <= self.incarnations.newest(CLIENTS) {
            return Err(PushError::Forgotten { client: incarnation });
        }
        Ok(())
    }

    /// Marks a pusher of this incarnation as done: it will push no more. The first shard here also remembers a
    /// worker that never pushed. No shard remembers a split of data ([`DATA_PUSHERS`]) that never pushed.
    /// Entries of newer incarnations do not change.
    ///
    /// # Errors
    /// There is no space to remember a worker that never pushed.
    pub fn close_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.remember(pusher, incarnation, CLOSED, false)
    }

    /// Remembers a pusher of this incarnation before its first push, in every shard here. Lower incarnations are
    /// fenced.
    ///
    /// # Errors
    /// The incarnation is fenced itself ([`check_pusher`](Self::check_pusher)), or there is no space to remember it.
    pub fn introduce_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        self.check_pusher(pusher, incarnation)?;
        self.remember(pusher, incarnation, 0, true)
    }

    /// Fences a pusher: from now on every shard here refuses pushes of this incarnation and of lower ones.
    ///
    /// # Errors
    /// There is no space to remember a pusher that never pushed, or this is the last incarnation, 2^64 - 1.
    pub fn fence_pusher(&mut self, pusher: u64, incarnation: u64) -> Result<(), PushError> {
        let Some(next) = incarnation.checked_add(1) else {
            return Err(PushError::LastIncarnation { pusher });
        };
        self.remember(pusher, next, 0, true)
    }

    /// Whether a shard has the first `name.row` rows of its run of this push, or a later push of the pusher. A
    /// push of a newer incarnation is later. `false` for a shard that is not here.
    pub fn has(&mut self, shard: u32, name: &PushName) -> bool {
        let Some(shard) = self.shard_mut(shard) else { return false };
        let Some(i) = shard.pushers.find(name.pusher) else { return false };
        let entry = PusherEntry::load(&shard.image, i);
        (entry.incarnation, entry.seq, entry.done) >= (name.incarnation, name.seq, name.row)
    }

    /// The sequence number of the last push that a shard remembers of a pusher's newest incarnation. `None` for
    /// a shard that is not here.
    pub fn last_push(&mut self, shard: u32, pusher: u64) -> Option<u64> {
        let shard = self.shard_mut(shard)?;
        let i = shard.pushers.find(pusher)?;
        Some(PusherEntry::load(&shard.image, i).seq)
    }

    /// Records that a shard has the first `name.row` rows of its run of this push, because they arrived as part
    /// of another push. `total`: rows of the push over all shards of the table; 0: unknown. Does nothing for a shard
    /// that is not here.
    ///
    /// ```
    /// use gannet_core::{PushName, Schema, Shards, Store};
    /// use gannet_optim::{Add, Rule};
    ///
    /// let schema = Schema { shards: 2, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut shards = Shards::open(&Store::memory(), &schema, 0..2)?;
    /// let name = |row| PushName { pusher: 1, incarnation: 1, seq: 1, row };
    /// shards.note(0, &name(2), 3)?;
    /// assert!(!shards.push_progress()[0].is_whole());
    /// shards.note(1, &name(1), 3)?;
    /// assert!(shards.push_progress()[0].is_whole());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no space to remember the pusher.
    pub fn note(&mut self, shard: u32, name: &PushName, total: u64) -> Result<(), PushError> {
        if self.has(shard, name) {
            return Ok(());
        }
        let at = self.places.place(shard) as usize;
        let Some(shard) = self.shards.get(at) else { return Ok(()) };
        let entry = PusherEntry { done: name.row, rows: name.row, total, ..shard.entry(name) };
        self.apply_at(at, ShardCommand::Remember(entry))?;
        self.incarnations.raise(name.pusher, name.incarnation);
        Ok(())
    }

    /// The shard that has only some rows of this pusher's last push and waits for the rest; `None` if there is none.
    pub fn unfinished(&mut self, pusher: u64) -> Option<u32> {
        let waits = |shard: &mut Shard| {
            let known = shard.pushers.find(pusher);
            known.is_some_and(|i| PusherEntry::load(&shard.image, i).is_unfinished())
        };
        self.shards.iter_mut().find_map(|shard| waits(shard).then_some(shard.number))
    }

    /// Sets flags in the entries of a pusher and raises them to this incarnation. With `all`, shards without an entry
    /// get one.
    pub(crate) fn remember(
        &mut self,
        pusher: u64,
        incarnation: u64,
        flags: u32,
        all: bool,
    ) -> Result<(), PushError> {
        for at in 0..self.shards.len() {
            let shard = &mut self.shards[at];
            let known = shard.pushers.find(pusher);
            let mut entry = known.map_or(PusherEntry { pusher, ..PusherEntry::default() }, |i| {
                PusherEntry::load(&shard.image, i)
            });
            let of_data = pusher >= DATA_PUSHERS && !all;
            if entry.incarnation > incarnation || (known.is_none() && (at > 0 && !all || of_data)) {
                continue;
            }
            // An entry would let a forgotten client push again what it has pushed.
            if shard.pushers.has_forgotten(&shard.image, pusher, incarnation) {
                continue;
            }
            if entry.incarnation < incarnation {
                entry = PusherEntry { pusher, incarnation, ..PusherEntry::default() };
            } else if known.is_some() && entry.flags & flags == flags {
                continue;
            }
            entry.flags |= flags;
            self.apply_at(at, ShardCommand::Remember(entry))?;
            self.incarnations.raise(pusher, incarnation);
        }
        Ok(())
    }
}
