//! A worker's heartbeat in its job. One thread tells the scheduler that the worker lives and what it does, while others
//! pull and push. A second thread fences dead workers when the scheduler asks for it: that takes as long as servers
//! take to answer, and heartbeats go on meanwhile. Other threads ask the scheduler through the same link, one at a
//! time.

use super::JobClient;
use super::no_space::until_space;
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

/// Fences an incarnation at every owner of shards: they apply nothing that it pushes afterwards. [`Heartbeat`] has an
/// example.
pub type FenceFn = Box<dyn FnMut(WorkerIncarnation) -> Result<(), WorkerError> + Send>;

/// See the module. Dropping it ends the heartbeats without leaving the job, so the scheduler takes the worker for dead.
/// The drop does not wait for a fence in progress: the worker that must fence next begins it again.
///
/// ```
/// # use gannet_node::{Heartbeat, JobClient, JobPlan, PlanFile, Server, ServerConfig, SplitGrant};
/// # use gannet_node::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let worker = Worker::connect(Transports::new(), config.clone())?;
/// let job = JobClient::join(Transports::new(), config, 0, plan)?;
/// let fence = Box::new(|_dead| Ok(())); // a job of several workers calls Worker::fence
/// let heartbeat = Heartbeat::begin(job, fence, worker.shared_counters())?;
/// while let Some(SplitGrant::Task { index, .. }) = heartbeat.take(&|| false)? {
///     heartbeat.done(index, 10)?; // 10 records
/// }
/// if heartbeat.sum_up(&|| false)? {
///     // ... save the model ...
///     heartbeat.saved()?;
/// }
/// assert_eq!(heartbeat.lost(), None);
/// heartbeat.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Heartbeat<N: Net> {
    shared: Arc<HeartbeatShared<N>>,
    thread: Option<JoinHandle<()>>,
}

struct HeartbeatShared<N: Net> {
    client: Mutex<JobClient<N>>,
    state: Mutex<HeartbeatState>,
    changed: Condvar,
    /// Counters of the worker that trains.
    counters: Arc<WorkerCounters>,
    read_timeout: Duration,
    /// How long a scheduler may have no space for its state.
    patience: Duration,
}

#[derive(Default)]
struct HeartbeatState {
    report: Progress,
    reply: HeartbeatReply,
    /// Tasks that this worker holds.
    held_tasks: Vec<u64>,
    /// What the worker does, if it was set.
    doing: Option<ActivityKind>,
    /// Counts progress that the links do not show.
    progress: u64,
    /// Incarnations that this worker must fence, at most as many as a job can have unfenced, and the one that it is
    /// fencing.
    to_fence: BTreeSet<WorkerIncarnation>,
    fencing: Option<WorkerIncarnation>,
    /// It saves an unfinished model: it was stopped while tasks were left.
    saves_early: bool,
    /// Why it is no longer in the job.
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
    /// Starts the heartbeats. `fence_fn` fences dead workers. `counters` are those of the worker that trains: each
    /// heartbeat reports its clock, the staleness of its rows, the worker it waits for, and its progress.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn begin(
        client: JobClient<N>,
        fence_fn: FenceFn,
        counters: Arc<WorkerCounters>,
    ) -> std::io::Result<Heartbeat<N>> {
        let every = (client.plan().worker_timeout() / BEATS).min(BEAT_MAX);
        let (read_timeout, patience) = (client.plan().read_timeout(), client.patience());
        let (client, state, changed) = (Mutex::new(client), Mutex::default(), Condvar::new());
        let shared = HeartbeatShared { client, state, changed, counters, read_timeout, patience };
        let shared = Arc::new(shared);
        let (beating, fencing) = (shared.clone(), shared.clone());
        let builder = std::thread::Builder::new().name("gannet-member".into());
        let thread = Some(builder.spawn(move || beating.beat_until_over(every))?);
        // From here on dropping it ends both threads.
        let heartbeat = Heartbeat { shared, thread };
        std::thread::Builder::new().name("gannet-fence".into()).spawn(move || fencing.fence_all(fence_fn))?;
        Ok(heartbeat)
    }
}

