//! A worker's membership in its run: one thread sends its heartbeats to the registry of runs until it is dropped. In a
//! job whose scheduler hands out the data, a [`Heartbeat`](crate::Heartbeat) says what the heartbeats report.

use crate::clients::job_answer::JobAnswer;
use crate::clients::run_session::{RunOrders, RunRequest, RunSession};
use crate::clients::shared::lock_shared;
use crate::config::worker_config::WorkerConfig;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::limits::{BEAT_MAX, BEATS};
use gannet_transport::Net;
use gannet_wire::messages::member::{Activity, Progress};
use gannet_wire::messages::runs::{RunDecision, RunId, RunMember};
use gannet_wire::refusal::Refusal;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A worker's part in a job, as its heartbeats report it.
pub(crate) trait JobReport: Send + Sync {
    /// How far the worker is, and what it does.
    fn report(&self) -> (Progress, Activity);
    /// The registry's reply.
    fn note(&self, orders: &RunOrders);
    /// The registry has given the worker up.
    fn lose(&self, why: &WorkerError);
}

/// See the module. Whether it lives, who it is and which splits it holds goes over one session
/// ([`RunSession`](crate::clients::run_session::RunSession)).
///
/// ```
/// # use gannet_wire::{Run, RunDecision, RunIntent, RunSetting};
/// # use gannet_worker::{known_runs, RunClient, RunRequest};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// let (settings, tables) = (vec![RunSetting::new("--alpha", 0.1)], vec!["clicks".to_owned()]);
/// let (name, want, notes) = ("monday".to_owned(), RunIntent::Auto, String::new());
/// let (at, worker_timeout) = (1_800_000_000, std::time::Duration::from_secs(60));
/// let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
/// let run = RunClient::join(Transports::new(), &config, 0, request)?;
/// assert_eq!(run.decided(), RunDecision::Begun);
/// let config = WorkerConfig { run: Some(run.id().clone()), ..config };
/// let worker = Worker::connect(Transports::new(), config.clone())?;
/// // ... open the table "clicks", train 500 rows, save the model ...
/// run.done()?;
/// run.finish(500, 1_800_000_060, &[])?;
/// assert!(known_runs(Transports::new(), &config)?[0].finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunClient<N: Net> {
    shared: Arc<RunShared<N>>,
}

/// What a [`RunClient`] shares with its thread.
pub(crate) struct RunShared<N: Net> {
    session: RunSession<N>,
    /// Batches that this worker has trained.
    batches: AtomicU64,
    /// Counters of the worker that trains.
    counters: Mutex<Option<Arc<WorkerCounters>>>,
    /// The worker's part in a job.
    report: Mutex<Option<Weak<dyn JobReport>>>,
    /// How often it sends a heartbeat.
    every: Duration,
    over: Mutex<bool>,
    changed: Condvar,
}

impl<N> RunClient<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Joins a run as [`RunSession::join`] does, and starts the heartbeats.
    ///
    /// # Errors
    /// A server is lost; or the run belongs to another job, is finished, or has a worker with this index; or the system
    /// gives no thread.
    pub fn join(
        net: N,
        config: &WorkerConfig,
        rank: u32,
        wanted: RunRequest,
    ) -> Result<RunClient<N>, WorkerError> {
        let every = (wanted.worker_timeout / BEATS).min(BEAT_MAX);
        let session = RunSession::join(net, config, rank, wanted)?;
        let (counters, report) = (Mutex::default(), Mutex::default());
        let (batches, over, changed) = (AtomicU64::new(0), Mutex::default(), Condvar::new());
        let shared = Arc::new(RunShared { session, batches, counters, report, every, over, changed });
        let beating = shared.clone();
        let builder = std::thread::Builder::new().name("gannet-member".into());
        let begun = builder.spawn(move || beating.beat_until_over());
        begun.map_err(|error| WorkerError::Call(format!("the system gives no thread: {error}")))?;
        Ok(RunClient { shared })
    }
}

