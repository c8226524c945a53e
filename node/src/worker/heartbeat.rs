//! A worker's seat in a job, kept up: a thread that says that the worker lives and what it is at, while others pull and
//! push, and one that fences the dead when the worker has to. Fencing takes as long as servers take to answer, and the
//! signs of life go on meanwhile. Others ask the scheduler through the same link, one at a time.

use super::JobClient;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::limits::{ASK_EVERY, BEAT_MAX, BEATS, FAREWELL_TIME, WAIT_LOGGED, WAITS_LOGGED};
use crate::scheduler::job_state::HeartbeatReply;
use crate::scheduler::leases::SplitGrant;
use crate::scheduler::member::{Activity, ActivityKind, Progress, WorkerIncarnation};
use crate::scheduler::table_records::TableRecord;
use gannet_transport::Net;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Fences a life at every shard owner: nothing that it pushes is taken afterwards.
pub type FenceFn = Box<dyn FnMut(WorkerIncarnation) -> Result<(), WorkerError> + Send>;

/// See the module. Dropping it ends the signs of life without a word: the worker is then taken for dead. A fence that
/// is under way then is not waited for: whoever has to fence next begins it anew.
pub struct Heartbeat<N: Net> {
    shared: Arc<HeartbeatShared<N>>,
    thread: Option<JoinHandle<()>>,
}

struct HeartbeatShared<N: Net> {
    seat: Mutex<JobClient<N>>,
    state: Mutex<HeartbeatState>,
    changed: Condvar,
    /// Of the worker that trains.
    tally: Arc<WorkerCounters>,
    read_timeout: Duration,
}

#[derive(Default)]
struct HeartbeatState {
    told: Progress,
    orders: HeartbeatReply,
    /// Tasks that this worker has.
    holding: Vec<u64>,
    /// What it is at, where that is said.
    doing: Option<ActivityKind>,
    /// Things that it got done without its links.
    progress: u64,
    /// Lives that it is to fence, no more than a job can have unfenced, and the one that it is fencing.
    to_fence: BTreeSet<WorkerIncarnation>,
    fencing: Option<WorkerIncarnation>,
    /// It saves what there is so far: it was stopped while tasks were left.
    saves_early: bool,
    /// Why it is in the job no more.
    lost: Option<String>,
    over: bool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<N> Heartbeat<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Keeps a seat. `hands` fences the dead when this worker has to; `tally` is that of the worker that trains: its
    /// clock, how stale rows were, for whom it waits and whether it gets on are told with each sign of life.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn begin(
        seat: JobClient<N>,
        hands: FenceFn,
        tally: Arc<WorkerCounters>,
    ) -> std::io::Result<Heartbeat<N>> {
        let every = (seat.plan().worker_timeout() / BEATS).min(BEAT_MAX);
        let read_timeout = seat.plan().read_timeout();
        let (seat, state) = (Mutex::new(seat), Mutex::default());
        let shared = Arc::new(HeartbeatShared { seat, state, changed: Condvar::new(), tally, read_timeout });
        let (beating, fencing) = (shared.clone(), shared.clone());
        let builder = std::thread::Builder::new().name("gannet-member".into());
        let thread = Some(builder.spawn(move || beating.attend(every))?);
        // From here on dropping it ends both.
        let attendance = Heartbeat { shared, thread };
        std::thread::Builder::new().name("gannet-fence".into()).spawn(move || fencing.fence_all(hands))?;
        Ok(attendance)
    }
}

impl<N: Net> HeartbeatShared<N> {
    /// What is said with a sign of life.
    fn told(&self) -> (Progress, Activity) {
        let state = lock(&self.state);
        let (clock, staleness, waits_for) = self.tally.step();
        let doing = state.doing.unwrap_or(match (waits_for, state.holding.is_empty()) {
            (Some(_), _) => ActivityKind::Waiting,
            (None, true) => ActivityKind::Idle,
            (None, false) => ActivityKind::Learning,
        });
        let work = Activity { doing, progress: state.progress.wrapping_add(self.tally.turns()) };
        (Progress { clock, staleness, waits_for, ..state.told.clone() }, work)
    }

