//! A worker's part in a run: its requests to the registry of runs, over a link of its own, and its heartbeats there
//! until it is dropped.

use super::no_space::until_space;
use super::tables::{ControlReply, ControlRequest, Recipients};
use super::{Worker, WorkerConfig};
use crate::counters::WorkerCounters;
use crate::error::{Refusal, WorkerError};
use crate::frames::control::{self, DropTableV1};
use crate::frames::{DropTableFrame, RunFrame};
use crate::limits::{BEAT_MAX, BEATS, RUN_BYTES_MAX, TAKEN_PATIENCE};
use crate::random::draw_number;
use crate::runs::{
    JoinV1, RunActionV1, RunDecision, RunId, RunIntent, RunMember, RunReplyV1, RunRequestV1, RunSetting,
};
use crate::scheduler::member::WorkerIncarnation;
use gannet_transport::Net;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a worker that joins a run brings. [`RunClient`] has an example.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The run's name.
    pub name: String,
    /// Whether to begin or continue the run, or start it afresh.
    pub want: RunIntent,
    /// Settings that must be the same for all its workers.
    pub settings: Vec<RunSetting>,
    /// Its tables, by their own names.
    pub tables: Vec<String>,
    /// The time in seconds since 1970. It is used only in texts about when a run ended.
    pub at: u64,
    /// What the run should remember of its data.
    pub notes: String,
    /// How long this worker may be silent until it counts as dead. A worker that makes no progress for five times that
    /// (at least 30 s) counts as dead, too.
    pub worker_timeout: Duration,
}

/// See the module.
///
/// ```
/// # use gannet_node::{Run, RunClient, RunDecision, RunIntent, RunRequest, RunSetting};
/// # use gannet_node::{Server, ServerConfig, Worker, WorkerConfig};
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
/// assert!(Run::all(Transports::new(), &config)?[0].finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunClient<N: Net> {
    shared: Arc<RunShared<N>>,
    /// The server that keeps the registry of the run.
    server: String,
    id: RunId,
    decided: RunDecision,
    notes: String,
}

