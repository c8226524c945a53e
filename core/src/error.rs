//! The errors of this crate, by family: opening, pulling, pushing.

use crate::push_name::{CLIENTS, DATA_PUSHERS};
use crate::schema::identity::TableIdentity;
use crate::schema::schema_error::SchemaError;
use crate::schema::shard_set::ShardSet;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store or a table's shards cannot be opened.
///
/// ```
/// # use gannet_core::{OpenError, Schema, Shards, Store};
/// # use gannet_optim::{Add, Rule};
/// let (store, schema) = (Store::memory(), Schema::scalar("clicks", Rule::Add(Add)));
/// let _owner = Shards::open(&store, &schema, 0..64)?;
/// match Shards::open(&store, &schema, 3..4) {
///     Err(OpenError::Open { shard, .. }) => assert_eq!(shard, 3, "the owner is open"),
///     Err(error) => println!("{error}"),
///     Ok(_) => println!("shard 3 is open"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The schema is not sound.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The table does not have these shards, or none were named, or there is not one image for each of them.
    #[error(
        "{set} of table {table:?} cannot be opened: open one or more of its {shards} shards, numbered from 0"
    )]
    Shards {
        /// The table's name.
        table: String,
        /// Number of its shards.
        shards: u32,
        /// The requested shards.
        set: ShardSet,
    },
    /// Another process owns the folder, or an image in it.
    #[error(
        "{}: another server uses this data folder and holds its lock: stop that server, or use another --data-dir",
        .0.display()
    )]
    Locked(PathBuf),
    /// The shard is already open here. Two owners would overwrite each other's rows.
    #[error(
        "shard {shard} of table {table:?} is open in this process already: drop its owner before you open it again"
    )]
    Open {
        /// The table's name.
        table: String,
        /// The shard.
        shard: u32,
    },
    /// A call of the operating system failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A limit forbids another image.
    #[error("cannot make the image {}: {source}", path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// The limit.
        source: GrowError,
    },
    /// The file is not an image, or is one of another format.
    #[error(
        "{}: not a gannet shard image ({why}): move the file away and restore the table from a checkpoint",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The image is damaged.
    #[error(
        "{}: the image is torn ({why}): move the file away and restore the table from a checkpoint",
        path.display()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The image was left open by another boot of the machine, so its last pages may not have reached the disk.
    #[error(
        "{}: the machine went down while this image was open, so the image may be torn: move the file away \
         and restore the table from a checkpoint",
        path.display()
    )]
    OlderBoot {
        /// The file.
        path: PathBuf,
    },
    /// The process may have no more images.
    #[error(
        "{}: the process may have no more {resource}, of which each shard has some: drop tables that are not needed, make tables \
         with fewer shards, use more servers, or raise the limit ({limit})",
        path.display()
    )]
    TooMany {
        /// The file.
        path: PathBuf,
        /// What has run out.
        resource: &'static str,
        /// The limit of the system.
        limit: &'static str,
    },
    /// The machine lost power while images of the folder were new.
    #[error(
        "{}: the machine went down while tables of this folder were new, so some may be missing: begin with another folder, \
         from a checkpoint if there is one; to go on with the tables that are here, remove this file",
        note.display()
    )]
    NewLost {
        /// The file that says so.
        note: PathBuf,
    },
    /// A reader cannot use an image that a server shared with it.
    #[error(
        "the server shared an image of shard {shard} of table {table:?} that cannot be read ({why}): run the same version \
         of gannet on both sides, or use --transport tcp"
    )]
    SharedImage {
        /// The table's name.
        table: String,
        /// The shard.
        shard: u32,
        /// What is wrong with the image.
        why: String,
    },
    /// The image belongs to another table than expected, or another server made it.
    #[error(
        "{}: the image belongs to another table or server: found {found}, expected {wanted}: give each server its own folder",
        path.display()
    )]
    OtherTable {
        /// The file.
        path: PathBuf,
        /// The identity in its head.
        found: TableIdentity,
        /// The expected identity.
        wanted: TableIdentity,
    },
    /// An image is missing that existed before.
    #[error(
        "{}: the image of shard {shard} of table {table:?} is gone, and its rows with it: put the file back, or move the \
         table's folders away on all servers to start again without its rows",
        path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The table's name.
        table: String,
        /// The shard.
        shard: u32,
    },
    /// An image has changed on its medium while no server had it open.
    #[error(
        "{}: the 2 MiB from byte {at} on are damaged (their checksum is wrong): restore the tables from a checkpoint into \
         an empty --data-dir, or start with --no-verify to serve the rows as they are",
        path.display()
    )]
    Damaged {
        /// The image.
        path: PathBuf,
        /// The offset of the damaged chunk.
        at: u64,
    },
    /// The check of the images was given up.
    #[error(
        "{}: reading the images took too long, {read} bytes were read: look at the disk, or start with --no-verify",
        folder.display()
    )]
    CheckGivenUp {
        /// The data folder.
        folder: PathBuf,
        /// Bytes that were read.
        read: u64,
    },
    /// A table of the data folder has lost all of its images.
    #[error(
        "{}: this folder had the images of table {table:?}, and they are gone with all of its rows: put them back, or \
         restore a checkpoint into an empty --data-dir; to begin the table anew, remove its line from {}",
        folder.display(), list.display()
    )]
    TableGone {
        /// The table's name.
        table: String,
        /// The folder of its images.
        folder: PathBuf,
        /// The list of tables.
        list: PathBuf,
    },
    /// The list of the tables in a data folder cannot be used.
    #[error(
        "{}: {why}: put the file back as it was; if gannet did not write it, move it away",
        path.display()
    )]
    Tables {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The image holds a table of another schema.
    #[error(
        "{}: the image has another schema: {how}; use the flags that made the image, or another --data-dir",
        path.display()
    )]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// The differences, in words.
        how: String,
    },
}

