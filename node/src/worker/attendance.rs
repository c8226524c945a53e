//! A worker's seat in a job, kept up: a thread that says that the worker lives while others pull and push, and that fences the
//! dead when the worker is the chief. Others ask the scheduler through the same link, one at a time.

use super::Seat;
use crate::error::WorkerError;
use crate::limits::{ASK_EVERY, BEAT_MAX, BEATS, WAIT_LOGGED, WAITS_LOGGED};
use crate::scheduler::book::{Given, Orders};
use crate::scheduler::holdings::TableRecord;
use crate::scheduler::member::{Life, Told};
use crate::tally::WorkerTally;
use gannet_transport::Net;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Fences a life at every shard owner: nothing that it pushes is taken afterwards.
pub type Hands = Box<dyn FnMut(Life) -> Result<(), WorkerError> + Send>;

/// See the module. Dropping it ends the thread without a word: the worker is then taken for dead.
pub struct Attendance<N: Net> {
    shared: Arc<Shared<N>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<N: Net> {
    seat: Mutex<Seat<N>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Of the worker that trains.
    tally: Arc<WorkerTally>,
}

#[derive(Default)]
struct State {
    told: Told,
    orders: Orders,
    /// Tasks that this worker has.
    holding: Vec<u64>,
    /// Why it is in the job no more.
    lost: Option<String>,
    over: bool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<N> Attendance<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Keeps a seat. `hands` fences the dead while this worker is the chief; `tally` is that of the worker that trains: its
    /// clock, how stale rows were, and for whom it waits are told with each sign of life.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn begin(seat: Seat<N>, hands: Hands, tally: Arc<WorkerTally>) -> std::io::Result<Attendance<N>> {
        let every = (seat.plan().worker_timeout() / BEATS).min(BEAT_MAX);
        let (seat, state) = (Mutex::new(seat), Mutex::default());
        let shared = Arc::new(Shared { seat, state, changed: Condvar::new(), tally });
        let beating = shared.clone();
        let builder = std::thread::Builder::new().name("gannet-member".into());
        let thread = Some(builder.spawn(move || beating.attend(every, hands))?);
        Ok(Attendance { shared, thread })
    }
}

impl<N: Net> Shared<N> {
    /// What is said with a sign of life.
    fn told(&self) -> Told {
        let told = lock(&self.state).told.clone();
        let (clock, staleness, waits_for) = self.tally.step();
        Told { clock, staleness, waits_for, ..told }
    }

    fn attend(&self, every: Duration, mut hands: Hands) {
        loop {
            let told = self.told();
            let beaten = lock(&self.seat).beat(told);
            let orders = match beaten {
                Ok(orders) => orders,
                Err(error) => return self.lose(&error),
            };
            let dead = orders.fence.clone();
            lock(&self.state).orders = orders;
            for life in dead {
                // It is told of it again with the next sign of life.
                if let Err(error) = hands(life) {
                    tracing::warn!(worker = life.rank, %error, "a dead worker is not yet fenced");
                    continue;
                }
                if let Err(error) = lock(&self.seat).fenced(life) {
                    return self.lose(&error);
                }
            }
            let state = lock(&self.state);
            let (state, _) = self
                .changed
                .wait_timeout_while(state, every, |state| !state.over)
                .unwrap_or_else(PoisonError::into_inner);
            if state.over {
                return;
            }
        }
    }

    fn lose(&self, error: &WorkerError) {
        tracing::error!(%error, "this worker is no longer in the job");
        lock(&self.state).lost = Some(error.to_string());
    }
}

impl<N: Net> Attendance<N> {
    /// Changes what is said with the next sign of life.
    pub fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut lock(&self.shared.state).told);
    }

    /// Says at once that this worker lives, and hears what the scheduler has to say.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn beat_now(&self) -> Result<Orders, String> {
        let told = self.shared.told();
        self.ask(|seat| seat.beat(told))
    }

    /// Why this worker, or the whole job, cannot go on, if so.
    pub fn lost(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        state.lost.clone().or_else(|| state.orders.failed.clone())
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Seat<N>) -> Result<T, WorkerError>) -> Result<T, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => ask(&mut lock(&self.shared.seat)).map_err(|error| error.to_string()),
        }
    }

    /// The next task; waits while others may give some back, until `stop`. `None`: all are done, or `stop`.
    ///
    /// # Errors
    /// Why this worker cannot go on.
    pub fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Given>, String> {
        let (since, mut logged) = (Instant::now(), Duration::ZERO);
        loop {
            if stop() {
                return Ok(None);
            }
            let holding = lock(&self.shared.state).holding.clone();
            match self.ask(|seat| seat.take(&holding))? {
                Given::Over => return Ok(None),
                Given::Wait => {
                    let waited = since.elapsed();
                    if waited >= WAIT_LOGGED.max(logged + WAITS_LOGGED) {
                        logged = waited;
                        let seconds = waited.as_secs();
                        tracing::info!(seconds, "no task is free: others hold the last ones");
                    }
                    std::thread::sleep(ASK_EVERY);
                }
                given @ Given::Task { index, .. } => {
                    lock(&self.shared.state).holding.push(index);
                    return Ok(Some(given));
                }
            }
        }
    }

    /// A task of so many records is trained and acknowledged.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.ask(|seat| seat.done(index, examples))?;
        let mut state = lock(&self.shared.state);
        state.holding.retain(|held| *held != index);
        state.told.acked.retain(|(held, _)| *held != index);
        Ok(())
    }

    /// The first batches of a task are acknowledged.
    pub fn acked(&self, index: u64, batches: u64) {
        let mut state = lock(&self.shared.state);
        state.told.acked.retain(|(held, _)| *held != index);
        state.told.acked.push((index, batches));
    }

    /// Comes to a barrier and waits there until all workers have, for at most `limit`, or until `stop`; true when they have.
    ///
    /// # Errors
    /// As [`take`](Self::take); somebody has not come in time.
    pub fn meet(&self, name: &str, limit: Duration, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        let (since, mut logged) = (Instant::now(), Duration::ZERO);
        loop {
            let missing = self.ask(|seat| seat.meet(name))?;
            if missing.is_empty() || stop() {
                return Ok(missing.is_empty());
            }
            let (waited, seconds) = (since.elapsed(), since.elapsed().as_secs_f64());
            if waited > limit {
                return Err(format!("workers {missing:?} have not come to {name:?} in {seconds:.1} s"));
            }
            if waited >= WAIT_LOGGED.max(logged + WAITS_LOGGED) {
                logged = waited;
                tracing::warn!(?missing, seconds, name, "waiting for workers that are still to come");
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Tells the scheduler what the rows of a table of the job are, as this worker found them.
    ///
    /// # Errors
    /// As [`take`](Self::take); or they are not those that the job has trained, which ends it.
    pub fn note_table(&self, table: TableRecord) -> Result<(), String> {
        self.ask(|seat| seat.note_table(table))
    }

    /// Tells the whole job that it cannot go on.
    pub fn fail(&self, why: &str) {
        if let Err(error) = self.ask(|seat| seat.fail(why)) {
            tracing::warn!(error, "the scheduler has not heard why");
        }
    }

    /// Goes: says how far it came, gives back what it has, and ends the thread.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn leave(mut self) -> Result<(), String> {
        self.end();
        let told = self.shared.told();
        self.ask(|seat| seat.beat(told).and_then(|_| seat.leave()))
    }
}

impl<N: Net> Attendance<N> {
    fn end(&mut self) {
        lock(&self.shared.state).over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has no result; a panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl<N: Net> Drop for Attendance<N> {
    fn drop(&mut self) {
        self.end();
    }
}
