//! What a checkpoint is saved with, and the error of a server that answers otherwise.

use crate::error::WorkerError;
use gannet_wire::messages::cuts::CutReplyV1;
use std::time::Duration;

/// What a checkpoint should be. [`save_checkpoint`](crate::checkpoint::coordinator::save_checkpoint) has an example.
#[derive(Clone, Debug)]
pub struct CheckpointOptions {
    /// The run whose tables are saved; empty: all tables.
    pub run: String,
    /// Write only what has changed since the newest valid checkpoint of the directory, where there is one.
    pub increment: bool,
    /// zstd's level; 0: no compression.
    pub level: i32,
    /// The longest time for which pushes wait for the cut. At most 5 s.
    pub freeze: Duration,
    /// How often a cut is tried, if pushes had to wait for too long.
    pub tries: u32,
    /// Notes for the manifest: (name, value).
    pub notes: Vec<(String, String)>,
    /// The birth of the run ([`RunId::birth`](gannet_wire::messages::runs::RunId)): a checkpoint of another job whose
    /// run has the same name is refused. 0: not known.
    pub birth: u64,
    /// Whether this process is the only one that saves this run, one checkpoint after the other. It then removes what
    /// its predecessor had written when it was killed.
    pub sole: bool,
    /// Tables to which each batch of data pushes, under one name ([`DataName`](crate::requests::names::DataName)): the
    /// cut contains a batch in all of them or in none. Empty: what the newest checkpoint of the run says in its note
    /// `batch-tables`; if there is none, each table is cut by itself.
    pub batch_tables: Vec<String>,
}

impl Default for CheckpointOptions {
    /// All tables, full, zstd level 1, 1 s, 5 tries, no notes, batch tables as before.
    fn default() -> CheckpointOptions {
        let (freeze, tries, notes) = (Duration::from_secs(1), 5, Vec::new());
        let (run, batch_tables) = (String::new(), Vec::new());
        CheckpointOptions {
            run,
            increment: false,
            level: 1,
            freeze,
            tries,
            notes,
            birth: 0,
            sole: false,
            batch_tables,
        }
    }
}

pub(crate) fn unexpected(reply: &CutReplyV1) -> WorkerError {
    let what = match reply {
        CutReplyV1::Frozen { .. } => "frozen",
        CutReplyV1::Marked { .. } => "marked",
        CutReplyV1::Writing { .. } => "writing",
        CutReplyV1::Written { .. } => "written",
        CutReplyV1::Failed { .. } => "failed",
        CutReplyV1::Done => "done",
        CutReplyV1::Gone { .. } => "gone",
        CutReplyV1::Part { .. } => "part",
    };
    WorkerError::Cut(format!("a server answered {what:?} to another step of a cut: begin again"))
}