impl OpenError {
    /// The error of a system call about an image.
    pub(crate) fn of_image(what: &'static str, path: &Path, source: io::Error) -> OpenError {
        let (path, limit) = (path.to_path_buf(), source.raw_os_error());
        match limit {
            Some(libc::ENOMEM) => {
                OpenError::TooMany { path, resource: "mappings", limit: "sysctl vm.max_map_count" }
            }
            Some(libc::EMFILE) => OpenError::TooMany { path, resource: "open files", limit: "ulimit -n" },
            _ => OpenError::Io { what, path, source },
        }
    }
}

/// Why an image cannot grow.
///
/// ```
/// # use gannet_core::{GrowError, GrowthConfig, OpenError, Schema, Shards, Store};
/// # use gannet_optim::{Add, Rule};
/// let store = Store::memory_with(GrowthConfig { memory_limit: 4096, ..GrowthConfig::default() });
/// let opened = Shards::open(&store, &Schema::scalar("clicks", Rule::Add(Add)), 0..64).err();
/// assert!(matches!(opened, Some(OpenError::Limit { source: GrowError::Memory { limit: 4096, .. }, .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The operating system has no memory or disk.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The store's memory limit is reached.
    #[error(
        "the tables use {used} bytes of their memory limit of {limit}: raise the limit (--memory-limit), use more servers, \
         or admit fewer rows"
    )]
    Memory {
        /// Bytes that all images of the store take.
        used: u64,
        /// Their limit.
        limit: u64,
    },
    /// A region of the image has reached its limit.
    #[error("the shard's {region} would need more than their limit of {max} bytes: use more shards")]
    Region {
        /// The region, in words.
        region: &'static str,
        /// Its limit in bytes.
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
    /// A key belongs to a shard that is not open here.
    #[error("key {key} belongs to shard {shard}, which is not open here: send it to the owner of that shard")]
    WrongShard {
        /// The key.
        key: u64,
        /// Its shard.
        shard: u32,
    },
    /// A length is wrong.
    #[error("wrong length: {got} {what}, expected {want}")]
    Length {
        /// What is counted.
        what: &'static str,
        /// Given.
        got: usize,
        /// Expected.
        want: usize,
    },
    /// The pull names no segment, or one that the rows do not have.
    #[error(
        "the rows have {segments} segments, but the pull reads those of mask {requested:#010b} (lowest bit: first segment): choose \
         segments that the rows have"
    )]
    Segments {
        /// A bit for each requested segment.
        requested: u8,
        /// Number of segments of a row.
        segments: usize,
    },
}

