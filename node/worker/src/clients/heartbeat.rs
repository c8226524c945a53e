//! A worker's part in a job whose scheduler hands out the data. What it does and which splits it holds goes with the
//! heartbeats of its [`RunClient`]. A thread fences dead workers when the registry of runs asks for it: that takes as
//! long as servers take to answer, and heartbeats go on meanwhile. It also tells a scheduler in another server, which
//! hears no heartbeats, how far the worker is. Other threads ask the scheduler, one at a time.

use crate::clients::job_answer::JobAnswer;
use crate::clients::job_client::JobClient;
use crate::clients::logged_wait::{Asking, LoggedWait};
use crate::clients::no_space::until_space;
use crate::clients::run_client::{JobReport, RunClient, RunShared};
use crate::clients::run_session::RunOrders;
use crate::clients::shared::lock_shared;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::limits::{ASK_EVERY, BEAT_MAX, BEATS, FAREWELL_TIME, WAITS_LOGGED};
use gannet_transport::Net;
use gannet_wire::messages::jobs::{JobOrders, TableRecord};
use gannet_wire::messages::member::{Activity, ActivityKind, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::DeadWorker;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Fences an incarnation at every owner of shards: they apply nothing that it pushes afterwards. [`Heartbeat`] has an
/// example.
pub type FenceFn = Box<dyn FnMut(WorkerIncarnation) -> Result<(), WorkerError> + Send>;

/// See the module. Dropping it leaves the job without a word: the registry takes the worker for dead when its
/// [`RunClient`] is dropped, too. The drop does not wait for a fence in progress: the worker that must fence next
/// begins it again.
///
/// ```
/// # use gannet_worker::{Heartbeat, JobClient, RunClient, RunRequest};
/// # use gannet_wire::{JobPlan, PlanFile, RunIntent};
/// # use gannet_server::Server;
/// # use gannet_server::ServerConfig;
/// # use gannet_wire::SplitGrant;
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let worker = Worker::connect(Transports::new(), config.clone())?;
/// # let (settings, tables) = (Vec::new(), vec!["clicks".to_owned()]);
/// # let (name, want, notes) = ("monday".to_owned(), RunIntent::Auto, String::new());
/// # let (at, worker_timeout) = (1_800_000_000, plan.worker_timeout());
/// # let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
/// let run = RunClient::join(Transports::new(), &config, 0, request)?;
/// let job = JobClient::join_beside(run.session(), plan)?;
/// run.note_job(job.joined())?;
/// let fence = Box::new(|_dead| Ok(())); // a job of several workers calls Worker::fence
/// let heartbeat = Heartbeat::begin(&run, job, fence, worker.shared_counters())?;
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
    pub(crate) shared: Arc<HeartbeatShared<N>>,
}

pub(crate) struct HeartbeatShared<N: Net> {
    run: Arc<RunShared<N>>,
    client: Mutex<JobClient<N>>,
    pub(crate) state: Mutex<HeartbeatState>,
    changed: Condvar,
    /// Counters of the worker that trains.
    counters: Arc<WorkerCounters>,
    read_timeout: Duration,
    /// How long a scheduler may have no space for its state.
    patience: Duration,
    /// Threads that wait for a server in a call of this. Such a wait has a limit, and counts as progress.
    pub(crate) asking: AtomicU32,
    /// How often a scheduler that hears no heartbeats must hear how far this worker is. `None`: it hears them.
    report_every: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct HeartbeatState {
    pub report: Progress,
    /// Why the job has failed.
    failed: Option<String>,
    /// Tasks that this worker holds.
    pub held_tasks: Vec<u64>,
    /// What the worker does, if it was set.
    doing: Option<ActivityKind>,
    /// Counts progress that the links do not show.
    progress: u64,
    /// Incarnations that this worker must fence, at most as many as a run can have unfenced, each with what it last
    /// reported of its splits; and the one that it is fencing.
    to_fence: BTreeMap<WorkerIncarnation, Vec<(u64, u64)>>,
    fencing: Option<WorkerIncarnation>,
    /// It saves an unfinished model: it was stopped while tasks were left.
    saves_early: bool,
    /// Why it is no longer in the job.
    lost: Option<String>,
    over: bool,
}

/// What the thread of a [`Heartbeat`] does next.
enum JobDuty {
    /// Nothing more.
    Over,
    /// It tells the scheduler how far the worker is.
    Report,
    /// It fences a dead worker.
    Fence(DeadWorker),
}

impl<N> Heartbeat<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Heartbeats of `run` report this job from now on. `fence_fn` fences dead workers. `counters` are those of the
    /// worker that trains: each heartbeat reports its clock, the staleness of its rows, the worker it waits for, and
    /// its progress.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn begin(
        run: &RunClient<N>,
        client: JobClient<N>,
        fence_fn: FenceFn,
        counters: Arc<WorkerCounters>,
    ) -> std::io::Result<Heartbeat<N>> {
        let every = (client.plan().worker_timeout() / BEATS).min(BEAT_MAX);
        let report_every = (!client.is_beside_run()).then_some(every);
        let (read_timeout, patience) = (client.plan().read_timeout(), client.patience());
        let (client, state, changed) = (Mutex::new(client), Mutex::default(), Condvar::new());
        let run = run.shared();
        let shared = HeartbeatShared {
            run,
            client,
            state,
            changed,
            counters,
            read_timeout,
            patience,
            asking: AtomicU32::new(0),
            report_every,
        };
        let shared = Arc::new(shared);
        let reporting: Weak<HeartbeatShared<N>> = Arc::downgrade(&shared);
        shared.run.set_report(reporting);
        let serving = shared.clone();
        // From here on dropping it ends the thread.
        let heartbeat = Heartbeat { shared };
        std::thread::Builder::new().name("gannet-job".into()).spawn(move || serving.serve(fence_fn))?;
        Ok(heartbeat)
    }
}

