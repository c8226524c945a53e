//! The requests to the registry of runs and its replies: frozen structs, which travel and are stored as they are.

use crate::limits::RUN_NAME_BYTES_MAX;
use crate::messages::member::{Activity, Progress, WorkerIncarnation};
use rkyv::{Archive, Deserialize, Serialize};

/// The name of the state of a checkpoint that has its run, as the registry of the servers knows it.
pub const RUNS: &str = "runs";

/// Which rows a worker trains: those of a run, since a generation of it.
///
/// ```
/// use gannet_wire::RunId;
///
/// RunId::check_name("monday")?;
/// assert!(RunId::check_name("mon.day").is_err());
/// let run = RunId { name: "monday".into(), generation: 2, rows_since: 1, birth: 0 };
/// assert_eq!(run.table("clicks"), "monday.clicks");
/// // Generation 3 begins with new rows, which are in another table.
/// let fresh = RunId { generation: 3, rows_since: 3, ..run };
/// assert_eq!(fresh.table("clicks"), "monday.3.clicks");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunId {
    /// The run's name.
    pub name: String,
    /// How often the run was begun, this time included.
    pub generation: u32,
    /// The generation that began with these rows.
    pub rows_since: u32,
    /// A random number, drawn when a registry first heard of the run. It tells the run from one of the same name in a
    /// lost registry. 0: not known.
    pub birth: u64,
}

/// The run of a job, as its scheduler knows it. The default is that of a program that names no run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobRun {
    /// The run's name.
    pub name: String,
    /// The generation of the run. 0: unknown.
    pub generation: u32,
    /// The birth of the run. 0: unknown.
    pub birth: u64,
}

impl RunId {
    /// Checks the name of a run.
    ///
    /// # Errors
    /// It is empty, too long, or has other characters than letters, digits, `_` and `-`.
    pub fn check_name(name: &str) -> Result<(), String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        match !name.is_empty() && name.len() <= RUN_NAME_BYTES_MAX && name.chars().all(allowed) {
            true => Ok(()),
            false => Err(format!(
                "{name:?} is no name of a run: use 1 to {RUN_NAME_BYTES_MAX} letters, digits, _ and -"
            )),
        }
    }

    /// It, as the scheduler of its job knows it.
    pub fn of_job(&self) -> JobRun {
        JobRun { name: self.name.clone(), generation: self.generation, birth: self.birth }
    }

    /// The name of one of the run's tables on the servers. No run's name has a dot, so no two runs share a table.
    pub fn table(&self, own: &str) -> String {
        match self.rows_since {
            0 | 1 => format!("{}.{own}", self.name),
            since => format!("{}.{since}.{own}", self.name),
        }
    }
}

/// A flag that must be the same for all workers of a run.
///
/// ```
/// use gannet_wire::RunSetting;
///
/// let alpha = RunSetting::new("--alpha", 0.1).of_rows();
/// assert_eq!((alpha.value.as_str(), alpha.of_rows), ("0.1", true));
/// ```
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct RunSetting {
    /// The flag, or its subject.
    pub flag: String,
    /// The value that is compared.
    pub value: String,
    /// The value as messages show it.
    pub shown: String,
    /// The rows depend on it: a worker that trains them further needs the same value.
    pub of_rows: bool,
}

impl RunSetting {
    /// A flag whose compared value is also the one that messages show.
    pub fn new(flag: &str, value: impl ToString) -> RunSetting {
        let value = value.to_string();
        RunSetting { flag: flag.to_owned(), shown: value.clone(), value, of_rows: false }
    }

    /// Whether it says where the job is, and not what it trains: `--scheduler` and `--shards`. All workers need the
    /// same, but a job that is restored may have another one. The flag may have an explanation behind it.
    pub fn is_of_place(&self) -> bool {
        is_of_place(&self.flag)
    }

    /// Marks the setting as one on which the rows depend.
    pub fn of_rows(self) -> RunSetting {
        RunSetting { of_rows: true, ..self }
    }
}

/// The flag with the number of shards.
pub const SHARDS: &str = "--shards";

/// Whether this flag is one of the place, as [`RunSetting::is_of_place`] says.
pub fn is_of_place(flag: &str) -> bool {
    ["--scheduler", SHARDS].contains(&flag.split(' ').next().unwrap_or(flag))
}