/// A pusher in words: a worker by its task index, or a split of the data.
pub fn pusher_in_words(pusher: u64) -> String {
    match pusher.checked_sub(1) {
        Some(_) if (CLIENTS + 1..DATA_PUSHERS).contains(&pusher) => format!("client {}", pusher - CLIENTS),
        Some(rank) if pusher < DATA_PUSHERS => format!("worker {rank}"),
        _ => "a split of the data".to_owned(),
    }
}

fn fenced_in_words(pusher: u64) -> String {
    let who = pusher_in_words(pusher);
    if (CLIENTS + 1..DATA_PUSHERS).contains(&pusher) {
        return "the servers have gone on without this client, which was away for too long: connect again"
            .to_owned();
    }
    match pusher < DATA_PUSHERS {
        true => format!(
            "a later start of {who} has taken its place, or the other workers went on without it: give each process its own \
             --task-index, and start this worker again"
        ),
        false => format!("{who} is fenced: a later job has pushed it since; start this worker again"),
    }
}

/// Why a push is refused. The shard has applied and remembered the rows before the refusal. When the same push is sent
/// again, it continues there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// A wrong key or length, as for a pull.
    #[error(transparent)]
    Keys(#[from] PullError),
    /// Keys are not in shard order.
    #[error("keys must be in ascending order of shard, but key number {0} is not: sort the keys by shard")]
    Order(usize),
    /// A change of state for a table that does not add them.
    #[error(
        "table {0:?} takes gradients, not changes of state, because its rule is {1}: only add, sgd, adagrad, row-adagrad, ftrl and \
         group-ftrl without schedule, clipping, L2 and weights in 2 bytes can be replayed"
    )]
    NoReplay(String, &'static str),
    /// Damped changes of state in a table whose rows do not count their pushes.
    #[error(
        "table {0:?} does not count the pushes of its rows, which damped changes of state need: make the table with \
         Schema::counting"
    )]
    NoCount(String),
    /// The call is for tables of vectors and this is none, or its program is not sound.
    #[error("table {table:?}: {why}")]
    Program {
        /// The table's name.
        table: String,
        /// What is wrong.
        why: String,
    },
    /// A newer incarnation of this pusher exists.
    #[error("{}", fenced_in_words(*.pusher))]
    Fenced {
        /// The pusher.
        pusher: u64,
        /// Its incarnation in the push.
        incarnation: u64,
        /// The incarnation that fences it.
        newer: u64,
    },
    /// The shard may have forgotten this client, and so which of its pushes it has.
    #[error(
        "this client was away for so long that the servers have forgotten it: a table remembers only so many pushers; \
         connect again"
    )]
    Forgotten {
        /// Its incarnation.
        client: u64,
    },
    /// An earlier push of this pusher was refused half way, and its rest has not been sent.
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
        /// Rows of its run that the shard knows of.
        rows: u32,
    },
    /// Rows of the push before this part are missing.
    #[error(
        "push {seq} begins at row {row} of its run in shard {shard}, which has {done} rows of it: send the rows between first"
    )]
    Gap {
        /// Shard.
        shard: u32,
        /// Its sequence number.
        seq: u64,
        /// The place of its first row in the run.
        row: u32,
        /// Rows of the run that the shard has.
        done: u32,
    },
    /// The highest incarnation cannot be fenced.
    #[error(
        "incarnation 2^64 - 1 of {} cannot be fenced: no incarnation is above it",
        pusher_in_words(*.pusher)
    )]
    LastIncarnation {
        /// The pusher.
        pusher: u64,
    },
    /// The shard remembers as many pushers as it can.
    #[error(
        "shard {shard} remembers {max} pushers, its limit; close pushers that are done, or make the servers forget those \
         that are gone: gannet forget --clients"
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
        /// The error of the system.
        source: io::Error,
    },
    /// A limit forbids new rows. Waiting does not help.
    #[error("no new rows in shard {shard}: {source}")]
    Limit {
        /// Shard.
        shard: u32,
        /// The limit.
        source: GrowError,
    },
}

impl PushError {
    /// Turns a failure to grow into the refusal of a push to this shard.
    pub(crate) fn of_growth(shard: u32, error: GrowError) -> PushError {
        match error {
            GrowError::System(source) => PushError::NoSpace { shard, source },
            source => PushError::Limit { shard, source },
        }
    }
}