impl<N> JobReport for HeartbeatShared<N>
where
    N: Net + Send,
    N::Stream: Send,
    N::Poll: Send,
{
    fn report(&self) -> (Progress, Activity) {
        self.progress()
    }

    fn note(&self, orders: &RunOrders) {
        let mut state = lock_shared(&self.state);
        let fencing = state.fencing;
        let to_fence = orders.fence.iter().filter(|dead| Some(dead.incarnation) != fencing);
        state.to_fence = to_fence.map(|dead| (dead.incarnation, dead.acked.clone())).collect();
        // A scheduler elsewhere says itself why the job failed.
        if self.report_every.is_none() {
            state.failed.clone_from(&orders.failed);
        }
        if !state.to_fence.is_empty() {
            self.changed.notify_all();
        }
    }

    fn lose(&self, error: &WorkerError) {
        self.is_lost(error);
    }
}

impl<N: Net> HeartbeatShared<N> {
    /// What a heartbeat reports.
    pub(crate) fn progress(&self) -> (Progress, Activity) {
        let mut state = lock_shared(&self.state);
        if self.asking.load(Relaxed) > 0 {
            state.progress = state.progress.wrapping_add(1);
        }
        let (clock, staleness, waits_for) = self.counters.step();
        let doing = state.doing.unwrap_or(match (waits_for, state.held_tasks.is_empty()) {
            (Some(_), _) => ActivityKind::Waiting,
            (None, true) => ActivityKind::Idle,
            (None, false) => ActivityKind::Learning,
        });
        let work = Activity { doing, progress: state.progress.wrapping_add(self.counters.turns()) };
        (Progress { clock, staleness, waits_for, ..state.report.clone() }, work)
    }

    /// Tells the scheduler how far this worker is, and returns what it must know of the job.
    fn report_now(&self) -> Result<JobOrders, WorkerError> {
        let _asking = Asking::begin(&self.asking);
        let (progress, work) = self.progress();
        let orders = until_space(self.patience, || lock_shared(&self.client).report(progress.clone(), work))?;
        lock_shared(&self.state).failed.clone_from(&orders.failed);
        if !orders.unfenced.is_empty() {
            // The worker that should have told the registry may have died before.
            let job =
                JobAnswer { unfenced: orders.unfenced.clone(), ..lock_shared(&self.client).joined().clone() };
            // The next report tries it again: a registry that is away must not end a worker whose scheduler answers.
            if let Err(error) = self.run.session().note_job(&job) {
                tracing::debug!(%error, "the registry of runs does not know of all dead workers yet");
            }
        }
        Ok(orders)
    }

    fn is_lost(&self, error: &WorkerError) {
        // The next call returns the error and ends the worker, so this is logged once and as information.
        tracing::info!(%error, "this worker is no longer in the job");
        lock_shared(&self.state).lost = Some(error.to_string());
    }

    /// Fences what the registry asks for, one incarnation at a time, and reports to a scheduler that hears no
    /// heartbeats, until the end.
    fn serve(&self, mut fence_fn: FenceFn) {
        let mut logged: Option<Instant> = None;
        loop {
            match self.next_duty() {
                JobDuty::Over => return,
                JobDuty::Report => {
                    if let Err(error) = self.report_now() {
                        return self.is_lost(&error);
                    }
                }
                JobDuty::Fence(dead) => {
                    // Each heartbeat may ask for it again.
                    if let Err(error) = self.fence(&mut fence_fn, &dead)
                        && logged.is_none_or(|at| at.elapsed() >= WAITS_LOGGED)
                    {
                        logged = Some(Instant::now());
                        let worker = dead.incarnation.rank;
                        tracing::warn!(worker, %error, "a dead worker is not yet fenced");
                    }
                    lock_shared(&self.state).fencing = None;
                }
            }
        }
    }

