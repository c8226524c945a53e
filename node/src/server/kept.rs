//! What the pushes that are kept for synchronous steps may take: one budget for all threads and tables of a server.
//!
//! Pushes of a step that is due must always be able to come, or nothing is ever applied and given back. So half
//! of the budget is for all, and the other half is the passage: one step that is due may have it, until it is
//! applied, when there is no room left in the first half. Pushes of later steps never have it. So whatever the
//! others hold, that one step comes to its end, then the next that waits has the passage. A step that takes more
//! than half of the budget may find no room, and is refused.

use super::sums::Room;
use crate::limits::BSP_BYTES_MAX;
use gannet_core::Store;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The budget of a server.
#[derive(Debug)]
pub(super) struct KeptBudget {
    max: usize,
    /// Taken of the half that is for all.
    open: AtomicUsize,
    /// The share that has the passage, by its number; 0: nobody.
    passing: AtomicU64,
    shares: AtomicU64,
    /// The bytes are taken of the store's limit, once there are synchronous steps.
    aside: Mutex<bool>,
}

impl KeptBudget {
    pub(super) fn new(max: usize) -> Arc<KeptBudget> {
        Arc::new(KeptBudget {
            max,
            open: AtomicUsize::new(0),
            passing: AtomicU64::new(0),
            shares: AtomicU64::new(1),
            aside: Mutex::new(false),
        })
    }

