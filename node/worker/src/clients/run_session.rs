//! A worker's session with the registry of its run: how it joins, its heartbeats, and its reports. Without a thread:
//! [`RunClient`](crate::RunClient) sends the heartbeats.

use crate::clients::job_answer::JobAnswer;
use crate::clients::no_space::until_space;
use crate::clients::shared::lock_shared;
use crate::config::registrars::{first_registrar, of_registry, registrars};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::{TAKEN_ASKED_EVERY, TAKEN_PATIENCE};
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::runs::RunFrame;
use gannet_wire::frames::tables::DropTableFrame;
use gannet_wire::limits::RUN_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::DropTableV1;
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::{
    DeadWorker, JoinV1, RunActionV1, RunBeatV2, RunDecision, RunId, RunIntent, RunMember, RunReplyV1,
    RunRequestV1, RunSetting,
};
use gannet_wire::random::draw_number;
use gannet_wire::refusal::Refusal;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a worker that joins a run brings. [`RunClient`](crate::clients::run_client::RunClient) has an example.
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

/// What the registry replies to a heartbeat. [`RunSession`] has an example.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunOrders {
    /// The run is finished.
    pub finished: bool,
    /// Its workers.
    pub members: Vec<RunMember>,
    /// Dead workers that this one must fence at every owner of shards. One worker at a time gets them, in turn.
    pub fence: Vec<DeadWorker>,
    /// Why the job failed, if it did and its scheduler is in the registry's server.
    pub failed: Option<String>,
}

/// See the module.
///
/// ```
/// # use gannet_wire::{Activity, RunDecision, RunIntent};
/// # use gannet_worker::{RunRequest, RunSession, WorkerConfig};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let (settings, tables) = (Vec::new(), vec!["clicks".to_owned()]);
/// # let (name, want, notes) = ("monday".to_owned(), RunIntent::Auto, String::new());
/// # let (at, worker_timeout) = (1_800_000_000, std::time::Duration::from_secs(60));
/// # let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
/// let session = RunSession::join(Transports::new(), &config, 0, request)?;
/// assert_eq!(session.decided(), RunDecision::Begun);
/// // At least once in a third of the worker timeout:
/// let orders = session.beat(0, Activity::default(), None)?;
/// assert!(orders.members[0].live && orders.fence.is_empty());
/// session.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunSession<N: Net> {
    worker: Arc<Mutex<Worker<N>>>,
    /// The server that keeps the registry of the run.
    server: String,
    incarnation: WorkerIncarnation,
    timeout_ms: u64,
    id: RunId,
    decided: RunDecision,
    notes: String,
}

/// The servers that know a run.
pub(crate) struct RegistryServer {
    /// The servers that know the run.
    pub(crate) knowing: Vec<String>,
    /// Tables of the run at servers that do not know it.
    left: Vec<String>,
}

/// Asks every server whether it knows the run.
pub(crate) fn look_for_run<N: Net>(
    net: &N,
    config: &WorkerConfig,
    ask: &RunRequestV1,
    tables: &[String],
) -> Result<RegistryServer, WorkerError> {
    let (mut knowing, mut all_left): (Vec<String>, Vec<String>) = Default::default();
    for server in registrars(config) {
        let what = RunActionV1::Look { tables: tables.to_vec() };
        let mut worker = Worker::connect(net.clone(), of_registry(config, server))?;
        match ask_registry(&mut worker, &RunRequestV1 { what, ..ask.clone() })? {
            RunReplyV1::Seen { known, left } => {
                knowing.extend(known.then(|| server.clone()));
                all_left.extend(left);
            }
            other => return Err(not_of_a_run(&worker, &other)),
        }
    }
    Ok(RegistryServer { knowing, left: all_left })
}

