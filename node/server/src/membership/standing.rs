//! What a server is at the moment: an owner with a lease, or not. The membership decides, and the threads that own
//! shards act on it.

use crate::places::own::{OwnPlace, OwnPlaces, Positions, Promotion};
use crate::restore::loaded::{LoadedPart, LoadedPlace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the threads of a server share with its membership.
#[derive(Default)]
pub(crate) struct Standing {
    /// The time of the server's leases.
    lease: Duration,
    /// The places that the server owns. For each, when its lease ends by the server's clock.
    places: Mutex<BTreeMap<u32, (Duration, OwnPlace)>>,
    /// How often they have changed, apart from the leases.
    changes: AtomicU64,
    /// Places of which nothing is acknowledged yet.
    held: Mutex<BTreeSet<u32>>,
    /// How many these are.
    holds: AtomicU64,
    /// The first of these ends, in nanoseconds. 0: the server owns nothing.
    until: AtomicU64,
    /// The server may not own its shards.
    is_deposed: AtomicBool,
    /// Why, and what to do.
    deposed: Mutex<String>,
    /// The places that all threads are to take, from the first on.
    promotions: Mutex<Vec<PromotionRecord>>,
    /// How many promotions these are.
    promoted: AtomicU64,
    /// Places whose rows could not be loaded, and why.
    failures: Mutex<BTreeMap<u32, String>>,
    /// The job goes back to a checkpoint.
    goes_back: AtomicBool,
    /// How far the shards of each thread are then.
    positions: Mutex<BTreeMap<u32, Positions>>,
}

struct PromotionRecord {
    wanted: Promotion,
    /// The rows, if they were loaded from a checkpoint. Otherwise the threads have copies of them.
    loaded: Option<LoadedPlace>,
    /// What became of it on the threads that have tried.
    done: Vec<Result<u32, String>>,
}

impl Standing {
    /// Of a server whose leases have this time.
    pub(crate) fn new(lease: Duration) -> Standing {
        Standing { lease, ..Standing::default() }
    }

    /// The time of the server's leases.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, (Duration, OwnPlace)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promotions(&self) -> MutexGuard<'_, Vec<PromotionRecord>> {
        self.promotions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server owns a place in this epoch, and has a lease for it until then.
    pub(crate) fn own(&self, (place, epoch): (u32, u64), until: Duration) {
        let mut places = self.places();
        // A session, and an image, belong to one epoch of each place: a process has a place in one epoch only.
        let known = places.get(&place).map(|(_, known)| *known);
        if known.is_some_and(|known| known.epoch != epoch) {
            return self.depose("it was given a place in two epochs: start it again");
        }
        let is_held = self.is_held(place);
        places.insert(place, (until, known.unwrap_or(OwnPlace { epoch, is_ready: false, is_held })));
        let first = places.values().map(|(until, _)| *until).min();
        let first = first.map_or(0, |first| first.as_nanos() as u64);
        self.until.store(first, Release);
        if known.is_none() {
            self.changes.fetch_add(1, Release);
        }
    }

    /// The server has a lease for a place that it owns until then.
    pub(crate) fn renew(&self, place: u32, until: Duration) {
        let epoch = self.epoch(place);
        self.own((place, epoch), until);
    }

    /// The epoch in which the server has got a place. 0: it has not.
    pub(crate) fn epoch(&self, place: u32) -> u64 {
        self.places().get(&place).map_or(0, |(_, known)| known.epoch)
    }

    /// The coordinator knows that the server has all rows of a place.
    pub(crate) fn note_ready(&self, place: u32) {
        if let Some((_, known)) = self.places().get_mut(&place).filter(|(_, known)| !known.is_ready) {
            known.is_ready = true;
            self.changes.fetch_add(1, Release);
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the server acknowledges nothing, until this place is released. It is called before any thread has
    /// the place.
    pub(crate) fn hold(&self, place: u32) {
        let mut held = self.held();
        held.insert(place);
        self.holds.store(held.len() as u64, Release);
    }

    /// Whether a place is held.
    pub(crate) fn is_held(&self, place: u32) -> bool {
        self.held().contains(&place)
    }

    /// Whether any place is.
    pub(crate) fn holds_any(&self) -> bool {
        self.holds.load(Acquire) > 0
    }

    /// All backups in the set of the place have what is here, or there are none.
    pub(crate) fn release(&self, place: u32) {
        if let Some((_, known)) = self.places().get_mut(&place) {
            known.is_held = false;
        }
        let mut held = self.held();
        held.remove(&place);
        self.holds.store(held.len() as u64, Release);
        self.changes.fetch_add(1, Release);
    }

    /// Whether the server owns a place.
    pub(crate) fn owns(&self, place: u32) -> bool {
        self.places().contains_key(&place)
    }

    /// Whether the server owns a place at all.
    pub(crate) fn owns_any(&self) -> bool {
        !self.places().is_empty()
    }

    /// Adds the places that the server owns to those that a thread knows.
    pub(crate) fn update(&self, known: &mut OwnPlaces) {
        let changes = self.changes.load(Acquire);
        if known.changes != changes {
            let own = known.places.get_or_insert_default();
            own.extend(self.places().iter().map(|(place, (_, of))| (*place, *of)));
            known.changes = changes;
        }
    }

    /// Whether the server must say nothing now: the lease of a place has ended.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        let until = self.until.load(Acquire);
        until != 0 && now.as_nanos() as u64 >= until
    }

    /// The server may not own its shards: why, and what to do.
    pub(crate) fn depose(&self, why: &str) {
        why.clone_into(&mut self.deposed.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_deposed.store(true, Release);
    }

    /// Why the server may not own its shards, if it may not.
    pub(crate) fn deposed(&self) -> Option<String> {
        let why = || self.deposed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.is_deposed.load(Acquire).then(why)
    }

    /// The job goes back to a checkpoint. The server says nothing more, and its threads say how far their shards are.
    pub(crate) fn go_back(&self) {
        self.until.store(1, Release);
        self.goes_back.store(true, Release);
    }

    pub(crate) fn goes_back(&self) -> bool {
        self.goes_back.load(Acquire)
    }

    fn positions(&self) -> MutexGuard<'_, BTreeMap<u32, Positions>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the shards of a thread are when the job goes back. The thread says so once.
    pub(crate) fn note_positions(&self, thread: u32, of: impl FnOnce() -> Positions) {
        self.positions().entry(thread).or_insert_with(of);
    }

    /// How far the shards of so many threads are, if all have said so.
    pub(crate) fn last_positions(&self, threads: usize) -> Option<Positions> {
        let all = self.positions();
        (all.len() == threads).then(|| all.values().flatten().cloned().collect())
    }

    /// All threads are to take the place of a server, with the rows that were `loaded` from a checkpoint or with their
    /// copies.
    pub(crate) fn promote(&self, wanted: Promotion, loaded: Option<LoadedPlace>) {
        let mut promotions = self.promotions();
        promotions.push(PromotionRecord { wanted, loaded, done: Vec::new() });
        self.promoted.store(promotions.len() as u64, Release);
    }

    /// The rows of a place could not be loaded.
    pub(crate) fn note_failure(&self, place: u32, why: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(place, why);
    }

    /// The next promotion for a thread that has tried this many, and its part of the rows if they were loaded.
    pub(crate) fn next_promotion(&self, tried: u64, thread: u32) -> Option<(Promotion, Option<LoadedPart>)> {
        if self.promoted.load(Acquire) == tried {
            return None;
        }
        let mut promotions = self.promotions();
        let PromotionRecord { wanted, loaded, .. } = promotions.get_mut(tried as usize)?;
        Some((*wanted, loaded.as_mut().map(|loaded| loaded.take(thread))))
    }

    /// A thread has tried a promotion, of which it had tried this many before.
    pub(crate) fn note_promoted(&self, tried: u64, outcome: Result<u32, String>) {
        if let Some(PromotionRecord { done, .. }) = self.promotions().get_mut(tried as usize) {
            done.push(outcome);
        }
    }

    /// What became of the last promotion to a place, if all threads have tried it.
    pub(crate) fn outcome(&self, place: u32, threads: usize) -> Option<Result<u32, String>> {
        if let Some(why) = self.failures.lock().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return Some(Err(why.clone()));
        }
        let promotions = self.promotions();
        let PromotionRecord { done, .. } = promotions.iter().rfind(|of| of.wanted.server == place)?;
        if done.len() < threads {
            return None;
        }
        let tables = done.iter().cloned().collect::<Result<Vec<u32>, String>>();
        Some(tables.map(|tables| tables.into_iter().max().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_server_is_silent_when_the_lease_of_one_of_its_places_has_ended() {
        let standing = Standing::new(4 * SECOND);
        assert!(!standing.is_silent(9 * SECOND), "it owns nothing");
        standing.own((0, 1), 5 * SECOND);
        standing.own((2, 7), 6 * SECOND);
        standing.own((0, 1), 8 * SECOND);
        assert!(!standing.is_silent(6 * SECOND - Duration::from_nanos(1)) && standing.is_silent(6 * SECOND));
        assert_eq!(standing.deposed(), None);
    }

    #[test]
    fn a_server_that_would_have_a_place_in_two_epochs_ends() {
        let standing = Standing::new(SECOND);
        standing.own((0, 1), SECOND);
        standing.own((1, 2), SECOND);
        assert_eq!(standing.deposed(), None);
        standing.own((0, 2), 9 * SECOND);
        assert!(standing.deposed().is_some_and(|why| why.contains("two epochs")));
    }
}