struct RunShared<N: Net> {
    worker: Mutex<Worker<N>>,
    ask: RunRequestV1,
    /// Batches that this worker has trained.
    batches: AtomicU64,
    /// Counters of the worker that trains.
    counters: Mutex<Option<Arc<WorkerCounters>>>,
    /// How often it sends a heartbeat.
    every: Duration,
    over: Mutex<bool>,
    changed: Condvar,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The servers that may keep a registry of runs, each once, in the order of text: all workers ask them in this order.
/// Where backups may take the places of servers, it is the server of place 0.
pub(super) fn registrars(config: &WorkerConfig) -> Vec<&String> {
    let of_places = config.places.is_some().then_some(1);
    let mut servers: Vec<&String> = config.servers.iter().take(of_places.unwrap_or(usize::MAX)).collect();
    servers.sort();
    servers.dedup();
    servers
}

/// The servers that know a run.
pub(super) struct RegistryServer {
    /// The servers that know the run.
    pub(super) knowing: Vec<String>,
    /// Tables of the run at servers that do not know it.
    left: Vec<String>,
}

/// Asks every server whether it knows the run.
pub(super) fn look<N: Net>(
    net: &N,
    config: &WorkerConfig,
    ask: &RunRequestV1,
    tables: &[String],
) -> Result<RegistryServer, WorkerError> {
    let (mut knowing, mut all_left): (Vec<String>, Vec<String>) = Default::default();
    for server in registrars(config) {
        let what = RunActionV1::Look { tables: tables.to_vec() };
        let mut worker = Worker::connect(net.clone(), of_registry(config, server))?;
        match worker.run(&RunRequestV1 { what, ..ask.clone() })? {
            RunReplyV1::Seen { known, left } => {
                knowing.extend(known.then(|| server.clone()));
                all_left.extend(left);
            }
            other => return Err(worker.not_of_a_run(&other)),
        }
    }
    Ok(RegistryServer { knowing, left: all_left })
}

/// The server that keeps the registry of a run, and the tables of the run that no registry knows. It is the server that
/// knows the run. If none does, it is the one whose address comes first in the order of text, in whatever order they
/// are named.
pub(super) fn registrar(
    config: &WorkerConfig,
    name: &str,
    found: &RegistryServer,
) -> Result<(String, Vec<String>), WorkerError> {
    match (&found.knowing[..], registrars(config).first()) {
        ([], Some(first)) => Ok(((*first).clone(), found.left.clone())),
        ([one], _) => Ok((one.clone(), Vec::new())),
        ([one, other, ..], _) => Err(two_registries(name, one, other)),
        ([], None) => Err(WorkerError::Call("no server is named".into())),
    }
}

fn two_registries(name: &str, one: &str, other: &str) -> WorkerError {
    let text = format!(
        "run {name:?} is kept by two servers, {one} and {other}: write the addresses in --ps-hosts alike for all workers, and \
         start servers on folders that belong together; a run of another name (--run NAME) is not touched by this"
    );
    let (peer, what) = (one.into(), "a place in the run".to_owned());
    WorkerError::Refused { peer, what, refusal: Refusal::Mismatch, text }
}

impl<N> RunClient<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Joins a run on the servers of `config`, as worker `rank` with the incarnation `config.incarnation`. Before it
    /// returns, it drops the tables of an earlier generation at all servers, if their rows must go.
    ///
    /// # Errors
    /// A server is lost; or the run belongs to another job, is finished, or has a worker with this index.
    pub fn join(
        net: N,
        config: &WorkerConfig,
        rank: u32,
        wanted: RunRequest,
    ) -> Result<RunClient<N>, WorkerError> {
        let incarnation = WorkerIncarnation { rank, incarnation: config.incarnation };
        let birth =
            draw_number().ok_or_else(|| WorkerError::Call("the system gives no random bytes".into()))?;
        let RunRequest { name, want, settings, tables, at, notes, worker_timeout } = wanted;
        let timeout_ms = (worker_timeout.as_millis() as u64).max(1);
        let mut ask = RunRequestV1 { name, incarnation, what: RunActionV1::List };
        let found = look(&net, config, &ask, &tables)?;
        let (server, left) = registrar(config, &ask.name, &found)?;
        let mut worker = Worker::connect(net.clone(), of_registry(config, &server))?;
        let join = JoinV1 { want, settings, tables: tables.clone(), at, notes, birth, left, timeout_ms };
        ask.what = RunActionV1::Join(join);
        let bytes = control::seal(&ask).len();
        if bytes > RUN_BYTES_MAX {
            let text = format!(
                "the flags of run {:?} take {bytes} bytes, and {RUN_BYTES_MAX} are possible: name fewer columns or files",
                ask.name
            );
            return Err(WorkerError::Call(text));
        }
        let RunEntry { id, decided, to_drop, notes } = worker.join_run(&ask)?;
        let generation = id.generation;
        if found.knowing.is_empty() && matches!(decided, RunDecision::Begun | RunDecision::Fresh) {
            // Two workers that write the servers' addresses differently may have begun it at two servers at once.
            let now = look(&net, config, &ask, &tables)?;
            if let Err(error) = registrar(config, &ask.name, &now) {
                worker.run(&RunRequestV1 { what: RunActionV1::Withdraw { generation }, ..ask })?;
                return Err(error);
            }
        }
        if !to_drop.is_empty() {
            drop_everywhere(net, config, &to_drop)?;
            let dropped = RunActionV1::Dropped { tables: to_drop };
            worker.run(&RunRequestV1 { what: dropped, ..ask.clone() })?;
        }
        ask.what = RunActionV1::Beat { generation, batches: 0, timeout_ms, progress: 0 };
        let (worker, over, batches) = (Mutex::new(worker), Mutex::default(), AtomicU64::new(0));
        let every = (worker_timeout / BEATS).min(BEAT_MAX);
        let (counters, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(RunShared { worker, ask, batches, counters, every, over, changed });
        let beating = shared.clone();
        let builder = std::thread::Builder::new().name("gannet-run".into());
        let begun = builder.spawn(move || beating.beat_until_over());
        begun.map_err(|error| WorkerError::Call(format!("the system gives no thread: {error}")))?;
        Ok(RunClient { shared, server, id, decided, notes })
    }
}

impl<N: Net> RunShared<N> {
    fn ask(&self, what: RunActionV1) -> Result<RunReplyV1, WorkerError> {
        let ask = RunRequestV1 { what, ..self.ask.clone() };
        let patience = lock(&self.worker).config.peer_timeout;
        until_space(patience, || lock(&self.worker).run(&ask))
    }

