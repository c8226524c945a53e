//! The messages of a cut: frozen structs, which travel as they are.

use gannet_core::PushProgress;
use rkyv::{Archive, Deserialize, Serialize};

/// A step of a cut.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutRequestV1 {
    /// A random number that the coordinator has drawn for this try.
    pub cut: u64,
    /// The run whose tables are cut; empty: all tables.
    pub run: String,
    pub action: CutActionV1,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum CutActionV1 {
    /// Hold back every push that this thread has not begun, for at most so many milliseconds.
    Freeze { ms: u32 },
    /// Let these pushes in, steps below these, and the end of the data of the pushers `closes`. Close the data of the
    /// pushers `over`: it is done.
    Admit { pushes: Vec<PushLimitV1>, steps: Vec<CutStepV1>, closes: Vec<u64>, over: Vec<u64> },
    /// Mark the cut, and begin to write it.
    Mark(MarkV1),
    /// Let all pushes in.
    Release,
    /// How far is the writing?
    Poll,
    /// Forget the cut.
    End,
    /// Which of these pushes have a pusher that is gone, or stands still?
    Torn { pushes: Vec<TornPushV1> },
    /// Fence these pushers in all tables of the cut: they are gone in the middle of a push. Note these pushes of their
    /// fixed shares as ended.
    GiveUp { pushers: Vec<CutPusherV1>, ended: Vec<PushLimitV1> },
    /// A part of a request that is too long for a frame, of which so many bytes are left. The last part is answered as
    /// the request.
    Part { bytes: Vec<u8>, left: u64 },
    /// The next part of the reply.
    More,
    /// As `Freeze`, for a cut that a follower reads.
    FreezeForFollower { ms: u32 },
    /// Mark the cut of a follower, which reads its rows with `ReadCutFrame`.
    MarkForFollower(FollowerMarkV1),
}

/// What a follower cuts.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct FollowerMarkV1 {
    /// The tables. Others are not in the cut.
    pub tables: Vec<String>,
    /// Where the follower's last cut ends. Shards that are not named are cut in full.
    pub bases: Vec<CutBaseV1>,
}

/// The name of a state of a follower's cut: how old the rows are, in nanoseconds, if the server follows others itself.
pub const AGE: &str = "age";

/// The name of a state of a follower's cut: the commands and the history (u64 each) of the rows on the servers of the
/// job, if the server follows others itself.
pub const ROWS_POSITION: &str = "position";

/// A push that is not complete on all its shards.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct TornPushV1 {
    pub table: String,
    pub pusher: u64,
    pub incarnation: u64,
    pub seq: u64,
    /// Rows of it that were applied, on all shards.
    pub done: u64,
    /// A shard knows of more rows than it has applied.
    pub unfinished: bool,
}

/// One start of a worker.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutPusherV1 {
    pub pusher: u64,
    pub incarnation: u64,
}

/// The last push of a pusher that is let into a table.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct PushLimitV1 {
    pub table: String,
    pub pusher: u64,
    pub incarnation: u64,
    pub seq: u64,
}

/// A table in synchronous steps: the steps below `step` are in its rows.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutStepV1 {
    pub table: String,
    pub step: u64,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct MarkV1 {
    /// The checkpoint's number. Each server knows the checkpoint directory by its own path.
    pub number: u64,
    /// The level of the compression; 0: none.
    pub level: i32,
    /// The tables, in the order of the manifest.
    pub tables: Vec<String>,
    /// Where the parent's cut ends, for an increment.
    pub bases: Vec<CutBaseV1>,
}

/// A shard in the parent of an increment.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutBaseV1 {
    /// The table's place in [`MarkV1::tables`].
    pub table: u32,
    pub uid: [u8; 16],
    pub shard: u32,
    pub birth: u64,
    pub epoch: u64,
    pub command: u64,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum CutReplyV1 {
    /// The thread holds pushes back.
    Frozen {
        tables: Vec<CutTableV1>,
        pushes: Vec<CutPushV1>,
        held: Vec<PushLimitV1>,
        /// Pushers of data whose end is held back.
        closing: Vec<u64>,
        /// Of the pushers of data that the request names: those whose data is done. Only the scheduler's thread knows.
        over: Vec<u64>,
    },
    /// The cut is marked.
    Marked {
        shards: Vec<CutShardV1>,
        pushes: Vec<CutPushV1>,
        states: Vec<(String, Vec<u8>)>,
        /// The step of each table with shards here; 0: it is not in synchronous steps.
        steps: Vec<CutStepV1>,
    },
    /// The cut is being written.
    Writing {
        rows: u64,
        bytes: u64,
    },
    /// All files are written and synced.
    Written {
        files: Vec<CutFileV1>,
    },
    /// The writing has failed.
    Failed {
        why: String,
    },
    Done,
    /// Of the pushers of the request: those that may be given up, as far as this thread knows.
    Gone {
        pushers: Vec<CutPusherV1>,
    },
    /// A part of a reply that is too long for a frame, of which so many bytes are left.
    Part {
        bytes: Vec<u8>,
        left: u64,
    },
}

/// A table that is open on a thread. If the table's shards there are in different synchronous steps, the reply has the
/// table twice: with the lowest step and with the highest.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutTableV1 {
    pub name: String,
    /// `Schema::encode`.
    pub schema: Vec<u8>,
    pub uid: [u8; 16],
    /// In synchronous steps: the steps below this one are in the rows.
    pub step: Option<u64>,
}

/// What a thread has of a pusher's last push to a table.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutPushV1 {
    /// The table's place in the reply's tables, or in those of the mark.
    pub table: u32,
    pub pusher: u64,
    pub incarnation: u64,
    pub seq: u64,
    pub done: u64,
    pub total: u64,
    pub unfinished: bool,
    pub closed: bool,
}

impl CutPushV1 {
    pub fn new(table: u32, progress: &PushProgress) -> CutPushV1 {
        let PushProgress { pusher, incarnation, seq, done, total, unfinished, closed } = *progress;
        CutPushV1 { table, pusher, incarnation, seq, done, total, unfinished, closed }
    }

    pub fn progress(&self) -> PushProgress {
        let CutPushV1 { pusher, incarnation, seq, done, total, unfinished, closed, .. } = *self;
        PushProgress { pusher, incarnation, seq, done, total, unfinished, closed }
    }
}

/// A shard's part of the cut.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutShardV1 {
    /// The table's place in [`MarkV1::tables`].
    pub table: u32,
    pub shard: u32,
    pub birth: u64,
    pub epoch: u64,
    /// The cut holds what changed above this command; 0: all rows.
    pub from: u64,
    pub to: u64,
}

/// A row file.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct CutFileV1 {
    pub table: u32,
    pub shard: u32,
    pub name: String,
    pub bytes: u64,
    pub crc: u32,
    pub rows: u64,
    pub deletions: u64,
}
