//! What a server is told: its address, its threads, its limits, its backups, its place in a job.

use crate::error::ServerError;
use crate::limits;
use crate::limits::KEYSET_BYTES_MAX;
use gannet_core::{CheckpointDir, Store};
use gannet_jobs::scheduler::data_server::DataServerConfig;
use gannet_transport::limits::{FRAME_BYTES_MAX, LINK_BYTES_MAX};
use gannet_wire::coordinator::Coordinator;
use gannet_wire::limits::{SPIN, THREADS_MAX, TICK};
use gannet_wire::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// Which place a server begins with, and where the job's places are known.
#[derive(Clone)]
pub struct MembershipConfig {
    /// Says who owns what.
    pub coordinator: Arc<dyn Coordinator>,
    /// The name of the job: the first part of its keys.
    pub job: String,
    /// Which of the job's servers, and of how many.
    pub place: (u32, u32),
    /// The addresses of the job's servers in the order of places, as all its processes were told. A server of another
    /// job with the same name has others, and is refused.
    pub servers: Vec<String>,
    /// The address at which workers reach this server.
    pub addr: String,
    /// This server has no place of its own: it only takes the place of a server that dies.
    pub is_backup: bool,
    /// How many backups each of its places is to have. More are kept if [`ServerConfig::backups`] names more.
    pub backups: usize,
    /// How long the coordinator waits for a sign of the owner before a backup takes its place.
    pub lease: Duration,
    /// How long the coordinator knows the job when all its servers are gone. If one of them has a data folder, it knows
    /// the job until [`forget_places`](crate::membership::forgetting::forget_places).
    pub kept: Duration,
    /// What becomes of a place whose rows are gone. All servers of the job have the same.
    pub on_server_loss: OnServerLoss,
}

/// What a job does when the rows of a place are gone: its owner and all backups that had them have died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnServerLoss {
    /// The server of the place begins it without rows. The workers notice, and the job ends by name.
    #[default]
    Stop,
    /// Nobody begins the place. The workers wait for it, as long as they wait for a server.
    Wait,
    /// All servers go back to the newest checkpoint of the job ([`ServerConfig::checkpoints`]). The servers with other
    /// places end, and must be started again. If the server of the place does not come back, another one begins it.
    ///
    /// [`ServerConfig::checkpoints`]: crate::config::ServerConfig::checkpoints
    Restore,
}

/// The limits of sessions. A server checks their relations when it starts.
///
/// ```
/// use gannet_server::{Server, ServerConfig, SessionLimits};
/// use std::time::Duration;
/// # use gannet_transport::multi::Transports;
///
/// let limits = SessionLimits { sessions: 100, silence: Duration::from_secs(60), ..SessionLimits::default() };
/// let config = ServerConfig { limits, ..ServerConfig::new("127.0.0.1:0") };
/// Server::start(Transports::new(), config)?.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Sessions of a thread. Further ones are refused.
    pub sessions: usize,
    /// The credit of a session: requests that its worker may have under way.
    pub credit_frames: u32,
    /// The credit of a session: bytes of requests under way and of their answers.
    pub credit_bytes: u64,
    /// A session that sends nothing for so long ends. Workers ping earlier.
    pub silence: Duration,
    /// Bytes of buffers, all sessions together. Idle sessions have none. When all are taken, sessions wait for their
    /// turn.
    pub buffer_bytes: usize,
    /// Bytes of keysets, all sessions together. When all are taken, the answer to a pull says that there is no keyset.
    pub keyset_bytes: usize,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits {
            sessions: limits::SESSIONS_MAX,
            credit_frames: limits::CREDIT_FRAMES,
            credit_bytes: limits::CREDIT_BYTES,
            silence: limits::SILENCE_TIME,
            buffer_bytes: limits::BUFFER_BYTES_TOTAL,
            keyset_bytes: limits::KEYSET_BYTES_TOTAL,
        }
    }
}

impl SessionLimits {
    pub(crate) fn check(&self, threads: usize) -> Result<(), ServerError> {
        let wrong = |what, got, allowed: String| Err(ServerError::Config { what, got, allowed });
        if self.sessions == 0 || self.sessions > limits::SESSIONS_MAX {
            return wrong("--sessions-max", self.sessions, format!("1 to {}", limits::SESSIONS_MAX));
        }
        if self.credit_frames == 0 {
            return wrong("--credit-requests", 0, "at least 1".into());
        }
        if self.credit_bytes < FRAME_BYTES_MAX as u64 {
            return wrong(
                "the credit in bytes",
                self.credit_bytes as usize,
                format!("at least {FRAME_BYTES_MAX}"),
            );
        }
        if self.silence < TICK * 2 {
            let allowed = format!("at least {} s", TICK.as_secs() * 2);
            return wrong("--session-silence", self.silence.as_secs() as usize, allowed);
        }
        let least = LINK_BYTES_MAX * threads;
        if self.buffer_bytes < least {
            let allowed = format!("at least {least} bytes ({LINK_BYTES_MAX} a thread)");
            return wrong("the memory for sessions' buffers", self.buffer_bytes, allowed);
        }
        Ok(())
    }
}