/// What a worker that joins a run wants. `RunClient` has an example.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunIntent {
    /// Begin the run, or go on with one that is not finished.
    Auto,
    /// Also train the rows of a finished run further.
    Continue,
    /// Begin with new rows.
    Fresh,
}

/// A worker joins a run.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JoinV1 {
    pub want: RunIntent,
    pub settings: Vec<RunSetting>,
    /// The run's tables, by their names within the run.
    pub tables: Vec<String>,
    /// The worker's wall time in seconds since 1970. It only serves to say how long ago a run ended.
    pub at: u64,
    /// What the run remembers of its data, such as how numbers are scaled. The process that begins the rows decides it.
    pub notes: String,
    /// A random number: the birth of the run, if the registry does not know the run yet.
    pub birth: u64,
    /// Tables of the run that other servers have.
    pub left: Vec<String>,
    /// How long the worker may be silent, in milliseconds. 0: the limit of all workers.
    pub timeout_ms: u64,
}

/// A request to the registry.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RunRequestV1 {
    pub name: String,
    pub incarnation: WorkerIncarnation,
    pub what: RunActionV1,
}

/// See `Registry` for each.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum RunActionV1 {
    Join(JoinV1),
    /// A heartbeat. The reply is [`RunReplyV1::OrdersV2`].
    BeatV2 {
        generation: u32,
        beat: RunBeatV2,
    },
    /// The worker has trained its share.
    Done {
        generation: u32,
    },
    /// All shares are trained, except those of the `missing` workers, and the model is saved.
    Finish {
        generation: u32,
        rows: u64,
        at: u64,
        missing: Vec<u32>,
    },
    /// The worker withdraws: it has begun the run here, while another worker has begun it elsewhere.
    Withdraw {
        generation: u32,
    },
    /// All servers have dropped these tables of an earlier generation.
    Dropped {
        tables: Vec<String>,
    },
    List,
    /// Asks whether the run is known here, and which of these tables of it exist.
    Look {
        tables: Vec<String>,
    },
    /// The worker trains splits of the job with this number, as its scheduler says. The scheduler knows of these dead.
    JobV2 {
        generation: u32,
        number: u64,
        unfenced: Vec<WorkerIncarnation>,
    },
    /// The run is to be forgotten: asked until no table is left to drop.
    Forget,
    /// Asks which tables the server has, and how full they are.
    TablesV2,
    /// Every owner of shards refuses this dead incarnation.
    Fenced {
        generation: u32,
        dead: WorkerIncarnation,
    },
    /// The worker leaves the job. Every push of it is acknowledged.
    Leave {
        generation: u32,
    },
}

/// A worker's heartbeat: it lives, does this, and holds these splits.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct RunBeatV2 {
    /// Batches that it has trained.
    pub batches: u64,
    /// As in [`JoinV1`].
    pub timeout_ms: u64,
    /// What it does. The count in it grows with each thing that the worker gets done.
    pub work: Activity,
    /// How far it is in its splits, if a scheduler hands out the data.
    pub progress: Option<Progress>,
}

/// A dead worker that must be fenced. `RunSession::beat` returns it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct DeadWorker {
    /// Which incarnation of which worker.
    pub incarnation: WorkerIncarnation,
    /// For each split that it held, how many of its batches every server has acknowledged, as it last reported.
    pub acked: Vec<(u64, u64)>,
}

/// A reply of the registry.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum RunReplyV1 {
    Joined {
        generation: u32,
        rows_since: u32,
        /// The [`RunDecision`](crate::messages::runs::RunDecision): 0 begun, 1 joined, 2 resumed, 3 continued, 4 fresh,
        /// 5 late.
        decided: u32,
        /// Tables of earlier generations, which all servers must drop.
        to_drop: Vec<String>,
        /// What the run remembers of its data.
        notes: String,
        birth: u64,
    },
    /// The reply to [`RunActionV1::Look`].
    Seen {
        known: bool,
        left: Vec<String>,
    },
    /// Another incarnation of this worker has a session. The registry heard of it this number of milliseconds ago.
    Taken {
        silent_ms: u64,
    },
    /// The reply to a heartbeat, and to reports of a member.
    OrdersV2 {
        finished: bool,
        members: Vec<RunMember>,
        /// What this worker must fence now.
        fence: Vec<DeadWorker>,
        /// Why the job failed, if it did and its scheduler is in the same server.
        failed: Option<String>,
    },
    Noted,
    Runs {
        runs: Vec<Run>,
    },
    /// The reply to [`RunActionV1::Forget`]: tables that all servers must drop first. None: the run is forgotten.
    Forgets {
        to_drop: Vec<String>,
    },
    TablesV2 {
        tables: Vec<TableUse>,
    },
}

