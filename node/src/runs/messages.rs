//! What workers ask of the registry of runs, and what it answers: frozen structs, as they travel and are kept.

use crate::limits::RUN_NAME_BYTES_MAX;
use crate::scheduler::member::WorkerIncarnation;
use rkyv::{Archive, Deserialize, Serialize};

/// Which rows a worker trains: those of a run, since a generation of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunId {
    /// The run's name.
    pub name: String,
    /// How often it was begun, this time included.
    pub generation: u32,
    /// The generation that began its rows.
    pub rows_since: u32,
    /// Drawn when a registry first heard of it: tells it from a run of this name that a lost registry knew. 0: not
    /// known.
    pub birth: u64,
}

impl RunId {
    /// Whether a run may be called so, or why not.
    ///
    /// # Errors
    /// It is empty, too long, or has other characters than letters, digits, `_` and `-`.
    pub fn check_name(name: &str) -> Result<(), String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        match !name.is_empty() && name.len() <= RUN_NAME_BYTES_MAX && name.chars().all(allowed) {
            true => Ok(()),
            false => Err(format!(
                "{name:?} is no name of a run: 1 to {RUN_NAME_BYTES_MAX} letters, digits, _ and - are possible"
            )),
        }
    }

    /// What one of its tables is called at the servers. No run's name has a dot, so no two runs share a table.
    pub fn table(&self, own: &str) -> String {
        match self.rows_since {
            0 | 1 => format!("{}.{own}", self.name),
            since => format!("{}.{since}.{own}", self.name),
        }
    }
}

/// A flag that all workers of a run must be given alike.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct RunSetting {
    /// The flag, or what it is about.
    pub flag: String,
    /// What is compared.
    pub value: String,
    /// How it is told to people.
    pub shown: String,
    /// The rows depend on it: whoever trains them further must be given the same.
    pub of_rows: bool,
}

impl RunSetting {
    /// A flag that is shown as it is compared.
    pub fn new(flag: &str, value: impl ToString) -> RunSetting {
        let value = value.to_string();
        RunSetting { flag: flag.to_owned(), shown: value.clone(), value, of_rows: false }
    }

    /// One that the rows depend on.
    pub fn of_rows(self) -> RunSetting {
        RunSetting { of_rows: true, ..self }
    }
}

/// What whoever comes to a run wants of it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunIntent {
    /// To begin it, or to go on with one that is not finished.
    Auto,
    /// Also to train the rows of one that is finished further.
    Continue,
    /// To begin with new rows.
    Fresh,
}

/// Somebody comes to a run.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct JoinV1 {
    pub(crate) want: RunIntent,
    pub(crate) settings: Vec<RunSetting>,
    /// Its tables, by their own names.
    pub(crate) tables: Vec<String>,
    /// What time it is there, in seconds since 1970: to say how long ago a run ended, and for nothing else.
    pub(crate) at: u64,
    /// What the run is to remember of its data, such as how numbers are scaled. The first process of the rows decides.
    pub(crate) notes: String,
    /// The birth of the run, if it is not known yet: a random number.
    pub(crate) birth: u64,
    /// Tables of the run that other servers have.
    pub(crate) left: Vec<String>,
}

/// What a worker asks.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct RunRequestV1 {
    pub(crate) name: String,
    pub(crate) incarnation: WorkerIncarnation,
    pub(crate) what: RunActionV1,
}

/// See [`super::Registry`] for each.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum RunActionV1 {
    Join(JoinV1),
    /// It lives and has trained so many batches; who else is there is answered.
    Beat {
        generation: u32,
        batches: u64,
    },
    /// It has trained what it had to.
    Done {
        generation: u32,
    },
    /// All is trained, but for the shares of these workers, and the model is saved.
    Finish {
        generation: u32,
        rows: u64,
        at: u64,
        missing: Vec<u32>,
    },
    /// It has begun the run here while another worker has begun it elsewhere: as if it had not.
    Withdraw {
        generation: u32,
    },
    /// These tables of an earlier generation are gone at all servers.
    Dropped {
        tables: Vec<String>,
    },
    List,
    /// Whether the run is known here, and which of these tables of it are.
    Look {
        tables: Vec<String>,
    },
}

/// What is answered.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum RunReplyV1 {
    Joined {
        generation: u32,
        rows_since: u32,
        /// 0 begun, 1 joined, 2 resumed, 3 continued, 4 begun with new rows, 5 come too late.
        decided: u32,
        /// Tables of earlier generations, which are to be dropped at all servers.
        doomed: Vec<String>,
        /// What the run remembers of its data.
        notes: String,
        birth: u64,
    },
    /// What [`RunActionV1::Look`] asks.
    Seen {
        known: bool,
        left: Vec<String>,
    },
    /// Another life of this worker has a session, and was heard of so many milliseconds ago.
    Taken {
        silent_ms: u64,
    },
    Members {
        finished: bool,
        members: Vec<RunMember>,
    },
    Noted,
    Runs {
        runs: Vec<Run>,
    },
}

/// A worker of a run.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunMember {
    /// Its present life.
    pub incarnation: WorkerIncarnation,
    /// It has trained what it had to.
    pub done: bool,
    /// It gives signs of life.
    pub live: bool,
    /// Batches that it has trained, as it said last.
    pub batches: u64,
}

/// A run, as `gannet status` shows it.
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
    /// Rows of its tables when it was.
    pub rows: u64,
    /// When it was, in seconds since 1970, by the clock of the worker that said so.
    pub finished_at: u64,
    /// Its workers; of a finished run nobody is told.
    pub members: Vec<RunMember>,
}
