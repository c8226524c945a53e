//! Cached rows that servers keep fresh. The worker subscribes to rows that it has used again. In regular sweeps its
//! servers send the rows that have changed, and then that the sweep is over.
//!
//! A frame of changes comes among the answers in order. So it includes every own push that was acknowledged before it,
//! and none of the unacknowledged ones: the worker leaves rows that such pushes touch as they are. A row that a sweep
//! does not mention has not changed since the sweep before. The worker knows when a sweep began from the latest request
//! that the server had answered when the sweep before it was over.

use crate::cache::caching::Caching;
use crate::cache::rows::RowCache;
use crate::cache::swept::Swept;
use bytemuck::cast_slice;
use gannet_core::CachedVersion;
use gannet_transport::Head;
use gannet_wire::frames::subscriptions::DeltaFrame;
use gannet_wire::frames::word::clock_word;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a link's server keeps fresh of one table.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The keys; their indices are their numbers on the link.
    pub(crate) keys: Vec<u64>,
    /// The number of this set of keys. Frames of another set are about other rows.
    pub(crate) generation: u32,
    /// The server cannot keep more rows fresh.
    pub(crate) refused: bool,
    /// How many of the rows sent in this set the cache no longer has, and how many rows were sent.
    pub(crate) gone: usize,
    pub(crate) sent: usize,
    /// As of when all unmentioned rows are current; and what that will be when the next sweep is over.
    pub(crate) swept: Swept,
    pub(crate) next: Swept,
}

/// A frame of changes, copied out of the receive buffer.
pub(crate) struct Delta {
    pub(crate) head: Head,
    pub(crate) payload: Vec<u64>,
}

impl Followed {
    /// Ends the set: the link is lost, or the set is given up. The next set starts from nothing.
    pub(crate) fn lose(&mut self) {
        *self = Followed::default();
    }

    /// The number of the set that rows should be in; 0 if none are followed.
    pub(crate) fn generation(&mut self, rows: &RowCache) -> u32 {
        if self.generation == 0 && !self.refused && rows.config.active.is_some() {
            self.generation = rows.generations.fetch_add(1, Relaxed) + 1;
        }
        self.generation
    }

    /// Stores changes that a server has sent of this set, in a cache that the worker reads. `last_answered`: when the
    /// latest answered request was sent. `touched`: whether an unacknowledged own push touches a key. Returns how many
    /// rows are fresh now; `None` if the changes cannot be read.
    pub(crate) fn take(
        &mut self,
        caching: &Caching,
        frame: &DeltaFrame,
        payload: &[u64],
        last_answered: Duration,
        touched: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let &DeltaFrame { rows, version, set: generation, last, lowest, .. } = frame;
        let (lowest, cache, count) = (clock_word(lowest), &caching.rows, rows as usize);
        let behind = (4 * count).next_multiple_of(8);
        let bytes: &[u8] = cast_slice(payload);
        let want = behind + count * cache.floats * 4;
        if bytes.len() != want.next_multiple_of(8) {
            return None;
        }
        let numbers: &[u32] = cast_slice(&bytes[..4 * count]);
        let values: &[f32] = cast_slice(&bytes[behind..want]);
        let (turn, at_us) = caching.turn_at(last_answered);
        let now = Swept { turn, at_us, lowest: 0 };
        let mut refreshed = 0;
        for (&name, row) in numbers.iter().zip(values.chunks_exact(cache.floats)) {
            let &key = self.keys.get((name & (u32::MAX >> 1)) as usize)?;
            let version = if name >> 31 == 1 { CachedVersion::NoRow } else { CachedVersion::Row(version) };
            let touched = touched(key);
            let known = cache.refresh(key, generation, touched, row, version, (&now, lowest));
            self.gone += usize::from(!known);
            refreshed += u64::from(known && !touched);
        }
        self.sent += count;
        if last {
            // This sweep began after the answers that had come when the sweep before was over.
            self.swept = Swept { lowest, ..self.next };
            self.next = now;
        }
        Some(refreshed)
    }
}