    fn beat(&self) -> Result<RunReplyV1, WorkerError> {
        let batches = self.batches.load(Relaxed);
        let what = match &self.ask.what {
            &RunActionV1::Beat { generation, timeout_ms, .. } => {
                let progress = lock(&self.counters).as_ref().map_or(0, |counters| counters.turns());
                RunActionV1::Beat { generation, batches, timeout_ms, progress }
            }
            other => other.clone(),
        };
        self.ask(what)
    }

    /// Sends heartbeats until the end.
    fn beat_until_over(&self) {
        loop {
            match self.beat() {
                Ok(_) => {}
                Err(error @ WorkerError::Refused { .. }) => {
                    tracing::error!(%error, "this worker is no longer in the run");
                    return;
                }
                // The worker's own links report servers that are lost for good.
                Err(error) => tracing::warn!(%error, "the registry of runs does not answer"),
            }
            let over = lock(&self.over);
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
        &self.id
    }

    /// The server that keeps the registry of the run, as `config.servers` names it. Its folder has the registry, so the
    /// server keeps it at every address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What the registry decided when this worker joined.
    pub fn decided(&self) -> RunDecision {
        self.decided
    }

    /// What the run remembers of its data: the notes of the process that began its rows.
    pub fn notes(&self) -> &str {
        &self.notes
    }

    /// From now on heartbeats report the progress of the worker with these counters. Without them only batches count as
    /// progress.
    pub fn watch(&self, counters: Arc<WorkerCounters>) {
        *lock(&self.shared.counters) = Some(counters);
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
        match self.shared.beat()? {
            RunReplyV1::Members { members, .. } => Ok(members),
            other => Err(lock(&self.shared.worker).not_of_a_run(&other)),
        }
    }

    /// Reports the number of the job whose splits this worker trains ([`JobAnswer::started`](super::JobAnswer)).
    ///
    /// # Errors
    /// As [`members`](Self::members), or the run was trained by another job: its scheduler has lost its state.
    pub fn note_job(&self, number: u64) -> Result<(), WorkerError> {
        self.shared.ask(RunActionV1::Job { generation: self.id.generation, number }).map(|_| ())
    }

    /// Reports that this worker has trained all its data.
    ///
    /// # Errors
    /// As [`members`](Self::members).
    pub fn done(&self) -> Result<(), WorkerError> {
        self.shared.ask(RunActionV1::Done { generation: self.id.generation }).map(|_| ())
    }

    /// Reports that the run is finished, with so many rows, at this time: all is trained, except for the shares of the
    /// missing workers, and the model is saved.
    ///
    /// # Errors
    /// As [`members`](Self::members).
    pub fn finish(&self, rows: u64, at: u64, missing: &[u32]) -> Result<(), WorkerError> {
        let (generation, missing) = (self.id.generation, missing.to_vec());
        self.shared.ask(RunActionV1::Finish { generation, rows, at, missing }).map(|_| ())
    }
}

impl<N: Net> Drop for RunClient<N> {
    fn drop(&mut self) {
        // The drop does not wait for a heartbeat that waits for a server.
        *lock(&self.shared.over) = true;
        self.shared.changed.notify_all();
    }
}

/// The registry's decision about a worker that joined.
struct RunEntry {
    id: RunId,
    decided: RunDecision,
    to_drop: Vec<String>,
    notes: String,
}

/// Drops these tables at all servers.
pub(super) fn drop_everywhere<N: Net>(
    net: N,
    config: &WorkerConfig,
    tables: &[String],
) -> Result<(), WorkerError> {
    let all = WorkerConfig { run: None, one_thread: false, ..config.clone() };
    let mut everywhere = Worker::connect(net, all)?;
    tables.iter().try_for_each(|table| everywhere.drop_table(table))
}

/// The configuration for asking a server about runs.
pub(super) fn of_registry(config: &WorkerConfig, server: &str) -> WorkerConfig {
    WorkerConfig { servers: vec![server.to_owned()], one_thread: true, secondary: true, ..config.clone() }
}

impl<N: Net> Worker<N> {
    /// Joins a run, and returns the registry's decision. If another incarnation holds this worker's place, it waits a
    /// moment for that session to end.
    fn join_run(&mut self, ask: &RunRequestV1) -> Result<RunEntry, WorkerError> {
        let since = Instant::now();
        loop {
            match until_space(self.config.peer_timeout, || self.run(ask))? {
                RunReplyV1::Joined { generation, rows_since, decided, to_drop, notes, birth } => {
                    let decided = RunDecision::of_code(decided);
                    let decided = decided.ok_or_else(|| self.not_of_a_run(&RunReplyV1::Noted))?;
                    let id = RunId { name: ask.name.clone(), generation, rows_since, birth };
                    return Ok(RunEntry { id, decided, to_drop, notes });
                }
                RunReplyV1::Taken { silent_ms } if since.elapsed() > TAKEN_PATIENCE => {
                    let (name, rank, seconds) = (&ask.name, ask.incarnation.rank, silent_ms as f64 / 1000.0);
                    let text = format!(
                        "run {name:?}: worker {rank} is in the run already and alive (last heartbeat {seconds:.1} s ago): two workers have the \
                         same --task-index, or another job wants a name of its own (--run NAME)"
                    );
                    let peer = self.peers[0].name.clone();
                    let what = "a place in the run".to_owned();
                    return Err(WorkerError::Refused { peer, what, refusal: Refusal::Mismatch, text });
                }
                RunReplyV1::Taken { .. } => std::thread::sleep(Duration::from_millis(50)),
                other => return Err(self.not_of_a_run(&other)),
            }
        }
    }

