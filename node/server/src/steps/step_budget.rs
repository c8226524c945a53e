//! The memory budget for pushes that wait for their synchronous step: one budget for all threads and tables of a
//! server.
//!
//! Pushes of a due step must always find memory in the end: otherwise no step is applied, and no memory is freed. So
//! half of the budget is open to all pushes. The other half is the passage: when the open half is full, the due steps
//! of one thread may use the passage until they are applied. Pushes of later steps never use it. So these due steps
//! complete, and then the next thread gets the passage.
//!
//! All tables of a thread use the passage together. A worker pushes to the tables in turn over one link, so its push to
//! one table waits behind its push to another. If the due steps of one thread need more than half of the budget
//! together, they may find no memory, and are refused.
//!
//! Under a `--memory-limit` the budget depends on that limit alone. So a server that restarts with another number of
//! threads has memory for everything that it had before. If rows leave less than the budget, as under a smaller limit,
//! the budget is half of what they leave.

use crate::limits::BSP_BYTES_MAX;
use crate::steps::step::StepAdmission;
use gannet_core::Store;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A budget smaller than this part of the full one is refused: training would crawl.
const LEAST_PART: usize = 8;

/// The budget of a server.
#[derive(Debug)]
pub(crate) struct StepBudget {
    /// Bytes. Reduced if the store's limit had fewer bytes left.
    max: AtomicUsize,
    /// Bytes taken from the open half.
    open: AtomicUsize,
    passage: Mutex<DueStepTurn>,
    /// Whether the bytes are set aside in the store's limit. That happens once there are synchronous steps.
    aside: Mutex<bool>,
}

/// The passage: the half of the budget that is for due steps.
#[derive(Debug, Default)]
struct DueStepTurn {
    /// The thread that has the passage, while `bytes` is above 0.
    thread: u32,
    bytes: usize,
}

impl StepBudget {
    pub(crate) fn new(max: usize) -> Arc<StepBudget> {
        Arc::new(StepBudget {
            max: AtomicUsize::new(max),
            open: AtomicUsize::new(0),
            passage: Mutex::default(),
            aside: Mutex::new(false),
        })
    }