/// The server that keeps the registry of a run, and the tables of the run that no registry knows. It is the server that
/// knows the run. If none does, it is the one whose address comes first in the order of text, in whatever order they
/// are named.
pub(crate) fn registrar(
    config: &WorkerConfig,
    name: &str,
    found: &RegistryServer,
) -> Result<(String, Vec<String>), WorkerError> {
    match (&found.knowing[..], first_registrar(config)) {
        ([], Some(first)) => Ok((first.clone(), found.left.clone())),
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

impl<N: Net> RunSession<N> {
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
    ) -> Result<RunSession<N>, WorkerError> {
        let incarnation = WorkerIncarnation { rank, incarnation: config.incarnation };
        let birth =
            draw_number().ok_or_else(|| WorkerError::Call("the system gives no random bytes".into()))?;
        let RunRequest { name, want, settings, tables, at, notes, worker_timeout } = wanted;
        let timeout_ms = (worker_timeout.as_millis() as u64).max(1);
        let mut ask = RunRequestV1 { name, incarnation, what: RunActionV1::List };
        let found = look_for_run(&net, config, &ask, &tables)?;
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
        let RunEntry { id, decided, to_drop, notes } = join_run(&mut worker, &ask)?;
        let generation = id.generation;
        if found.knowing.is_empty() && matches!(decided, RunDecision::Begun | RunDecision::Fresh) {
            // Two workers that write the servers' addresses differently may have begun it at two servers at once.
            let now = look_for_run(&net, config, &ask, &tables)?;
            if let Err(error) = registrar(config, &ask.name, &now) {
                ask_registry(
                    &mut worker,
                    &RunRequestV1 { what: RunActionV1::Withdraw { generation }, ..ask },
                )?;
                return Err(error);
            }
        }
        if !to_drop.is_empty() {
            drop_everywhere(net, config, &to_drop)?;
            let dropped = RunActionV1::Dropped { tables: to_drop };
            ask_registry(&mut worker, &RunRequestV1 { what: dropped, ..ask.clone() })?;
        }
        Ok(RunSession {
            worker: Arc::new(Mutex::new(worker)),
            server,
            incarnation,
            timeout_ms,
            id,
            decided,
            notes,
        })
    }

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

    /// This worker and its incarnation.
    pub fn incarnation(&self) -> WorkerIncarnation {
        self.incarnation
    }

    /// The link to the registry's server. A scheduler in the same server is asked over it, too.
    pub(crate) fn link(&self) -> Arc<Mutex<Worker<N>>> {
        self.worker.clone()
    }

    /// Says that this worker lives, what it does, and which splits it holds. `batches`: how many it has trained.
    ///
    /// # Errors
    /// The server is lost; or this worker was given up, or another process has taken its place.
    pub fn beat(
        &self,
        batches: u64,
        work: Activity,
        progress: Option<Progress>,
    ) -> Result<RunOrders, WorkerError> {
        let (generation, timeout_ms) = (self.id.generation, self.timeout_ms);
        let beat = RunBeatV2 { batches, timeout_ms, work, progress };
        self.ask(RunActionV1::BeatV2 { generation, beat })
    }

    fn ask(&self, what: RunActionV1) -> Result<RunOrders, WorkerError> {
        let ask = RunRequestV1 { name: self.id.name.clone(), incarnation: self.incarnation, what };
        let patience = lock_shared(&self.worker).links.config.peer_timeout;
        match until_space(patience, || ask_registry(&mut lock_shared(&self.worker), &ask))? {
            RunReplyV1::OrdersV2 { finished, members, fence, failed } => {
                Ok(RunOrders { finished, members, fence, failed })
            }
            RunReplyV1::Noted => Ok(RunOrders::default()),
            other => Err(not_of_a_run(&lock_shared(&self.worker), &other)),
        }
    }

    /// Reports that every owner of shards refuses a dead worker.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn fenced(&self, dead: WorkerIncarnation) -> Result<(), WorkerError> {
        self.ask(RunActionV1::Fenced { generation: self.id.generation, dead }).map(|_| ())
    }

    /// Leaves the job. Every push of this worker is acknowledged, so nobody has to fence it.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn leave(&self) -> Result<(), WorkerError> {
        self.ask(RunActionV1::Leave { generation: self.id.generation }).map(|_| ())
    }

    /// Reports the job whose splits this worker trains, as the scheduler has answered, before it takes one.
    ///
    /// # Errors
    /// As [`beat`](Self::beat), or the run was trained by another job: its scheduler has lost its state.
    pub fn note_job(&self, job: &JobAnswer) -> Result<(), WorkerError> {
        let JobAnswer { started: number, unfenced, .. } = job.clone();
        self.ask(RunActionV1::JobV2 { generation: self.id.generation, number, unfenced }).map(|_| ())
    }

    /// Reports that this worker has trained all its data.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn done(&self) -> Result<(), WorkerError> {
        self.ask(RunActionV1::Done { generation: self.id.generation }).map(|_| ())
    }

    /// Reports that the run is finished, with so many rows, at this time: all is trained, except for the shares of the
    /// missing workers, and the model is saved.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn finish(&self, rows: u64, at: u64, missing: &[u32]) -> Result<(), WorkerError> {
        let (generation, missing) = (self.id.generation, missing.to_vec());
        self.ask(RunActionV1::Finish { generation, rows, at, missing }).map(|_| ())
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
pub(crate) fn drop_everywhere<N: Net>(
    net: N,
    config: &WorkerConfig,
    tables: &[String],
) -> Result<(), WorkerError> {
    let all = WorkerConfig { run: None, one_thread: false, ..config.clone() };
    let mut everywhere = Worker::connect(net, all)?;
    tables.iter().try_for_each(|table| everywhere.drop_table(table))
}