    /// Asks the registry of runs, which is in thread 0 of the first server.
    pub(super) fn run(&mut self, ask: &RunRequestV1) -> Result<RunReplyV1, WorkerError> {
        let payload = |_: usize, _: u32| control::seal(ask);
        let answers =
            self.ask(&ControlRequest::with_payload(&RunFrame {}, None, &payload), Recipients::First(1))?;
        let Some(ControlReply { payload, .. }) = answers.first() else {
            return Err(self.not_of_a_run(&RunReplyV1::Noted));
        };
        let peer = &self.peers[0].name;
        control::open(payload)
            .map_err(|error| WorkerError::Protocol { peer: peer.clone(), what: error.to_string() })
    }

    pub(super) fn not_of_a_run(&self, reply: &RunReplyV1) -> WorkerError {
        let what = match reply {
            RunReplyV1::Noted => "no answer about a run",
            _ => "an answer to another request about a run",
        };
        WorkerError::Protocol { peer: self.peers[0].name.clone(), what: what.to_owned() }
    }

    /// Drops a table at all servers: its rows are gone, and their memory and files are freed. The name is used as it
    /// is, without the run's name before it.
    ///
    /// # Errors
    /// A peer is lost for good, or refuses.
    pub fn drop_table(&mut self, table: &str) -> Result<(), WorkerError> {
        let payload = |_: usize, _: u32| control::seal(&DropTableV1 { table: table.to_owned() });
        self.ask(&ControlRequest::with_payload(&DropTableFrame {}, None, &payload), Recipients::All)?;
        for number in 0..self.tables.len() {
            let known = &mut self.tables[number];
            if known.schema.name == table {
                known.schema.name.clear();
                (known.cache, known.rounding) = (None, None);
                let near = self.peers.iter_mut().filter_map(|peer| peer.near.tables.get_mut(number));
                near.for_each(|path| *path = None);
            }
        }
        Ok(())
    }
}
