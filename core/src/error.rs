//! The errors of this room, by family: opening, pulling, pushing.

use crate::push_name::DATA_PUSHERS;
use crate::schema::identity::TableIdentity;
use crate::schema::schema_error::SchemaError;
use std::io;
use std::path::PathBuf;

/// Why a store or a table's shards cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The schema is not sound.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The range of shards is not one of the table's.
    #[error("table {table:?} has shards 0..{shards}; {from}..{to} was asked")]
    Range {
        /// Table.
        table: String,
        /// Shards that it has.
        shards: u32,
        /// First asked.
        from: u32,
        /// End asked.
        to: u32,
    },
    /// Another process owns the folder.
    #[error("{}: another server owns this data folder (its LOCK is held); stop it or use another --data-dir", .0.display())]
    Locked(PathBuf),
    /// The shard is open: two owners would overwrite each other's rows.
    #[error(
        "shard {shard} of table {table:?} is open in this process already: drop its owner before it is opened again"
    )]
    Open {
        /// Table.
        table: String,
        /// Which shard.
        shard: u32,
    },
    /// The operating system refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A limit forbids one more image.
    #[error("making the image {}: {source}", path.display())]
    Limit {
        /// Which file.
        path: PathBuf,
        /// Which limit.
        source: GrowError,
    },
    /// The file is not an image of this program.
    #[error("{}: not a gannet shard image ({why}); move it away and restore from a checkpoint", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What shows it.
        why: String,
    },
    /// The image is damaged.
    #[error("{}: the image is torn ({why}); move it away and restore from a checkpoint", path.display())]
    Torn {
        /// Which file.
        path: PathBuf,
        /// What shows it.
        why: String,
    },
    /// The image was left open by another boot of the machine, so its last pages may not have reached the disk.
    #[error("{}: the machine went down while this image was open, so it may be torn; move it away and restore from a checkpoint", path.display())]
    OlderBoot {
        /// Which file.
        path: PathBuf,
    },
    /// An image that a server gave cannot be read.
    #[error(
        "the image of shard {shard} of table {table:?} that the server gave cannot be read ({why}): are both sides of one \
         version of gannet? --transport tcp does without"
    )]
    Given {
        /// Table.
        table: String,
        /// Which shard.
        shard: u32,
        /// What is wrong with it.
        why: String,
    },
    /// The image is of another table, or was made by another server, than the others.
    #[error(
        "{}: the image is of another table or server: {found}; {wanted} was expected: put each server's own folder back",
        path.display()
    )]
    OtherTable {
        /// Which file.
        path: PathBuf,
        /// What its head says.
        found: TableIdentity,
        /// What it should say.
        wanted: TableIdentity,
    },
    /// An image that was there is not there any more.
    #[error(
        "{}: the image of shard {shard} of table {table:?} is gone, and its rows with it: put it back, or move the folders of \
         this table away on all servers to begin anew",
        path.display()
    )]
    Gone {
        /// Which file.
        path: PathBuf,
        /// Table.
        table: String,
        /// Which shard.
        shard: u32,
    },
    /// The image holds a table of another schema.
    #[error(
        "{}: the image is of another schema: {how}; give the flags that it was made with, or another --data-dir",
        path.display()
    )]
    OtherSchema {
        /// Which file.
        path: PathBuf,
        /// What is otherwise.
        how: String,
    },
}

/// Why an image cannot grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The operating system has no memory or disk.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The store's memory limit.
    #[error(
        "the tables take {used} bytes of their memory limit of {limit}: raise it (--memory-limit), spread the table over \
         more servers, or admit fewer rows"
    )]
    Memory {
        /// Bytes that all images of the store take.
        used: u64,
        /// Their limit.
        limit: u64,
    },
    /// A region's limit.
    #[error("the shard's {region} would pass their limit of {max} bytes: use more shards")]
    Region {
        /// Which.
        region: &'static str,
        /// Its limit.
        max: usize,
    },
    /// The directory of extents is full.
    #[error("the shard has {max} extents, its limit: use more shards", max = crate::limits::EXTENTS_MAX)]
    Extents,
    /// The shard has all the slots that it can have.
    #[error("the shard has {max} slots, its limit: use more shards", max = crate::limits::SLOTS_MAX)]
    Slots,
}