impl<N: Net> Worker<N> {
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
                let near = self.links.peers.iter_mut().filter_map(|peer| peer.near.tables.get_mut(number));
                near.for_each(|path| *path = None);
            }
        }
        Ok(())
    }
}

/// Joins a run, and returns the registry's decision. If another incarnation holds this worker's place, it waits a
/// moment for that session to end.
fn join_run<N: Net>(worker: &mut Worker<N>, ask: &RunRequestV1) -> Result<RunEntry, WorkerError> {
    let since = worker.links.net.now();
    loop {
        match until_space(worker.links.config.peer_timeout, || ask_registry(worker, ask))? {
            RunReplyV1::Joined { generation, rows_since, decided, to_drop, notes, birth } => {
                let decided = RunDecision::of_code(decided);
                let decided = decided.ok_or_else(|| not_of_a_run(worker, &RunReplyV1::Noted))?;
                let id = RunId { name: ask.name.clone(), generation, rows_since, birth };
                return Ok(RunEntry { id, decided, to_drop, notes });
            }
            RunReplyV1::Taken { silent_ms }
                if worker.links.net.now().saturating_sub(since) > TAKEN_PATIENCE =>
            {
                let (name, rank, seconds) = (&ask.name, ask.incarnation.rank, silent_ms as f64 / 1000.0);
                let text = format!(
                    "run {name:?}: worker {rank} is in the run already and alive (last heartbeat {seconds:.1} s ago): two workers have the \
                     same --task-index, or another job wants a name of its own (--run NAME)"
                );
                let peer = worker.links.peers[0].name.clone();
                let what = "a place in the run".to_owned();
                return Err(WorkerError::Refused { peer, what, refusal: Refusal::Mismatch, text });
            }
            RunReplyV1::Taken { .. } => pause(worker, TAKEN_ASKED_EVERY)?,
            other => return Err(not_of_a_run(worker, &other)),
        }
    }
}

/// Lets some time pass.
fn pause<N: Net>(worker: &mut Worker<N>, time: Duration) -> Result<(), WorkerError> {
    let until = worker.links.net.now() + time;
    while worker.links.net.now() < until {
        worker.pump(until.saturating_sub(worker.links.net.now()))?;
    }
    Ok(())
}

/// Asks the registry of runs, which is in thread 0 of the first server.
pub(crate) fn ask_registry<N: Net>(
    worker: &mut Worker<N>,
    ask: &RunRequestV1,
) -> Result<RunReplyV1, WorkerError> {
    let payload = |_: usize, _: u32| control::seal(ask);
    let answers =
        worker.ask(&ControlRequest::with_payload(&RunFrame {}, None, &payload), Recipients::First(1))?;
    let Some(ControlReply { payload, .. }) = answers.first() else {
        return Err(not_of_a_run(worker, &RunReplyV1::Noted));
    };
    let peer = &worker.links.peers[0].name;
    control::open(payload)
        .map_err(|error| WorkerError::Protocol { peer: peer.clone(), what: error.to_string() })
}

pub(crate) fn not_of_a_run<N: Net>(worker: &Worker<N>, reply: &RunReplyV1) -> WorkerError {
    let what = match reply {
        RunReplyV1::Noted => "no answer about a run",
        _ => "an answer to another request about a run",
    };
    WorkerError::Protocol { peer: worker.links.peers[0].name.clone(), what: what.to_owned() }
}