/// For what a server waits before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplicationMode {
    /// No answer leaves before the backups have what it depends on. Nobody sees a change that the death of a server
    /// could undo.
    #[default]
    Sync,
    /// Rows are read without waiting. An acknowledgement waits, and so does everything that is neither a pull nor a
    /// scan. A failover may undo changes that workers have seen, until their pushers send them again. It undoes no
    /// change that was acknowledged.
    Async,
}

impl ReplicationMode {
    /// As in `--replication`.
    pub fn name(self) -> &'static str {
        match self {
            ReplicationMode::Sync => "sync",
            ReplicationMode::Async => "async",
        }
    }
}

/// A checkpoint, and which part of it a server takes.
///
/// ```
/// use gannet_core::CheckpointDir;
/// use gannet_server::RestoreSource;
///
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::open(folder.path())?;
/// // The newest checkpoint, for server 1 of 3.
/// let source = RestoreSource::new(&directory, 1, 3);
/// assert_eq!((source.number, source.shards), (None, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RestoreSource {
    /// The checkpoint directory.
    pub directory: CheckpointDir,
    /// The number of the checkpoint. `None`: the newest one that can be used.
    pub number: Option<u64>,
    /// The server's number, counted from 0.
    pub server: u32,
    /// The number of servers.
    pub servers: u32,
    /// The number of shards of each table. `None`: as many as the checkpoint has.
    pub shards: Option<u32>,
    /// Whether this server is the job's scheduler and has its registry of runs: it takes their states, too.
    pub scheduler: bool,
    /// The run that must have saved the checkpoint. `None`: any.
    pub run: Option<String>,
    /// Whether a data folder with tables of the run is used as it is, also if they come from another checkpoint of the
    /// directory, or if this one cannot be used. A server that starts goes on; who asks for a restore does not.
    pub goes_on: bool,
}

impl RestoreSource {
    /// The newest checkpoint of a directory, for server `server` of `servers`. Server 0 is the scheduler.
    pub fn new(directory: &CheckpointDir, server: u32, servers: u32) -> RestoreSource {
        let (directory, scheduler) = (directory.clone(), server == 0);
        let (number, shards, run, goes_on) = (None, None, None, true);
        RestoreSource { directory, number, server, servers, shards, scheduler, run, goes_on }
    }
}

/// A server's configuration.
///
/// ```
/// use gannet_core::{CheckpointDir, Store};
/// use gannet_server::ServerConfig;
///
/// # let folder = tempfile::tempdir()?;
/// let store = Store::open_dir(folder.path())?; // tables outlive the server
/// let config = ServerConfig { threads: 2, store, ..ServerConfig::new("127.0.0.1:0") };
/// assert!(config.token.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen, `host:port`. Port 0 lets the system choose one.
    pub listen: String,
    /// Shard-owning threads, 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Where the tables' images are stored.
    pub store: Store,
    /// Bytes of keysets that a session may keep on a thread.
    pub keyset_bytes_max: usize,
    /// How long a thread polls for more after small frames before it sleeps.
    pub spin: Duration,
    /// Limits of sessions.
    pub limits: SessionLimits,
    /// A worker must prove that it has this token before the server reads any other frame of it.
    pub token: Option<Token>,
    /// The server is only a scheduler: it keeps the state of jobs and has no tables.
    pub scheduler_only: bool,
    /// The data that this server, as the scheduler of a job, sends to the workers.
    pub data_server: Option<DataServerConfig>,
    /// The checkpoint that the tables are restored from before the server listens. A data folder that has the tables
    /// is used as it is.
    pub restore: Option<RestoreSource>,
    /// The folder where the server writes checkpoints when a coordinator asks for them ([`save_checkpoint`]). All
    /// servers of a job and the coordinator reach the same folder, each by its own path.
    ///
    /// [`save_checkpoint`]: gannet_worker::save_checkpoint
    pub checkpoints: Option<CheckpointDir>,
    /// The addresses of the servers that keep copies of the shards here. Workers get no answer that depends on a change
    /// before each backup that is filled has this change. Server `i` of a job usually names the next one, or the next
    /// ones. With a membership these are the first choices for its backup slots.
    pub backups: Vec<String>,
    /// For what the answers of this server wait. All servers of a job with a coordinator have the same.
    pub replication: ReplicationMode,
    /// The place of this server in a job with a coordinator, in which backups take the places of servers that die.
    /// `None`: workers wait for each backup that has all rows, and nobody takes the place of this server.
    pub membership: Option<MembershipConfig>,
    /// The coordinator that other processes may ask here, with [`RemoteCoordinator`](gannet_worker::RemoteCoordinator).
    pub coordinator: Option<Arc<dyn Coordinator>>,
}

impl ServerConfig {
    /// Tables in memory, one thread for each core.
    pub fn new(listen: impl Into<String>) -> ServerConfig {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        ServerConfig {
            listen: listen.into(),
            threads,
            store: Store::memory(),
            keyset_bytes_max: KEYSET_BYTES_MAX,
            spin: SPIN,
            limits: SessionLimits::default(),
            token: None,
            scheduler_only: false,
            data_server: None,
            restore: None,
            checkpoints: None,
            backups: Vec::new(),
            replication: ReplicationMode::Sync,
            membership: None,
            coordinator: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if self.threads == 0 || self.threads > THREADS_MAX {
            let allowed = format!("1 to {THREADS_MAX}");
            return Err(ServerError::Config { what: "--threads", got: self.threads, allowed });
        }
        self.limits.check(self.threads)
    }
}
