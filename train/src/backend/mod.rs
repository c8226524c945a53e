//! Where the rows are: the seam between the training loop and the shards in this process, or the servers behind links.

pub(crate) mod cells;
mod cut_pool;
pub(crate) mod embedded;
pub(crate) mod flat_table;
pub(crate) mod remote;
pub(crate) mod tables;
pub(crate) mod weights;

use crate::backend::flat_table::FlatTable;
use crate::batch::{BatchKeys, InSplit};
use crate::learn::replay::SeenPushRuns;
use gannet_core::{OpenError, PullError, PushError, Read, Schema, Stats, Write};
use gannet_node::{Counters, WorkerError};

/// Why rows cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The servers, or the way to them.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The shards cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The shards refused a pull.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The shards refused a push.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The table of this process is full.
    #[error(
        "the table in this process has {rows} rows, and its limit is {limit} cells: train with servers (--ps-hosts)"
    )]
    Full {
        /// Rows that it has.
        rows: u64,
        /// Cells that it may have.
        limit: u64,
    },
    /// The table of this process would pass its memory limit.
    #[error(
        "the table in this process has {rows} rows and needs {bytes} bytes to grow, but its memory limit is {limit}: raise it \
         (--memory-limit), or train with servers (--ps-hosts)"
    )]
    Memory {
        /// Rows that it has.
        rows: u64,
        /// Bytes for the old and the new cells.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The table's schema does not fit the model.
    #[error("{0}")]
    Schema(String),
    /// The images could not be closed.
    #[error("the images cannot be written to disk: {0}")]
    Close(#[from] std::io::Error),
    /// Calls out of order: a bug of the caller.
    #[error("{0}")]
    Order(&'static str),
}

/// The rows of a pull.
#[derive(Debug, Default)]
pub struct PulledRows {
    /// What was read of each key's row, in the order of the keys: its weight, or its stored floats.
    pub values: Vec<f32>,
    /// Which own pushes they include.
    pub saw: SeenPushRuns,
}

/// Rows of one table, one weight each, for the training loop of logistic regression.
///
/// Keys of a call are unique and ascending by shard. The rows of a call are in that order. Pulls are answered in the
/// order in which they began. One push to the same keys follows each finished pull, before the next pull is finished.
/// Pushes are numbered from 0.
///
/// **Why it is not merged with [`Tables`](crate::Tables).** They share a few calls (drain, rest, scan, counts), and
/// differ in the ones that cost time. `Backend` pulls `depth` batches ahead, gives the own pushes that a pull missed
/// ([`PulledRows`]), and moves the rows into the push without a copy; a [`FlatTable`] gives its rows to be learned in
/// place. `Tables` pulls from many tables in one step, not ahead, in any order of keys, into the model's buffers. A
/// merged trait would give every model table numbers of missed pushes that it does not read, and give logistic
/// regression a table number and an order of keys that it does not need. What both do with keys is shared:
/// [`BatchKeys`] and the cut pool.
pub trait Backend {
    /// How rows travel: "embedded", "tcp", "shm".
    fn transport(&self) -> String;

    /// The table's schema.
    fn schema(&self) -> &Schema;

    /// Batches that should be pulled ahead of the one that is learned (0 when pulls are answered at once).
    fn depth(&self) -> usize;

    /// Whether pulls are, for the most part, answered when they are begun: then it is best to begin them late, when own
    /// pushes have been applied.
    fn is_near(&self, _read: Read) -> bool {
        false
    }

    /// Whether replay's changes of state are damped by the pushes of other workers: rows of pulls of state have their
    /// count of pushes behind the state, and pushes the count that is expected ([`Write::Damped`]).
    fn is_damped(&self) -> bool {
        false
    }

    /// The rows, when they can be learned where they are: replay then uses no pulls and pushes.
    fn in_place(&mut self) -> Option<&mut FlatTable> {
        None
    }

    /// Begins to pull the weights or the state of the rows of `keys`.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError>;

    /// The rows of the oldest pull begun.
    ///
    /// # Errors
    /// The rows cannot be read, or no pull was begun.
    fn finish_pull(&mut self) -> Result<PulledRows, BackendError>;

    /// Gives up the pull that was finished last, whose answer is `rows`: no push follows it.
    ///
    /// # Errors
    /// No pull was finished.
    fn forget_pull(&mut self, _rows: PulledRows) -> Result<(), BackendError> {
        Ok(())
    }

    /// Pushes to the rows of the pull that was finished last: gradients where it read weights, the change of state
    /// where it read state. `rows` is its answer, the values replaced. A push of a `piece` of the data goes under its
    /// name. It is applied for certain once [`drain`](Self::drain) has returned.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        piece: Option<&InSplit>,
    ) -> Result<(), BackendError>;

    /// Forgets the names of a split, which is learned, and which nobody will be given again.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    fn forget_piece(&mut self, _piece: &InSplit) -> Result<(), BackendError> {
        Ok(())
    }

    /// There is nothing to learn for now: nobody is to wait for this worker.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    fn rest(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// There is something again.
    ///
    /// # Errors
    /// As [`rest`](Self::rest).
    fn resume(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Waits until every push is applied.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    fn drain(&mut self) -> Result<(), BackendError>;

    /// The weights of `keys` into `weights`, as all pushes drained have made them.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError>;

    /// Calls `page` with keys and stored floats until all rows have come, each once: for export.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError>;

    /// Puts rows that were saved, as [`scan`](Self::scan) hands them out, into the table, in the place of those that
    /// are there.
    ///
    /// # Errors
    /// The rows are not in this process, or do not fit.
    fn restore(&mut self, _keys: &[u64], _rows: &[f32]) -> Result<(), BackendError> {
        Err(BackendError::Order("rows are restored in one process only"))
    }

    /// Rows and bytes.
    ///
    /// # Errors
    /// The servers are lost.
    fn stats(&mut self) -> Result<Stats, BackendError>;

    /// Rows and bytes, when the rows are in this process and it costs nothing to know.
    fn local_stats(&self) -> Option<Stats> {
        None
    }

    /// The clock of a pull is how many pushes were before it, and that of other workers likewise: how many pulls
    /// found the worker furthest behind so many steps behind their clock, by steps; the last is for those beyond.
    /// Empty where there are no others.
    fn pulls_by_staleness(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Adds the numbers of pushes of which rows came after their step was applied without them, since this was
    /// asked last.
    fn take_late(&mut self, _late: &mut Vec<u64>) {}

    /// Whether pushes may come so: as long as this worker keeps step with others in synchronous steps.
    fn may_be_late(&self) -> bool {
        false
    }

    /// Rows of such pushes.
    fn late_rows(&self) -> u64 {
        0
    }

    /// What went over the wire so far; `None` where the rows are in this process.
    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Rows of pushes that were dropped because a value was NaN or infinite.
    fn not_finite(&self) -> u64;

    /// Rows of pushes that created no row because they were not admitted (0 where the first push of a key always is).
    fn not_admitted(&self) -> u64 {
        0
    }
}