    /// Gives a sign of life, and takes note of the orders.
    fn beat(&self) -> Result<HeartbeatReply, WorkerError> {
        let (told, work) = self.told();
        let orders = lock(&self.seat).beat(told, work)?;
        let mut state = lock(&self.state);
        let fencing = state.fencing;
        state.to_fence =
            orders.fence.iter().copied().filter(|incarnation| Some(*incarnation) != fencing).collect();
        state.orders = orders.clone();
        if !state.to_fence.is_empty() {
            self.changed.notify_all();
        }
        Ok(orders)
    }

    /// Gives signs of life until the end.
    fn attend(&self, every: Duration) {
        loop {
            if let Err(error) = self.beat() {
                return self.lose(&error);
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

    /// Fences whom it is told to, one at a time, until the end. A fence that fails is told again with the next sign of
    /// life.
    fn fence_all(&self, mut hands: FenceFn) {
        while let Some(incarnation) = self.next_to_fence() {
            let fenced = hands(incarnation).and_then(|()| lock(&self.seat).fenced(incarnation));
            if let Err(error) = fenced {
                tracing::warn!(worker = incarnation.rank, %error, "a dead worker is not yet fenced");
            }
            lock(&self.state).fencing = None;
        }
    }

    fn next_to_fence(&self) -> Option<WorkerIncarnation> {
        let state = lock(&self.state);
        let waits = |state: &mut HeartbeatState| !state.over && state.to_fence.is_empty();
        let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return None;
        }
        state.fencing = state.to_fence.pop_first();
        state.fencing
    }

    fn lose(&self, error: &WorkerError) {
        // Whoever asks next is told why, and ends with that: once is enough.
        tracing::info!(%error, "this worker is no longer in the job");
        lock(&self.state).lost = Some(error.to_string());
    }
}

impl<N: Net> Heartbeat<N> {
    /// Changes what is said with the next sign of life.
    pub fn tell(&self, tell: impl FnOnce(&mut Progress)) {
        tell(&mut lock(&self.shared.state).told);
    }

    /// Says what this worker is at; `None`: it trains, and what it tells besides shows how.
    pub fn is_at(&self, doing: Option<ActivityKind>) {
        lock(&self.shared.state).doing = doing;
    }

    /// Something was done that no pull or push shows: bytes of the data were read.
    pub fn moved(&self) {
        let mut state = lock(&self.shared.state);
        state.progress = state.progress.wrapping_add(1);
    }

    /// How long the bytes of a data file may be waited for.
    pub fn read_timeout(&self) -> Duration {
        self.shared.read_timeout
    }

    /// Says at once that this worker lives, and hears what the scheduler has to say.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn beat_now(&self) -> Result<HeartbeatReply, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => self.shared.beat().map_err(|error| error.to_string()),
        }
    }

