//! Pulls through the cache: rows that it has are copied at once, the others are requested in the same flight. Also what
//! own pushes do to the cache.

use crate::cache::rows::RowCache;
use crate::cache::settings::{CacheConfig, CacheUse};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The cache of one of a worker's tables.
pub(crate) struct Caching {
    pub(crate) rows: Arc<RowCache>,
    pub(crate) sharer: u16,
    pub(crate) next_follow: Duration,
    /// The last pulls: when they began, in microseconds, and their numbers.
    pub(crate) begun: VecDeque<(u64, u64)>,
}

impl Caching {
    /// Whether pulls may go past the cache.
    pub(crate) fn may_pause(&self) -> bool {
        let RowCache { config: CacheConfig { when, active, .. }, sharers_ever, .. } = &*self.rows;
        *when == CacheUse::Auto && active.is_none() && sharers_ever.load(Relaxed) == 1
    }

    /// The last pull that had begun at `then`, and when it began.
    pub(crate) fn turn_at(&self, then: Duration) -> (u64, u64) {
        let then = then.as_micros() as u64;
        let last = self.begun.iter().rev().find(|(at, _)| *at <= then);
        last.map_or((0, 0), |&(at, turn)| (turn, at))
    }
}

impl Drop for Caching {
    fn drop(&mut self) {
        self.rows.sharers.fetch_sub(1, Relaxed);
    }
}
