//! The newest incarnation of each worker that the shards of one thread remember. Lower incarnations are fenced.

use crate::push_name::DATA_PUSHERS;
use crate::table::owned::shard::Shard;
use crate::table::progress::pushers::PusherEntry;
use std::collections::HashMap;

/// The newest incarnation of each worker that any shard of a range remembers. All of these shards refuse lower
/// incarnations. Pushers of data are not included: their names fence no worker, and there are many of them.
#[derive(Default)]
pub(crate) struct Incarnations {
    pub(crate) newest: HashMap<u64, u64>,
    /// The last look-up: pusher and incarnation.
    last: Option<(u64, u64)>,
}

impl Incarnations {
    /// Loads the incarnations from the images of these shards.
    pub(crate) fn load(shards: &[Shard]) -> Incarnations {
        let mut all = Incarnations::default();
        for shard in shards {
            for i in 0..shard.pushers.len() {
                let PusherEntry { pusher, incarnation, .. } = PusherEntry::load(&shard.image, i);
                all.raise(pusher, incarnation);
            }
        }
        all
    }

    /// Records that a shard remembers this incarnation.
    pub(crate) fn raise(&mut self, pusher: u64, incarnation: u64) {
        if pusher >= DATA_PUSHERS || self.newest(pusher) >= incarnation {
            return;
        }
        let newest = self.newest.entry(pusher).or_default();
        *newest = incarnation.max(*newest);
        self.last = None;
    }

    pub(crate) fn newest(&mut self, pusher: u64) -> u64 {
        match self.last {
            Some((last, newest)) if last == pusher => newest,
            _ => {
                let newest = self.newest.get(&pusher).copied().unwrap_or(0);
                self.last = Some((pusher, newest));
                newest
            }
        }
    }
}