/// How full a table of a server is, as `gannet status` shows it.
///
/// ```
/// use gannet_server::{Server, ServerConfig};
/// use gannet_worker::{WorkerConfig, known_tables};
/// # use gannet_transport::multi::Transports;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let tables = known_tables(Transports::new(), &WorkerConfig::reader([server.addr()]))?;
/// assert!(tables.is_empty(), "nobody has opened one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct TableUse {
    /// The name of the table, with that of its run.
    pub name: String,
    /// The pushers that the fullest shard of thread 0 remembers: workers, clients and splits of the data.
    pub pushers: u32,
    /// The clients without an index among the pushers of a shard that are closed, or have had no session for a minute.
    /// `gannet forget --clients` forgets them, so that others have room.
    pub clients_gone: u32,
    /// How many pushers a shard can remember.
    pub pushers_max: u32,
}

/// A worker of a run. `RunClient::members` returns them.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunMember {
    /// Its present incarnation.
    pub incarnation: WorkerIncarnation,
    /// It has trained its share.
    pub done: bool,
    /// It has a session, and its heartbeats arrive.
    pub live: bool,
    /// It is dead, as the registry has decided: it was silent for longer than its `--worker-timeout`, or others wait
    /// for it and it has made no progress for five of these. A worker whose session has just ended may still come back.
    pub lost: bool,
    /// Batches that it has trained, as it last reported.
    pub batches: u64,
}

/// A run, as `gannet status` shows it.
///
/// ```
/// use gannet_server::{Server, ServerConfig};
/// use gannet_worker::{WorkerConfig, known_runs};
/// # use gannet_transport::multi::Transports;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let runs = known_runs(Transports::new(), &WorkerConfig::reader([server.addr()]))?;
/// assert!(runs.is_empty(), "nobody has trained here");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// How often it was begun.
    pub generation: u32,
    /// The generation that began its rows.
    pub rows_since: u32,
    /// It is finished.
    pub finished: bool,
    /// Rows of its tables when it finished.
    pub rows: u64,
    /// When it finished, in seconds since 1970, by the clock of the worker that reported the end.
    pub finished_at: u64,
    /// Its workers. Empty for a finished run.
    pub members: Vec<RunMember>,
}

/// The rank of a job's client among the workers of its run. A [`RunMember`](crate::messages::runs::RunMember) with this
/// rank is the client.
pub const CLIENT: u32 = u32::MAX - 1;

/// The worker of a rank in words, or the client.
pub fn who(rank: u32) -> String {
    if rank == CLIENT { "the client".into() } else { format!("worker {rank}") }
}

/// The registry's decision about a process that comes to a run. `RunClient` has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunDecision {
    /// It begins the run.
    Begun,
    /// Others have begun it.
    Joined,
    /// An earlier incarnation of this worker was in it.
    Resumed,
    /// It begins the next generation, with the rows that are there.
    Continued,
    /// It begins the next generation, with new rows.
    Fresh,
    /// It comes too late: everything is trained and saved.
    Late,
}

impl RunDecision {
    const ALL: [RunDecision; 6] = [
        RunDecision::Begun,
        RunDecision::Joined,
        RunDecision::Resumed,
        RunDecision::Continued,
        RunDecision::Fresh,
        RunDecision::Late,
    ];

    pub fn code(self) -> u32 {
        RunDecision::ALL.iter().position(|decided| *decided == self).unwrap_or(0) as u32
    }

    pub fn of_code(code: u32) -> Option<RunDecision> {
        RunDecision::ALL.get(code as usize).copied()
    }

    /// The decision in a word, for people and programs.
    pub fn name(self) -> &'static str {
        ["begun", "joined", "resumed", "continued", "fresh", "late"][self.code() as usize]
    }
}