    /// Whether this worker is to test and save, when it has nothing more to train; `stop` ends the wait for that. When
    /// all is trained that is one worker, and the others wait until it has said that it [saved](Self::saved): one of
    /// them may have to take its place. A chief that hangs is given up by the scheduler. Of a job in which tasks are
    /// left this worker was stopped: it is told how things are.
    ///
    /// # Errors
    /// As [`take`](Self::take): then nobody is known to have saved.
    pub fn sum_up(&self, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        self.is_at(Some(ActivityKind::Ending));
        let mut wait = LoggedWait::begin();
        loop {
            let HeartbeatReply { chief, saver, trained, saved, .. } = self.beat_now()?;
            if chief || saved || !trained || stop() {
                let saves = chief && !saved;
                self.is_at(saves.then_some(ActivityKind::Saving).or(Some(ActivityKind::Ending)));
                lock(&self.shared.state).saves_early = saves && !trained;
                return Ok(saves);
            }
            if let (true, Some(worker)) = (wait.is_to_be_logged(), saver) {
                tracing::info!(
                    worker,
                    seconds = wait.seconds(),
                    "waiting for the worker that saves the model"
                );
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// This worker, which [was to](Self::sum_up), has tested and saved. Stays a moment for the others to hear of it, so
    /// that the scheduler can be ended with this worker. What one saved that was stopped while tasks were left is not
    /// the job's model: the scheduler is not told.
    ///
    /// # Errors
    /// As [`take`](Self::take); another worker was to.
    pub fn saved(&self) -> Result<(), String> {
        if lock(&self.shared.state).saves_early {
            return Ok(());
        }
        self.ask(|seat| seat.saved())?;
        let wait = LoggedWait::begin();
        while wait.since.elapsed() < FAREWELL_TIME && self.beat_now()?.live > 1 {
            std::thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Why this worker, or the whole job, cannot go on, if so.
    pub fn lost(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        state.lost.clone().or_else(|| state.orders.failed.clone())
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut JobClient<N>) -> Result<T, WorkerError>) -> Result<T, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => ask(&mut lock(&self.shared.seat)).map_err(|error| error.to_string()),
        }
    }

    /// The next task; waits while others may give some back, until `stop`. `None`: all are done, or `stop`.
    ///
    /// # Errors
    /// Why this worker cannot go on.
    pub fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<SplitGrant>, String> {
        let mut wait = LoggedWait::begin();
        loop {
            if stop() {
                return Ok(None);
            }
            // Under the seat's lock throughout: a task that is done meanwhile is no longer held when the scheduler
            // gives another.
            let given = self.ask(|seat| {
                let holding = lock(&self.shared.state).holding.clone();
                let given = seat.take(&holding)?;
                if let SplitGrant::Task { index, .. } = given {
                    lock(&self.shared.state).holding.push(index);
                }
                Ok(given)
            });
            match given? {
                SplitGrant::Over => return Ok(None),
                SplitGrant::Wait => {
                    if wait.is_to_be_logged() {
                        let seconds = wait.seconds();
                        tracing::info!(seconds, "no task is free: others hold the last ones");
                    }
                    std::thread::sleep(ASK_EVERY);
                }
                given @ SplitGrant::Task { .. } => return Ok(Some(given)),
            }
        }
    }

    /// A task of so many records is trained and acknowledged.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.ask(|seat| {
            seat.done(index, examples)?;
            let mut state = lock(&self.shared.state);
            state.holding.retain(|held| *held != index);
            state.told.acked.retain(|(held, _)| *held != index);
            Ok(())
        })
    }

    /// The first batches of a task are acknowledged.
    pub fn acked(&self, index: u64, batches: u64) {
        let mut state = lock(&self.shared.state);
        state.told.acked.retain(|(held, _)| *held != index);
        state.told.acked.push((index, batches));
    }

    /// Comes to a barrier and waits there until all workers have, for at most `limit`, or until `stop`; true when they
    /// have.
    ///
    /// # Errors
    /// As [`take`](Self::take); somebody has not come in time.
    pub fn meet(&self, name: &str, limit: Duration, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        let mut wait = LoggedWait::begin();
        self.is_at(Some(ActivityKind::Meeting));
        loop {
            let missing = self.ask(|seat| seat.meet(name))?;
            self.moved();
            if missing.is_empty() || stop() {
                self.is_at(None);
                return Ok(missing.is_empty());
            }
            let seconds = wait.seconds();
            if wait.since.elapsed() > limit {
                return Err(format!("workers {missing:?} have not come to {name:?} in {seconds:.1} s"));
            }
            if wait.is_to_be_logged() {
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
        let (told, work) = self.shared.told();
        self.ask(|seat| seat.beat(told, work).and_then(|_| seat.leave()))
    }
}

impl<N: Net> Heartbeat<N> {
    fn end(&mut self) {
        lock(&self.shared.state).over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has no result; a panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl<N: Net> Drop for Heartbeat<N> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A wait, which is logged now and then.
struct LoggedWait {
    since: Instant,
    logged: Duration,
}

impl LoggedWait {
    fn begin() -> LoggedWait {
        LoggedWait { since: Instant::now(), logged: Duration::ZERO }
    }

    fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    fn is_to_be_logged(&mut self) -> bool {
        let waited = self.since.elapsed();
        let due = waited >= WAIT_LOGGED.max(self.logged + WAITS_LOGGED);
        self.logged = if due { waited } else { self.logged };
        due
    }
}