impl<N: Net> RunShared<N> {
    pub(crate) fn session(&self) -> &RunSession<N> {
        &self.session
    }

    /// From now on heartbeats report this, until it is dropped.
    pub(crate) fn set_report(&self, report: Weak<dyn JobReport>) {
        *lock_shared(&self.report) = Some(report);
    }

    fn beat(&self) -> Result<RunOrders, WorkerError> {
        let batches = self.batches.load(Relaxed);
        let report = lock_shared(&self.report).as_ref().and_then(Weak::upgrade);
        let (progress, work) = match &report {
            Some(report) => {
                let (progress, work) = report.report();
                (Some(progress), work)
            }
            None => {
                let progress = lock_shared(&self.counters).as_ref().map_or(0, |counters| counters.turns());
                (None, Activity { progress, ..Activity::default() })
            }
        };
        let orders = self.session.beat(batches, work, progress);
        if let Some(report) = report {
            match &orders {
                Ok(orders) => report.note(orders),
                Err(error @ WorkerError::Refused { refusal: Refusal::Fenced, .. }) => report.lose(error),
                Err(_) => {}
            }
        }
        orders
    }

    /// Sends heartbeats until the end.
    fn beat_until_over(&self) {
        loop {
            match self.beat() {
                Ok(_) => {}
                Err(error @ WorkerError::Refused { refusal: Refusal::Fenced, .. }) => {
                    tracing::error!(%error, "this worker is no longer in the run");
                    return;
                }
                // The worker's own links report servers that are lost for good.
                Err(error) => tracing::warn!(%error, "the registry of runs does not answer"),
            }
            let over = lock_shared(&self.over);
            let waited = self.changed.wait_timeout_while(over, self.every, |over| !*over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}

impl<N: Net> RunClient<N> {
    /// The run and its generation.
    pub fn id(&self) -> &RunId {
        self.shared.session.id()
    }

    /// The server that keeps the registry of the run: [`RunSession::server`].
    pub fn server(&self) -> &str {
        self.shared.session.server()
    }

    /// What the registry decided when this worker joined.
    pub fn decided(&self) -> RunDecision {
        self.shared.session.decided()
    }

    /// What the run remembers of its data: the notes of the process that began its rows.
    pub fn notes(&self) -> &str {
        self.shared.session.notes()
    }

    /// The session of this membership. Its heartbeats are sent already.
    pub fn session(&self) -> &RunSession<N> {
        &self.shared.session
    }

    pub(crate) fn shared(&self) -> Arc<RunShared<N>> {
        self.shared.clone()
    }

    /// From now on heartbeats report the progress of the worker with these counters. Without them only batches count as
    /// progress.
    pub fn watch(&self, counters: Arc<WorkerCounters>) {
        *lock_shared(&self.shared.counters) = Some(counters);
    }

    /// Notes how many batches this worker has trained, for the next heartbeat.
    pub fn trained(&self, batches: u64) {
        self.shared.batches.store(batches, Relaxed);
    }

    /// The members of the run.
    ///
    /// # Errors
    /// The server is lost, or another process has taken this worker's place.
    pub fn members(&self) -> Result<Vec<RunMember>, WorkerError> {
        self.shared.beat().map(|orders| orders.members)
    }

    /// As [`RunSession::note_job`].
    ///
    /// # Errors
    /// As there.
    pub fn note_job(&self, job: &JobAnswer) -> Result<(), WorkerError> {
        self.shared.session.note_job(job)
    }

    /// As [`RunSession::done`].
    ///
    /// # Errors
    /// As there.
    pub fn done(&self) -> Result<(), WorkerError> {
        self.shared.session.done()
    }

    /// As [`RunSession::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&self, rows: u64, at: u64, missing: &[u32]) -> Result<(), WorkerError> {
        self.shared.session.finish(rows, at, missing)
    }
}

impl<N: Net> Drop for RunClient<N> {
    fn drop(&mut self) {
        // The drop does not wait for a heartbeat that waits for a server.
        *lock_shared(&self.shared.over) = true;
        self.shared.changed.notify_all();
    }
}
