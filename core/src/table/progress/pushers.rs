//! What a shard remembers of each pusher: its last push, and how many rows of that push were applied. The
//! entries are part of the image. This file has their layout, and a map in memory from each pusher to its
//! entry.

use crate::image::layout::*;
use crate::image::owned_image::Image;
use crate::limits::PUSHERS_MAX;
use crate::push_name::{CLIENTS, DATA_PUSHERS, client_of, is_client};
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The pusher will push no more.
pub(crate) const CLOSED: u32 = 2;

/// One pusher's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PusherEntry {
    pub(crate) pusher: u64,
    pub(crate) incarnation: u64,
    pub(crate) seq: u64,
    /// Rows of the push's run that were applied. While a part is being applied: the rows before that part.
    pub(crate) done: u32,
    /// Rows of the run that the shard knows of. If this is more than `done`, a part was refused or interrupted
    /// before its end.
    pub(crate) rows: u32,
    /// The journal step of the run's row 0 (modulo 2^64), computed as if all rows of the run were applied in
    /// sequence.
    pub(crate) start: u64,
    pub(crate) flags: u32,
    /// The shard's last command when the entry last changed.
    pub(crate) version: u64,
    /// Rows of the whole push, over all shards of the table; 0: unknown.
    pub(crate) total: u64,
}

/// Offset of entry `i`.
pub(crate) fn offset(i: usize) -> usize {
    PUSHERS + i * PUSHER_BYTES
}

impl PusherEntry {
    pub(crate) fn load(image: &Image, i: usize) -> PusherEntry {
        let w = |n: usize| image.word(offset(i) + 8 * n).load(Relaxed);
        PusherEntry {
            pusher: w(0),
            incarnation: w(1),
            seq: w(2),
            done: w(3) as u32,
            rows: (w(3) >> 32) as u32,
            start: w(4),
            flags: w(5) as u32,
            version: w(6),
            total: w(7),
        }
    }

    pub(crate) fn store(&self, image: &Image, i: usize) {
        let words = [
            self.pusher,
            self.incarnation,
            self.seq,
            self.rows_word(),
            self.start,
            u64::from(self.flags),
            self.version,
            self.total,
        ];
        for (n, word) in words.into_iter().enumerate() {
            image.word(offset(i) + 8 * n).store(word, Release);
            crate::kill_point!();
        }
    }

    /// The word with the number of applied rows and of known rows.
    pub(crate) fn rows_word(&self) -> u64 {
        u64::from(self.rows) << 32 | u64::from(self.done)
    }

    /// The pusher will push no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.flags & CLOSED != 0
    }

    /// The number of the client that the entry is of or fences, if it is one that may be forgotten ([`is_client`]).
    pub(crate) fn client(&self) -> Option<u64> {
        client_of(self.pusher, self.incarnation)
    }

    /// Whether another pusher may have the entry: that of a closed split of data, or of a closed client, if the shard
    /// refuses clients up to `forgotten` that it does not know.
    pub(crate) fn is_vacant(&self, forgotten: u64) -> bool {
        let may_go =
            || self.pusher >= DATA_PUSHERS || self.client().is_some_and(|client| client <= forgotten);
        self.is_closed() && may_go()
    }

    /// A part of the push stopped before its end. The pusher must send the rest before any other push.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.done < self.rows
    }
}

/// Which pusher each entry belongs to.
#[derive(Default)]
pub(crate) struct Pushers {
    ids: Vec<u64>,
    /// The entry of each pusher.
    places: HashMap<u64, usize>,
    /// The last look-up: pusher and entry.
    last: Option<(u64, usize)>,
}

impl Pushers {
    pub(crate) fn load(image: &Image) -> Pushers {
        let used = (image.word(PUSHERS_USED).load(Relaxed) as usize).min(PUSHERS_MAX);
        let mut pushers = Pushers::default();
        (0..used).for_each(|i| pushers.put(i, PusherEntry::load(image, i).pusher));
        pushers
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The entry of a pusher, if it has one.
    pub(crate) fn find(&mut self, pusher: u64) -> Option<usize> {
        if let Some((last, place)) = self.last
            && last == pusher
        {
            return Some(place);
        }
        let place = *self.places.get(&pusher)?;
        self.last = Some((pusher, place));
        Some(place)
    }

    /// Whether a pusher has an entry.
    pub(crate) fn knows(&self, pusher: u64) -> bool {
        self.places.contains_key(&pusher)
    }

    /// An entry for a new pusher: one that is vacant ([`PusherEntry::is_vacant`]), or a new one. `None` when all are in
    /// use.
    pub(crate) fn vacant(&self, image: &Image, forgotten: u64) -> Option<usize> {
        let clients = CLIENTS + 1..=CLIENTS.saturating_add(forgotten);
        let may_be = |id: u64| id >= DATA_PUSHERS || clients.contains(&id);
        let is_vacant = |&i: &usize| may_be(self.ids[i]) && PusherEntry::load(image, i).is_vacant(forgotten);
        let used = self.ids.len();
        (0..used).find(is_vacant).or((used < PUSHERS_MAX).then_some(used))
    }

    /// Up to which number the shard may have forgotten clients: it refuses those that it does not know. 0: none.
    pub(crate) fn forgotten(&self, image: &Image) -> u64 {
        self.places.get(&CLIENTS).map_or(0, |&i| PusherEntry::load(image, i).incarnation)
    }

    /// Whether the shard may have forgotten this pusher.
    pub(crate) fn has_forgotten(&self, image: &Image, pusher: u64, incarnation: u64) -> bool {
        is_client(pusher, incarnation) && incarnation <= self.forgotten(image) && !self.knows(pusher)
    }

    /// Records which pusher uses a [`vacant`](Self::vacant) entry now.
    pub(crate) fn put(&mut self, i: usize, pusher: u64) {
        match self.ids.get_mut(i) {
            Some(id) => {
                self.places.remove(id);
                self.last = None;
                *id = pusher;
            }
            None => self.ids.push(pusher),
        }
        self.places.insert(pusher, i);
    }
}