    /// Of a server with so many threads: a quarter of its `--memory-limit`, if it has one.
    pub(super) fn of(store: &Store, threads: usize) -> Arc<KeptBudget> {
        let quarter = usize::try_from(store.memory_limit() / 4).unwrap_or(usize::MAX);
        KeptBudget::new(BSP_BYTES_MAX.saturating_mul(threads).min(quarter))
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Takes the bytes of the store's limit, so that rows and kept pushes together stay within it; why not, in words.
    pub(super) fn set_aside(&self, store: &Store) -> Result<(), String> {
        if store.memory_limit() == u64::MAX {
            return Ok(());
        }
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        if !*aside && !store.set_aside(self.max as u64) {
            let (max, used, limit) = (self.max, store.memory_used(), store.memory_limit());
            return Err(format!(
                "synchronous steps need {max} of the {limit} bytes of --memory-limit for pushes that are kept, and \
                 {used} are taken: start the server with a larger --memory-limit"
            ));
        }
        *aside = true;
        Ok(())
    }

    fn take_open(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.max / 2);
        self.open.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// What one group of workers, on one thread, has taken of the budget. Dropped, it gives all back.
#[derive(Debug)]
pub(super) struct KeptShare {
    budget: Arc<KeptBudget>,
    number: u64,
    bytes: usize,
    /// How many of them are in the passage.
    passed: usize,
}

impl KeptShare {
    pub(super) fn new(budget: Arc<KeptBudget>) -> KeptShare {
        let number = budget.shares.fetch_add(1, Relaxed);
        KeptShare { budget, number, bytes: 0, passed: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes bytes for a push, of the step that is `due` or of a later one.
    pub(super) fn take(&mut self, bytes: usize, due: bool) -> Room {
        if self.budget.take_open(bytes) {
            self.bytes += bytes;
            return Room::Kept;
        }
        if !due {
            return Room::Later;
        }
        if bytes > self.budget.max - self.budget.max / 2 {
            return Room::Full;
        }
        let passing = self.budget.passing.compare_exchange(0, self.number, AcqRel, Acquire);
        if passing.is_err_and(|who| who != self.number) {
            // Whoever passes comes to its end.
            return Room::Later;
        }
        if self.passed + bytes > self.budget.max - self.budget.max / 2 {
            return Room::Full;
        }
        self.passed += bytes;
        self.bytes += bytes;
        Room::Kept
    }

    /// Gives bytes back, those in the passage first.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let of_passage = bytes.min(self.passed);
        self.bytes -= bytes;
        self.budget.open.fetch_sub(bytes - of_passage, Relaxed);
        self.passed -= of_passage;
        if self.passed == 0 {
            // Others may have the passage, if this share had it.
            let _ = self.budget.passing.compare_exchange(self.number, 0, AcqRel, Acquire);
        }
    }
}

impl Default for KeptShare {
    /// Of a budget of its own.
    fn default() -> KeptShare {
        KeptShare::new(KeptBudget::new(BSP_BYTES_MAX))
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1_000;

    #[test]
    fn two_threads_kept_twice_what_one_server_may() {
        let budget = KeptBudget::new(MAX);
        let mut shares = [KeptShare::new(budget.clone()), KeptShare::new(budget.clone())];
        let mut kept = 0;
        for round in 0..40 {
            if shares[round % 2].take(50, true) == Room::Kept {
                kept += 50;
            }
        }
        assert_eq!((kept, shares[0].bytes() + shares[1].bytes()), (MAX, MAX));
        shares[0].give_back(MAX / 2);
        drop(shares);
        assert_eq!(KeptShare::new(budget).take(MAX / 2, false), Room::Kept);
    }

    #[test]
    fn a_step_that_can_never_fit_is_refused() {
        let budget = KeptBudget::new(MAX);
        let (mut one, mut other) = (KeptShare::new(budget.clone()), KeptShare::new(budget));
        assert_eq!(other.take(400, false), Room::Kept);
        assert_eq!(one.take(501, true), Room::Full);
        assert_eq!((one.take(500, true), one.take(101, true)), (Room::Kept, Room::Full));
        assert_eq!(one.bytes(), 500);
        one.give_back(500);
        assert_eq!(other.take(500, true), Room::Kept);
    }

    /// Groups (a table on a thread) of some workers. Each worker pushes pieces of its steps in order, to
    /// every group by itself, and may be ahead of the others.
    struct Groups {
        shares: Vec<KeptShare>,
        /// The step that is due, of each group.
        at: Vec<usize>,
        /// Of each group and worker: the pieces that are still to come, by step.
        to_come: Vec<Vec<Vec<Vec<usize>>>>,
        /// Of each group and step: bytes that are kept.
        kept: Vec<Vec<usize>>,
        /// Of each group and worker: the step that it is in.
        clocks: Vec<Vec<usize>>,
    }

    impl Groups {
        fn new(sizes: &[Vec<Vec<Vec<usize>>>], budget: &Arc<KeptBudget>) -> Groups {
            let (groups, steps) = (sizes.len(), sizes[0][0].len());
            Groups {
                shares: (0..groups).map(|_| KeptShare::new(budget.clone())).collect(),
                at: vec![0; groups],
                to_come: sizes.to_vec(),
                kept: vec![vec![0; steps]; groups],
                clocks: vec![vec![0; sizes[0].len()]; groups],
            }
        }

        /// The next piece of a worker comes to a group; whether anything changed.
        fn piece(&mut self, group: usize, worker: usize) -> bool {
            let step = self.clocks[group][worker];
            let Some(pieces) = self.to_come[group][worker].get_mut(step) else { return false };
            let Some(&bytes) = pieces.last() else {
                self.clocks[group][worker] += 1;
                self.apply(group);
                return true;
            };
            match self.shares[group].take(bytes, step == self.at[group]) {
                Room::Kept => {
                    pieces.pop();
                    self.kept[group][step] += bytes;
                    true
                }
                Room::Later => false,
                room => panic!("a step of at most half of the budget: {room:?}"),
            }
        }

        fn apply(&mut self, group: usize) {
            while self.clocks[group].iter().all(|&clock| clock > self.at[group]) {
                let step = self.at[group];
                self.shares[group].give_back(self.kept[group][step]);
                self.at[group] += 1;
            }
        }
    }

    /// Sizes: groups of workers of steps of pieces; a whole step is at most half of the budget.
    fn sizes() -> impl Strategy<Value = Vec<Vec<Vec<Vec<usize>>>>> {
        (1..5usize, 1..4usize, 1..5usize).prop_flat_map(|(groups, workers, steps)| {
            let piece = 1..=MAX / 2 / workers / 3;
            let step = prop::collection::vec(piece, 0..=3);
            let worker = prop::collection::vec(step, steps);
            prop::collection::vec(prop::collection::vec(worker, workers), groups)
        })
    }

    proptest! {
        #[test]
        fn steps_that_are_due_come_to_their_end_whatever_others_hold(
            sizes in sizes(),
            order in prop::collection::vec((0..4usize, 0..3usize), 0..200),
        ) {
            let budget = KeptBudget::new(MAX);
            let mut groups = Groups::new(&sizes, &budget);
            let (count, workers, steps) = (sizes.len(), sizes[0].len(), sizes[0][0].len());
            // First as it happens to come, then whoever can.
            for (group, worker) in order {
                groups.piece(group % count, worker % workers);
                prop_assert!(groups.shares.iter().map(KeptShare::bytes).sum::<usize>() <= MAX);
            }
            loop {
                let all = (0..count).flat_map(|group| (0..workers).map(move |worker| (group, worker)));
                let moved = all.filter(|&(group, worker)| groups.piece(group, worker)).count();
                prop_assert!(groups.shares.iter().map(KeptShare::bytes).sum::<usize>() <= MAX);
                if moved == 0 {
                    break;
                }
            }
            prop_assert!(groups.at.iter().all(|&at| at == steps), "stuck at {:?}", groups.at);
            prop_assert_eq!(groups.shares.iter().map(KeptShare::bytes).sum::<usize>(), 0);
            prop_assert_eq!(budget.open.load(Relaxed), 0);
            prop_assert_eq!(budget.passing.load(Relaxed), 0);
        }
    }
}
