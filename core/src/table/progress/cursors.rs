//! Cursors: which pushes of each pusher a cut contains. A shard knows its own rows of a push. All shards together know
//! whether the push is whole.

use crate::error::PushError;
use crate::push_name::{Cursor, client_of};
use crate::table::commands::command::ShardCommand;
use crate::table::owned::shards::Shards;
use crate::table::progress::pushers::{CLOSED, PusherEntry};
use std::collections::BTreeMap;

/// What some shards have of a pusher's last push. The progress of all shards of a table, added with
/// [`add`](Self::add), tells whether the push is whole.
///
/// ```
/// use gannet_core::{PushName, PushOptions, Schema, Shards, Store, Write};
/// use gannet_optim::{Add, Rule};
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let name = |row| PushName { pusher: 1, incarnation: 1, seq: 1, row };
/// let options = PushOptions { clock: 1, total: 2, ..PushOptions::default() };
/// shards.push_at(&name(0), options, Write::Gradient, &[7], None, &[1.0])?;
/// assert!(!shards.push_progress()[0].is_whole());
/// shards.push_at(&name(1), options, Write::Gradient, &[8], None, &[1.0])?;
/// assert!(shards.push_progress()[0].is_whole());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushProgress {
    /// The pusher's number.
    pub pusher: u64,
    /// Its newest incarnation.
    pub incarnation: u64,
    /// The highest sequence number of that incarnation.
    pub seq: u64,
    /// Rows of that push that were applied.
    pub done: u64,
    /// Rows of that push over all shards of the table; 0: unknown.
    pub total: u64,
    /// A shard knows of more rows than it has applied.
    pub unfinished: bool,
    /// The pusher will push no more.
    pub closed: bool,
}

impl PushProgress {
    fn of(entry: &PusherEntry) -> PushProgress {
        let PusherEntry { pusher, incarnation, seq, done, total, .. } = *entry;
        let (unfinished, closed) = (entry.is_unfinished(), entry.is_closed());
        PushProgress { pusher, incarnation, seq, done: u64::from(done), total, unfinished, closed }
    }

    /// Adds what other shards have of the same pusher. Pushes before the newest one count no more.
    pub fn add(&mut self, other: &PushProgress) {
        let (own, others) = ((self.incarnation, self.seq), (other.incarnation, other.seq));
        let closed = match self.incarnation.cmp(&other.incarnation) {
            std::cmp::Ordering::Less => other.closed,
            std::cmp::Ordering::Equal => self.closed || other.closed,
            std::cmp::Ordering::Greater => self.closed,
        };
        if own < others {
            *self = *other;
        } else if own == others {
            self.done += other.done;
            self.total = self.total.max(other.total);
            self.unfinished |= other.unfinished;
        }
        self.closed = closed;
    }

    /// Whether all rows of the push are applied, if this is the progress of all shards of the table. A push of unknown
    /// size counts as whole when no shard waits for rows of it. So does the last one of a closed client: a shard may
    /// have forgotten it.
    pub fn is_whole(&self) -> bool {
        let has_ended = self.closed && client_of(self.pusher, self.incarnation).is_some();
        !self.unfinished && (self.total == 0 || self.done >= self.total || has_ended)
    }
}

impl Shards {
    /// What the shards here have of the last push of each pusher, in the order of the pushers' numbers.
    /// [`PushProgress`] has an example.
    pub fn push_progress(&self) -> Vec<PushProgress> {
        let mut all = BTreeMap::<u64, PushProgress>::new();
        for shard in &self.shards {
            for entry in shard.remembered_pushers() {
                let own = PushProgress::of(&entry);
                all.entry(own.pusher).and_modify(|known| known.add(&own)).or_insert(own);
            }
        }
        all.into_values().collect()
    }

    /// Records in every shard here that it has all pushes of a pusher up to this cursor: a restore, or the end of a
    /// push whose pusher is gone. A shard that knows a newer incarnation or a later push of the pusher does not change.
    /// [`Cursor`] has an example.
    ///
    /// # Errors
    /// There is no space to remember the pusher.
    pub fn set_cursor(&mut self, cursor: &Cursor) -> Result<(), PushError> {
        let Cursor { pusher, incarnation, seq, closed } = *cursor;
        for at in 0..self.shards.len() {
            let shard = &mut self.shards[at];
            let known = shard.pushers.find(pusher);
            let before = known.map(|i| PusherEntry::load(&shard.image, i));
            if before.is_some_and(|e| (e.incarnation, e.seq) > (incarnation, seq)) {
                continue;
            }
            // The shard has all rows of this push, however many they are.
            let rows = if seq == 0 { 0 } else { u32::MAX };
            let flags = if closed { CLOSED } else { 0 };
            let entry =
                PusherEntry { pusher, incarnation, seq, done: rows, rows, flags, ..PusherEntry::default() };
            self.apply_at(at, ShardCommand::Remember(entry))?;
            self.incarnations.raise(pusher, incarnation);
        }
        Ok(())
    }

    /// Merges the admission sketch of a shard that had some of the keys of shard `shard`: a restore. No key is admitted
    /// later than with that sketch. Does nothing for a shard that is not here, and without admission by count.
    pub fn merge_sketch(&mut self, shard: u32, sketch: &[u8]) {
        let Shards { schema, places, shards, .. } = self;
        if let Some(shard) = shards.get_mut(places.place(shard) as usize) {
            shard.merge_sketch(schema, sketch);
        }
    }
}