impl<N: Net> HeartbeatShared<N> {
    /// What a heartbeat reports.
    fn report(&self) -> (Progress, Activity) {
        let state = lock(&self.state);
        let (clock, staleness, waits_for) = self.counters.step();
        let doing = state.doing.unwrap_or(match (waits_for, state.held_tasks.is_empty()) {
            (Some(_), _) => ActivityKind::Waiting,
            (None, true) => ActivityKind::Idle,
            (None, false) => ActivityKind::Learning,
        });
        let work = Activity { doing, progress: state.progress.wrapping_add(self.counters.turns()) };
        (Progress { clock, staleness, waits_for, ..state.report.clone() }, work)
    }

    /// Sends a heartbeat and keeps the reply.
    fn beat(&self) -> Result<HeartbeatReply, WorkerError> {
        let (report, work) = self.report();
        let reply = until_space(self.patience, || lock(&self.client).beat(report.clone(), work))?;
        let mut state = lock(&self.state);
        let fencing = state.fencing;
        state.to_fence =
            reply.fence.iter().copied().filter(|incarnation| Some(*incarnation) != fencing).collect();
        state.reply = reply.clone();
        if !state.to_fence.is_empty() {
            self.changed.notify_all();
        }
        Ok(reply)
    }

    /// Sends heartbeats until the end.
    fn beat_until_over(&self, every: Duration) {
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

    /// Fences what the scheduler asks for, one incarnation at a time, until the end. If a fence fails, the reply to the
    /// next heartbeat asks for it again.
    fn fence_all(&self, mut fence_fn: FenceFn) {
        let mut logged: Option<Instant> = None;
        while let Some(incarnation) = self.next_to_fence() {
            let fenced = fence_fn(incarnation).and_then(|()| lock(&self.client).fenced(incarnation));
            // Each heartbeat may ask for it again.
            if let Err(error) = fenced
                && logged.is_none_or(|at| at.elapsed() >= WAITS_LOGGED)
            {
                logged = Some(Instant::now());
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
        // The next call returns the error and ends the worker, so this is logged once and as information.
        tracing::info!(%error, "this worker is no longer in the job");
        lock(&self.state).lost = Some(error.to_string());
    }
}

impl<N: Net> Heartbeat<N> {
    /// Changes what the next heartbeat reports.
    pub fn tell(&self, tell: impl FnOnce(&mut Progress)) {
        tell(&mut lock(&self.shared.state).report);
    }

    /// Sets what this worker does. `None`: it trains, and the counters show how.
    pub fn is_at(&self, doing: Option<ActivityKind>) {
        lock(&self.shared.state).doing = doing;
    }

    /// Notes progress that no pull or push shows: bytes of the data were read.
    pub fn moved(&self) {
        let mut state = lock(&self.shared.state);
        state.progress = state.progress.wrapping_add(1);
    }

    /// How long a worker may wait for the bytes of a data file.
    pub fn read_timeout(&self) -> Duration {
        self.shared.read_timeout
    }

    /// Sends a heartbeat at once, and returns the scheduler's reply.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn beat_now(&self) -> Result<HeartbeatReply, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => self.shared.beat().map_err(|error| error.to_string()),
        }
    }

    /// Decides whether this worker tests and saves the model, once it has nothing more to train. `stop` ends the wait
    /// for that. When all tasks are trained, one worker (the chief) does it. The others wait until it reports that it
    /// has [saved](Self::saved), because one of them may have to replace it: the scheduler gives up a chief that hangs.
    /// If tasks are left, this worker was stopped, and it learns at once whether it is the chief.
    ///
    /// # Errors
    /// As [`take`](Self::take). It is then unknown whether any worker has saved.
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

    /// Reports that this worker, which [was to](Self::sum_up), has tested and saved. Waits a moment so that the other
    /// workers learn of it before the scheduler may end. A worker that was stopped while tasks were left has not saved
    /// the job's model, so it reports nothing.
    ///
    /// # Errors
    /// As [`take`](Self::take); or the scheduler chose another worker.
    pub fn saved(&self) -> Result<(), String> {
        if lock(&self.shared.state).saves_early {
            return Ok(());
        }
        self.ask(|client| client.saved())?;
        let wait = LoggedWait::begin();
        while wait.since.elapsed() < FAREWELL_TIME && self.beat_now()?.live > 1 {
            std::thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Why this worker, or the whole job, cannot go on, if so.
    pub fn lost(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        state.lost.clone().or_else(|| state.reply.failed.clone())
    }

    /// Asks the scheduler. While it waits for space there, other threads may use the link, as for heartbeats.
    fn ask<T>(&self, mut ask: impl FnMut(&mut JobClient<N>) -> Result<T, WorkerError>) -> Result<T, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => {
                let answer = until_space(self.shared.patience, || ask(&mut lock(&self.shared.client)));
                answer.map_err(|error| error.to_string())
            }
        }
    }

    /// The next task. While other workers hold the last tasks, waits in case they return some, until `stop`. `None`:
    /// all tasks are done, or `stop`.
    ///
    /// # Errors
    /// Why this worker cannot go on.
    pub fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<SplitGrant>, String> {
        let mut wait = LoggedWait::begin();
        loop {
            if stop() {
                return Ok(None);
            }
            // Holds the client's lock throughout. So a task that another thread reports as done is out of `held_tasks`
            // before the scheduler grants another.
            let grant = self.ask(|client| {
                let held_tasks = lock(&self.shared.state).held_tasks.clone();
                let grant = client.take(&held_tasks)?;
                if let SplitGrant::Task { index, .. } = grant {
                    lock(&self.shared.state).held_tasks.push(index);
                }
                Ok(grant)
            });
            match grant? {
                SplitGrant::Over => return Ok(None),
                SplitGrant::Wait => {
                    if wait.is_to_be_logged() {
                        let seconds = wait.seconds();
                        tracing::info!(seconds, "no task is free: others hold the last ones");
                    }
                    std::thread::sleep(ASK_EVERY);
                }
                grant @ SplitGrant::Task { .. } => return Ok(Some(grant)),
            }
        }
    }

    /// Reports that a task of so many records is trained and its pushes are acknowledged.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.ask(|client| {
            client.done(index, examples)?;
            let mut state = lock(&self.shared.state);
            state.held_tasks.retain(|held| *held != index);
            state.report.acked.retain(|(held, _)| *held != index);
            Ok(())
        })
    }

    /// Notes that the first `batches` of a task are acknowledged.
    pub fn acked(&self, index: u64, batches: u64) {
        let mut state = lock(&self.shared.state);
        state.report.acked.retain(|(held, _)| *held != index);
        state.report.acked.push((index, batches));
    }

    /// Enters a barrier and waits until all workers have entered it, for at most `limit`, or until `stop`. Returns
    /// whether all have.
    ///
    /// # Errors
    /// As [`take`](Self::take); a worker has not come in time.
    pub fn meet(&self, name: &str, limit: Duration, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        let mut wait = LoggedWait::begin();
        self.is_at(Some(ActivityKind::Meeting));
        loop {
            let missing = self.ask(|client| client.meet(name))?;
            self.moved();
            if missing.is_empty() || stop() {
                self.is_at(None);
                return Ok(missing.is_empty());
            }
            let seconds = wait.seconds();
            if wait.since.elapsed() > limit {
                return Err(format!(
                    "workers {missing:?} have not come to barrier {name:?} in {seconds:.1} s"
                ));
            }
            if wait.is_to_be_logged() {
                tracing::warn!(?missing, seconds, name, "waiting at a barrier for workers");
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Tells the scheduler what rows of a table of the job this worker found.
    ///
    /// # Errors
    /// As [`take`](Self::take); or they are not the rows that the job has trained, which ends the job.
    pub fn note_table(&self, table: TableRecord) -> Result<(), String> {
        self.ask(|client| client.note_table(table.clone()))
    }

    /// Tells the scheduler that the job cannot go on. All workers learn why.
    pub fn fail(&self, why: &str) {
        if let Err(error) = self.ask(|client| client.fail(why)) {
            tracing::warn!(error, "the scheduler did not get the reason of the failure");
        }
    }

    /// Leaves the job: reports its last progress, returns its tasks, and ends the thread.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn leave(mut self) -> Result<(), String> {
        self.end();
        let (report, work) = self.shared.report();
        self.ask(|client| client.beat(report.clone(), work).and_then(|_| client.leave()))
    }
}

impl<N: Net> Heartbeat<N> {
    fn end(&mut self) {
        lock(&self.shared.state).over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread has no result; its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl<N: Net> Drop for Heartbeat<N> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A wait that is logged now and then.
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
