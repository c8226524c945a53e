//! What a server is at the moment: an owner with a lease, or not. The membership decides, and the threads that own
//! shards act on it.

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
    /// The server owns shards, or wants to: without a lease it says nothing.
    is_owner: AtomicBool,
    /// The lease ends then, in nanoseconds of the server's clock.
    until: AtomicU64,
    /// Another server owns the shards.
    is_deposed: AtomicBool,
    /// Counts the promotions.
    promotions: AtomicU64,
    promotion: Mutex<PromotionState>,
}

#[derive(Debug, Default)]
struct PromotionState {
    wanted: Option<Promotion>,
    /// What became of it on the threads that have tried.
    done: Vec<Result<u32, String>>,
}

impl Standing {
    fn promotion(&self) -> MutexGuard<'_, PromotionState> {
        self.promotion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is an owner, and has a lease until then.
    pub(in crate::server) fn own(&self, until: Duration) {
        self.until.store(until.as_nanos() as u64, Release);
        self.is_owner.store(true, Release);
    }

    /// Whether the server owns shards, or takes the place of their owner.
    pub(in crate::server) fn is_owner(&self) -> bool {
        self.is_owner.load(Acquire)
    }

    /// Whether the server must say nothing now.
    pub(in crate::server) fn is_silent(&self, now: Duration) -> bool {
        self.is_owner.load(Acquire) && now.as_nanos() as u64 >= self.until.load(Acquire)
    }

    /// Another server owns the shards.
    pub(in crate::server) fn depose(&self) {
        self.is_deposed.store(true, Release);
    }

    pub(in crate::server) fn is_deposed(&self) -> bool {
        self.is_deposed.load(Acquire)
    }

    /// All threads are to take the place of a server.
    pub(in crate::server) fn promote(&self, wanted: Promotion) {
        *self.promotion() = PromotionState { wanted: Some(wanted), done: Vec::new() };
        self.promotions.fetch_add(1, Release);
    }

    /// The promotion that a thread has not tried. `seen`: how many it has seen.
    pub(in crate::server) fn next_promotion(&self, seen: &mut u64) -> Option<Promotion> {
        let promotions = self.promotions.load(Acquire);
        if std::mem::replace(seen, promotions) == promotions {
            return None;
        }
        self.promotion().wanted
    }

    /// A thread has tried a promotion.
    pub(in crate::server) fn note_promoted(&self, of: Promotion, outcome: Result<u32, String>) {
        let mut state = self.promotion();
        if state.wanted == Some(of) {
            state.done.push(outcome);
        }
    }

    /// What became of the promotion, if all threads have tried it.
    pub(in crate::server) fn promoted(&self, threads: usize) -> Option<Result<u32, String>> {
        let state = self.promotion();
        if state.done.len() < threads {
            return None;
        }
        let tables = state.done.iter().cloned().collect::<Result<Vec<u32>, String>>();
        Some(tables.map(|tables| tables.into_iter().max().unwrap_or(0)))
    }
}
