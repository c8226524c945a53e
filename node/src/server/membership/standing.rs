//! What a server is at the moment: an owner with a lease, or not. The membership decides, and the threads that own
//! shards act on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The place of a server that a backup takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) struct Promotion {
    pub(in crate::server) server: u32,
    pub(in crate::server) servers: u32,
    pub(in crate::server) epoch: u64,
    /// This backup has everything that was acknowledged. So where it lacks rows, nothing of the table was.
    pub(in crate::server) has_all_acknowledged: bool,
}

/// What the threads of a server share with its membership.
#[derive(Debug, Default)]
pub(in crate::server) struct Standing {
    /// The places that the server owns, or takes. For each, when its lease ends by the server's clock.
    places: Mutex<BTreeMap<u32, Duration>>,
    /// How many places that are.
    owned: AtomicU64,
    /// The first of these ends, in nanoseconds. 0: the server owns nothing.
    until: AtomicU64,
    /// Another server owns a place of this one.
    is_deposed: AtomicBool,
    /// The places that all threads are to take, from the first on.
    promotions: Mutex<Vec<PromotionRecord>>,
    /// How many promotions these are.
    promoted: AtomicU64,
}

#[derive(Debug)]
struct PromotionRecord {
    wanted: Promotion,
    /// What became of it on the threads that have tried.
    done: Vec<Result<u32, String>>,
}

impl Standing {
    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, Duration>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promotions(&self) -> MutexGuard<'_, Vec<PromotionRecord>> {
        self.promotions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server owns a place, and has a lease for it until then.
    pub(in crate::server) fn own(&self, place: u32, until: Duration) {
        let mut places = self.places();
        places.insert(place, until);
        let first = places.values().min().map_or(0, |first| first.as_nanos() as u64);
        self.until.store(first, Release);
        self.owned.store(places.len() as u64, Release);
    }

    /// Adds the places that the server owns, or takes, to those that a thread knows.
    pub(in crate::server) fn update(&self, known: &mut BTreeSet<u32>) {
        if self.owned.load(Acquire) != known.len() as u64 {
            known.extend(self.places().keys());
        }
    }

    /// Whether the server must say nothing now: the lease of a place has ended.
    pub(in crate::server) fn is_silent(&self, now: Duration) -> bool {
        let until = self.until.load(Acquire);
        until != 0 && now.as_nanos() as u64 >= until
    }

    /// Another server owns a place of this one.
    pub(in crate::server) fn depose(&self) {
        self.is_deposed.store(true, Release);
    }

    pub(in crate::server) fn is_deposed(&self) -> bool {
        self.is_deposed.load(Acquire)
    }

    /// All threads are to take the place of a server.
    pub(in crate::server) fn promote(&self, wanted: Promotion) {
        let mut promotions = self.promotions();
        promotions.push(PromotionRecord { wanted, done: Vec::new() });
        self.promoted.store(promotions.len() as u64, Release);
    }

    /// The next promotion for a thread that has tried this many.
    pub(in crate::server) fn next_promotion(&self, tried: u64) -> Option<Promotion> {
        if self.promoted.load(Acquire) == tried {
            return None;
        }
        self.promotions().get(tried as usize).map(|of| of.wanted)
    }

    /// A thread has tried a promotion, of which it had tried this many before.
    pub(in crate::server) fn note_promoted(&self, tried: u64, outcome: Result<u32, String>) {
        if let Some(PromotionRecord { done, .. }) = self.promotions().get_mut(tried as usize) {
            done.push(outcome);
        }
    }

    /// What became of the last promotion to a place, if all threads have tried it.
    pub(in crate::server) fn outcome(&self, place: u32, threads: usize) -> Option<Result<u32, String>> {
        let promotions = self.promotions();
        let PromotionRecord { done, .. } = promotions.iter().rfind(|of| of.wanted.server == place)?;
        if done.len() < threads {
            return None;
        }
        let tables = done.iter().cloned().collect::<Result<Vec<u32>, String>>();
        Some(tables.map(|tables| tables.into_iter().max().unwrap_or(0)))
    }
}