    /// The budget of a server: a quarter of its `--memory-limit`, or a constant for each thread without one.
    pub(crate) fn of(store: &Store, threads: usize) -> Arc<StepBudget> {
        StepBudget::new(match store.memory_limit() {
            u64::MAX => BSP_BYTES_MAX.saturating_mul(threads),
            limit => usize::try_from(limit / 4).unwrap_or(usize::MAX),
        })
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    /// Sets the budget aside in the store's limit, so that rows and waiting pushes together stay within it. The error
    /// says why that is impossible.
    pub(crate) fn set_aside(&self, store: &Store) -> Result<(), String> {
        let limit = store.memory_limit();
        if limit == u64::MAX {
            return Ok(());
        }
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.max();
        while !*aside {
            let used = store.memory_used();
            // A server that is started again has rows where it had none when it set its budget aside. Where rows take
            // more, they must be able to grow as well.
            let left = limit.saturating_sub(used);
            let bytes = if left >= most as u64 { most as u64 } else { left / 2 };
            if bytes < (most / LEAST_PART) as u64 {
                return Err(format!(
                    "synchronous steps need at least {} of the {limit} bytes of --memory-limit for stored pushes, and \
                     {used} are taken: start the server with a larger --memory-limit",
                    most / LEAST_PART
                ));
            }
            *aside = store.set_aside(bytes);
            if *aside && bytes < most as u64 {
                self.max.store(bytes as usize, Relaxed);
                tracing::warn!(
                    bytes,
                    most,
                    limit,
                    "rows have taken most of --memory-limit: synchronous steps may keep less than a quarter of it"
                );
            }
        }
        Ok(())
    }

    fn take_open(&self, bytes: usize) -> bool {
        let most = self.max() / 2;
        let more = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= most);
        self.open.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn passage(&self) -> MutexGuard<'_, DueStepTurn> {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that one group of workers, on one thread, has taken from the budget. Dropping it gives all of them back.
#[derive(Debug)]
pub(crate) struct StepBudgetShare {
    budget: Arc<StepBudget>,
    thread: u32,
    bytes: usize,
    /// How many of the bytes are in the passage.
    passed: usize,
}

impl StepBudgetShare {
    pub(crate) fn new(budget: Arc<StepBudget>, thread: u32) -> StepBudgetShare {
        StepBudgetShare { budget, thread, bytes: 0, passed: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes bytes for a push, of the step that is `due` or of a later one.
    pub(crate) fn take(&mut self, bytes: usize, due: bool) -> StepAdmission {
        if self.budget.take_open(bytes) {
            self.bytes += bytes;
            return StepAdmission::Kept;
        }
        if !due {
            return StepAdmission::Later;
        }
        let most = self.budget.max().div_ceil(2);
        let mut passage = self.budget.passage();
        if bytes > most {
            return StepAdmission::Full;
        }
        if passage.bytes > 0 && passage.thread != self.thread {
            // The thread that has the passage will give it back: its steps complete.
            return StepAdmission::Later;
        }
        if passage.bytes + bytes > most {
            return StepAdmission::Full;
        }
        *passage = DueStepTurn { thread: self.thread, bytes: passage.bytes + bytes };
        self.passed += bytes;
        self.bytes += bytes;
        StepAdmission::Kept
    }

    /// Gives bytes back, those in the passage first.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let of_passage = bytes.min(self.passed);
        self.bytes -= bytes;
        self.budget.open.fetch_sub(bytes - of_passage, Relaxed);
        if of_passage > 0 {
            self.passed -= of_passage;
            self.budget.passage().bytes -= of_passage;
        }
    }
}

impl Default for StepBudgetShare {
    /// A share of a budget of its own.
    fn default() -> StepBudgetShare {
        StepBudgetShare::new(StepBudget::new(BSP_BYTES_MAX), 0)
    }
}

impl Drop for StepBudgetShare {
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
        let budget = StepBudget::new(MAX);
        let mut shares = [0, 1].map(|thread| StepBudgetShare::new(budget.clone(), thread));
        let mut stored = 0;
        for round in 0..40 {
            if shares[round % 2].take(50, true) == StepAdmission::Kept {
                stored += 50;
            }
        }
        assert_eq!((stored, shares[0].bytes() + shares[1].bytes()), (MAX, MAX));
        shares[0].give_back(MAX / 2);
        drop(shares);
        assert_eq!(StepBudgetShare::new(budget, 2).take(MAX / 2, false), StepAdmission::Kept);
    }

    #[test]
    fn a_step_that_can_never_fit_is_refused() {
        let budget = StepBudget::new(MAX);
        let (mut one, mut other) = (StepBudgetShare::new(budget.clone(), 0), StepBudgetShare::new(budget, 1));
        assert_eq!(other.take(400, false), StepAdmission::Kept);
        assert_eq!(one.take(501, true), StepAdmission::Full);
        assert_eq!((one.take(500, true), one.take(101, true)), (StepAdmission::Kept, StepAdmission::Full));
        assert_eq!(one.bytes(), 500);
        one.give_back(500);
        assert_eq!(other.take(500, true), StepAdmission::Kept);
    }

    /// A server that restarted with another number of threads refused every synchronous job: it set aside more than
    /// rows left.
    #[test]
    fn the_budget_is_of_the_limit_and_not_of_the_threads() {
        let store = || Store::memory_with(gannet_core::GrowthConfig { memory_limit: 4 << 20, clock: None });
        for threads in [1, 2, 8, 64] {
            let store = store();
            assert!(store.set_aside(2 << 20));
            let budget = StepBudget::of(&store, threads);
            assert_eq!((budget.set_aside(&store), budget.max()), (Ok(()), 1 << 20), "{threads} threads");
            assert_eq!(budget.set_aside(&store), Ok(()), "it is taken once");
        }
        // A server that was started again had half of its budget: rows had taken what the budget had left them.
        let full = store();
        assert!(full.set_aside(3 << 20));
        let budget = StepBudget::of(&full, 2);
        assert_eq!((budget.set_aside(&full), budget.max()), (Ok(()), 1 << 20));
        // Half of what is left, down to an eighth of the most.
        let (store, left) = (store(), (1 << 20) / LEAST_PART);
        assert!(store.set_aside((4 << 20) - 2 * left as u64));
        let budget = StepBudget::of(&store, 2);
        assert_eq!((budget.set_aside(&store), budget.max()), (Ok(()), left));
        let none = StepBudget::of(&store, 2).set_aside(&store).unwrap_err();
        assert!(none.contains("a larger --memory-limit"), "{none}");
    }

    /// What a worker sends to a thread, in this order.
    #[derive(Debug, Clone, Copy)]
    enum Sent {
        /// Bytes of a push to a table.
        Part(usize, usize),
        /// The worker has finished its step of a table.
        Tick(usize),
    }

    /// Groups (a table on a thread) of some workers. Each worker sends its pushes to a thread over one link, step by
    /// step and table by table, and may be ahead of the others.
    struct Groups {
        /// By thread and table.
        shares: Vec<Vec<StepBudgetShare>>,
        /// The due step of each group.
        at: Vec<Vec<usize>>,
        /// By thread and worker, the last message first.
        to_come: Vec<Vec<Vec<Sent>>>,
        /// By thread, table and step: the bytes of stored pushes.
        stored: Vec<Vec<Vec<usize>>>,
        /// By thread, worker and table: the step that it is in.
        clocks: Vec<Vec<Vec<usize>>>,
    }

    /// Bytes of each part of a push, by thread, worker, step and table.
    type Sizes = Vec<Vec<Vec<Vec<Vec<usize>>>>>;

    impl Groups {
        fn new(sizes: &Sizes, budget: &Arc<StepBudget>) -> Groups {
            let (threads, workers) = (sizes.len(), sizes[0].len());
            let (steps, tables) = (sizes[0][0].len(), sizes[0][0][0].len());
            let of_table = |(table, parts): (usize, &Vec<usize>)| {
                let parts = parts.iter().map(move |&bytes| Sent::Part(table, bytes));
                parts.chain([Sent::Tick(table)]).collect::<Vec<_>>()
            };
            let of_worker = |steps: &Vec<Vec<Vec<usize>>>| {
                let all = steps.iter().flat_map(|tables| tables.iter().enumerate().flat_map(of_table));
                let mut all: Vec<Sent> = all.collect();
                all.reverse();
                all
            };
            let shares = |thread| (0..tables).map(|_| StepBudgetShare::new(budget.clone(), thread)).collect();
            Groups {
                shares: (0..threads as u32).map(shares).collect(),
                at: vec![vec![0; tables]; threads],
                to_come: sizes.iter().map(|workers| workers.iter().map(of_worker).collect()).collect(),
                stored: vec![vec![vec![0; steps]; tables]; threads],
                clocks: vec![vec![vec![0; tables]; workers]; threads],
            }
        }

        /// A thread receives the next message of a worker. Returns whether anything changed.
        fn receive(&mut self, thread: usize, worker: usize) -> bool {
            let clocks = &mut self.clocks[thread];
            match self.to_come[thread][worker].last() {
                None => return false,
                Some(&Sent::Tick(table)) => {
                    clocks[worker][table] += 1;
                    self.apply(thread, table);
                }
                Some(&Sent::Part(table, bytes)) => {
                    let step = clocks[worker][table];
                    let due = step == self.at[thread][table];
                    match self.shares[thread][table].take(bytes, due) {
                        StepAdmission::Kept => self.stored[thread][table][step] += bytes,
                        StepAdmission::Later => return false,
                        other => panic!("steps that fit: {other:?}"),
                    }
                }
            }
            self.to_come[thread][worker].pop();
            true
        }

        fn apply(&mut self, thread: usize, table: usize) {
            while self.clocks[thread].iter().all(|clocks| clocks[table] > self.at[thread][table]) {
                let step = self.at[thread][table];
                self.shares[thread][table].give_back(self.stored[thread][table][step]);
                self.at[thread][table] += 1;
            }
        }

        fn bytes(&self) -> usize {
            self.shares.iter().flatten().map(StepBudgetShare::bytes).sum()
        }
    }

    /// The due steps of all tables of a thread are together at most half of the budget.
    fn sizes() -> impl Strategy<Value = Sizes> {
        (1..4usize, 1..4usize, 1..5usize, 1..3usize).prop_flat_map(|(threads, workers, steps, tables)| {
            let part = 1..=MAX / 2 / workers / tables / 3;
            let of_table = prop::collection::vec(part, 0..=3);
            let step = prop::collection::vec(of_table, tables);
            let worker = prop::collection::vec(step, steps);
            prop::collection::vec(prop::collection::vec(worker, workers), threads)
        })
    }

    proptest! {
        /// Two tables waited for each other: one had the passage, and its next part was queued behind a part of the
        /// other.
        #[test]
        fn steps_that_are_due_come_to_their_end_whatever_others_hold(
            sizes in sizes(),
            order in prop::collection::vec((0..3usize, 0..3usize), 0..200),
        ) {
            let budget = StepBudget::new(MAX);
            let mut groups = Groups::new(&sizes, &budget);
            let (threads, workers, steps) = (sizes.len(), sizes[0].len(), sizes[0][0].len());
            // First in a random order, then everything that can go on.
            for (thread, worker) in order {
                groups.receive(thread % threads, worker % workers);
                prop_assert!(groups.bytes() <= MAX);
            }
            loop {
                let all = (0..threads).flat_map(|thread| (0..workers).map(move |worker| (thread, worker)));
                let moved = all.filter(|&(thread, worker)| groups.receive(thread, worker)).count();
                prop_assert!(groups.bytes() <= MAX);
                if moved == 0 {
                    break;
                }
            }
            let done = groups.at.iter().flatten().all(|&at| at == steps);
            prop_assert!(done, "stuck at {:?}", groups.at);
            prop_assert_eq!(groups.bytes(), 0);
            prop_assert_eq!(budget.open.load(Relaxed), 0);
            prop_assert_eq!(budget.passage().bytes, 0);
        }
    }
}