    /// Fences a dead worker. Then the scheduler, and the registry last, learn of it. If something of that fails, the
    /// reply to the next heartbeat asks for all of it again.
    fn fence(
        &self,
        fence_fn: &mut FenceFn,
        DeadWorker { incarnation, acked }: &DeadWorker,
    ) -> Result<(), WorkerError> {
        let _asking = Asking::begin(&self.asking);
        fence_fn(*incarnation)?;
        until_space(self.patience, || lock_shared(&self.client).fenced(*incarnation, acked))?;
        self.run.session().fenced(*incarnation)?;
        // The scheduler may know of dead workers for which the registry had no room.
        self.report_now().map(drop)
    }

    /// Waits until there is a worker to fence, a report is due, or it is over.
    fn next_duty(&self) -> JobDuty {
        let state = lock_shared(&self.state);
        let waits = |state: &mut HeartbeatState| !state.over && state.to_fence.is_empty();
        let mut state = match self.report_every {
            Some(every) => {
                let waited = self.changed.wait_timeout_while(state, every, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner),
        };
        if state.over {
            return JobDuty::Over;
        }
        let next = state.to_fence.pop_first();
        state.fencing = next.as_ref().map(|(incarnation, _)| *incarnation);
        next.map_or(JobDuty::Report, |(incarnation, acked)| JobDuty::Fence(DeadWorker { incarnation, acked }))
    }
}

impl<N: Net> Heartbeat<N> {
    /// Changes what the next heartbeat reports.
    pub fn tell(&self, tell: impl FnOnce(&mut Progress)) {
        tell(&mut lock_shared(&self.shared.state).report);
    }

    /// Sets what this worker does. `None`: it trains, and the counters show how.
    pub fn is_at(&self, doing: Option<ActivityKind>) {
        lock_shared(&self.shared.state).doing = doing;
    }

    /// Notes progress that no pull or push shows: bytes of the data were read.
    pub fn moved(&self) {
        let mut state = lock_shared(&self.shared.state);
        state.progress = state.progress.wrapping_add(1);
    }

    /// How long a worker may wait for the bytes of a data file.
    pub fn read_timeout(&self) -> Duration {
        self.shared.read_timeout
    }

    /// Tells the scheduler at once how far this worker is, and returns what it must know of the job.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn report_now(&self) -> Result<JobOrders, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => self.shared.report_now().map_err(|error| error.to_string()),
        }
    }

    /// Decides whether this worker tests and saves the model, once it has nothing more to train. `stop` ends the wait
    /// for that. When all tasks are trained, one worker (the chief) does it. The others wait until it reports that it
    /// has [saved](Self::saved), because one of them may have to replace it: the registry gives up a chief that hangs.
    /// If tasks are left, this worker was stopped, and it learns at once whether it is the chief.
    ///
    /// # Errors
    /// As [`take`](Self::take). It is then unknown whether any worker has saved.
    pub fn sum_up(&self, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        self.is_at(Some(ActivityKind::Ending));
        let mut wait = LoggedWait::begin();
        loop {
            let JobOrders { chief, saver, trained, saved, .. } = self.report_now()?;
            self.moved();
            if chief || saved || !trained || stop() {
                let saves = chief && !saved;
                self.is_at(saves.then_some(ActivityKind::Saving).or(Some(ActivityKind::Ending)));
                lock_shared(&self.shared.state).saves_early = saves && !trained;
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
        if lock_shared(&self.shared.state).saves_early {
            return Ok(());
        }
        self.ask(|client| client.saved())?;
        let wait = LoggedWait::begin();
        while wait.since.elapsed() < FAREWELL_TIME && self.report_now()?.live > 1 {
            std::thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Why this worker, or the whole job, cannot go on, if so.
    pub fn lost(&self) -> Option<String> {
        let state = lock_shared(&self.shared.state);
        state.lost.clone().or_else(|| state.failed.clone())
    }

    /// Asks the scheduler. While it waits for space there, other threads may use the link, as for heartbeats.
    pub(crate) fn ask<T>(
        &self,
        mut ask: impl FnMut(&mut JobClient<N>) -> Result<T, WorkerError>,
    ) -> Result<T, String> {
        match self.lost() {
            Some(why) => Err(why),
            None => {
                let _asking = Asking::begin(&self.shared.asking);
                let answer = until_space(self.shared.patience, || ask(&mut lock_shared(&self.shared.client)));
                answer.map_err(|error| error.to_string())
            }
        }
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

    /// Tells the scheduler, as the chief, that the job has trained enough.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn train_no_more(&self) -> Result<(), String> {
        self.ask(JobClient::train_no_more)
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
    pub fn leave(self) -> Result<(), String> {
        self.end();
        let (progress, work) = self.shared.progress();
        self.ask(|client| client.report(progress.clone(), work).and_then(|_| client.leave()))?;
        self.shared.run.session().leave().map_err(|error| error.to_string())
    }

    fn end(&self) {
        lock_shared(&self.shared.state).over = true;
        self.shared.changed.notify_all();
    }
}

impl<N: Net> Drop for Heartbeat<N> {
    fn drop(&mut self) {
        self.end();
    }
}