/// Why a pull is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// A key belongs to a shard that is not here.
    #[error("key {key} belongs to shard {shard}, which is not here")]
    WrongShard {
        /// The key.
        key: u64,
        /// Its shard.
        shard: u32,
    },
    /// Lengths do not agree.
    #[error("{what}: {got} where {want} was expected")]
    Length {
        /// Of what.
        what: &'static str,
        /// Given.
        got: usize,
        /// Expected.
        want: usize,
    },
    /// Segments that rows do not have, or none.
    #[error(
        "segments {asked:#010b} (a bit each, the first the lowest) of rows that have {segments}: choose one or more of these"
    )]
    Segments {
        /// A bit each.
        asked: u8,
        /// How many a row has.
        segments: usize,
    },
}

/// Whose pushes these are, in words: a worker's, which is told by its place in the job, or those of a piece of the data.
pub fn pusher_in_words(pusher: u64) -> String {
    match pusher.checked_sub(1) {
        Some(rank) if pusher < DATA_PUSHERS => format!("worker {rank}"),
        _ => "the data of a piece".to_owned(),
    }
}

fn fenced_in_words(pusher: u64) -> String {
    let who = pusher_in_words(pusher);
    match pusher < DATA_PUSHERS {
        true => format!(
            "a later start of {who} has taken its place, or the others went on without it: if two processes have one \
             --task-index, give each its own; if not, start it again"
        ),
        false => format!("{who} belongs to a later job, which has pushed it since: start this worker again"),
    }
}

/// Why a push is refused. Rows before the refusal are applied and remembered: the same push, sent again, goes on there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// As for a pull.
    #[error(transparent)]
    Keys(#[from] PullError),
    /// Keys are not in cut order.
    #[error("keys are not in ascending order of shard at position {0}")]
    Order(usize),
    /// A change of state for a table that does not add them.
    #[error(
        "table {0:?} takes gradients, not changes of state: its rule is {1}, and only add, sgd, adagrad, row-adagrad, ftrl and group-ftrl without schedule, clipping and L2 can be replayed"
    )]
    NoReplay(String, &'static str),
    /// Damped changes of state in a table whose rows do not count their pushes.
    #[error("table {0:?}: its rows do not count their pushes, which damped changes of state need")]
    NoCount(String),
    /// What is for tables of vectors was asked of another, or cannot be done there.
    #[error("table {table:?}: {why}")]
    Program {
        /// Table.
        table: String,
        /// What is wrong.
        why: String,
    },
    /// A newer incarnation of this pusher exists.
    #[error("{}", fenced_in_words(*.pusher))]
    Fenced {
        /// Who.
        pusher: u64,
        /// Its incarnation.
        incarnation: u64,
        /// The one that took over.
        newer: u64,
    },
    /// An earlier push of this pusher was refused half way and has not been sent again.
    #[error(
        "push {seq} of this pusher stopped at row {done} of {rows} in shard {shard}: send the rest of it before later pushes"
    )]
    Unfinished {
        /// Shard.
        shard: u32,
        /// Its sequence number.
        seq: u64,
        /// Rows of its run that are applied.
        done: u32,
        /// Rows that the shard has heard of.
        rows: u32,
    },
    /// Rows before these are missing.
    #[error(
        "push {seq} begins at row {row} of its run in shard {shard}, which has {done} rows of it: send the rows between first"
    )]
    Gap {
        /// Shard.
        shard: u32,
        /// Sequence number.
        seq: u64,
        /// The place of its first row in the run.
        row: u32,
        /// Rows of the run that the shard has.
        done: u32,
    },
    /// The last incarnation that there is cannot be fenced.
    #[error("incarnation 2^64 - 1 of {} cannot be fenced: no incarnation is above it", pusher_in_words(*.pusher))]
    LastIncarnation {
        /// Who.
        pusher: u64,
    },
    /// Too many pushers.
    #[error(
        "shard {shard} remembers {max} pushers, its limit; finish old workers under their own identity first"
    )]
    TooManyPushers {
        /// Shard.
        shard: u32,
        /// The limit.
        max: usize,
    },
    /// No memory or disk for new rows.
    #[error("no space for new rows in shard {shard}: {source}; free some space and send the push again")]
    NoSpace {
        /// Shard.
        shard: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A limit forbids new rows: waiting does not help.
    #[error("no new rows in shard {shard}: {source}")]
    Limit {
        /// Shard.
        shard: u32,
        /// Which limit.
        source: GrowError,
    },
}

impl PushError {
    /// What did not grow, as a reason to refuse a push to this shard.
    pub(crate) fn of_growth(shard: u32, error: GrowError) -> PushError {
        match error {
            GrowError::System(source) => PushError::NoSpace { shard, source },
            source => PushError::Limit { shard, source },
        }
    }
}
