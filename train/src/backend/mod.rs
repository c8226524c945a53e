//! The interface between the training loop and the rows, which are in shards in this process or on servers.

pub(crate) mod cells;
mod cut_pool;
pub(crate) mod embedded;
pub(crate) mod error;
pub(crate) mod flat_table;
pub(crate) mod norm_table;
pub(crate) mod remote;
pub(crate) mod start_table;
pub(crate) mod tables;
pub(crate) mod trained_rows;
pub(crate) mod weights;
mod worker_rows;

use crate::backend::error::BackendError;
use crate::backend::flat_table::FlatTable;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::{BatchKeys, InSplit};
use crate::learn::replay::SeenPushRuns;
use gannet_core::{Read, Schema, Stats, Write};
use gannet_worker::Counters;

/// The rows of a pull.
#[derive(Debug, Default)]
pub struct PulledRows {
    /// The values of each key's row, in the order of the keys: its weight, or its stored floats.
    pub values: Vec<f32>,
    /// The own pushes that the values include.
    pub saw: SeenPushRuns,
}

/// Rows of one table, one weight each, for the training loop of logistic regression.
///
/// The keys of a call are unique and ascending by shard, and its rows are in that order. Pulls are answered in the
/// order in which they began. After each finished pull comes one push to the same keys, before the next pull is
/// finished. Pushes are numbered from 0.
///
/// **Why it is not merged with [`Tables`](crate::Tables).** What costs no time is [`TrainedRows`], which both have.
/// They differ in the calls that cost time. `Backend` pulls `depth` batches ahead, says which own pushes a pull missed
/// ([`PulledRows`]), and moves the rows into the push without a copy. A [`FlatTable`] lets the learner change its rows
/// in place. `Tables` pulls from many tables in one step, not ahead, in any order of keys, into the model's buffers. A
/// merged trait would give every model table numbers of missed pushes that it does not read. It would give logistic
/// regression a table number and an order of keys that it does not need. Both share [`BatchKeys`] and, at servers,
/// `worker_rows.rs`.
pub trait Backend: TrainedRows {
    /// The table's schema.
    fn schema(&self) -> &Schema;

    /// How many batches should be pulled ahead of the one that is learned (0 when pulls are answered at once).
    fn depth(&self) -> usize;

    /// Whether pulls read all of their rows without a request. It is then best to begin a pull late, when own pushes
    /// have been applied.
    fn reads_all(&self) -> bool {
        false
    }

    /// Whether the pushes of other workers damp replay's changes of state. Pulled rows then end with their count of
    /// pushes, and pushed rows with the expected count ([`Write::Damped`]).
    fn is_damped(&self) -> bool {
        false
    }

    /// Whether no other worker changes the rows. Replay then pushes rows as a whole ([`Write::Row`]), so that they get
    /// the same bits as rows that are learned in place. A change of state would round a second time.
    fn is_alone(&self) -> bool {
        false
    }

    /// The table, when the learner can change its rows in place. Replay then needs no pulls and pushes.
    fn in_place(&mut self) -> Option<&mut FlatTable> {
        None
    }

    /// Begins to pull the weights or the state of the rows of `keys`.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError>;

    /// Finishes the oldest pull and returns its rows.
    ///
    /// # Errors
    /// The rows cannot be read, or no pull was begun.
    fn finish_pull(&mut self) -> Result<PulledRows, BackendError>;

    /// Drops the pull that was finished last, whose answer is `rows`: no push follows it.
    ///
    /// # Errors
    /// No pull was finished.
    fn forget_pull(&mut self, _rows: PulledRows) -> Result<(), BackendError> {
        Ok(())
    }

    /// Pushes to the rows of the pull that was finished last: gradients where it read weights, changes of state where
    /// it read state. `rows` is the pull's answer with the new values. A push of a batch of a split has the name of
    /// that batch. It is certainly applied when [`drain`](TrainedRows::drain) has returned.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError>;

    /// Reads the weights of `keys` into `weights`. They include every drained push.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError>;

    /// Calls `page` with keys and stored floats until it has seen every row once. Used for export.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError>;

    /// Writes saved rows, in the format of [`scan`](Self::scan), into the table. They replace existing rows.
    ///
    /// # Errors
    /// The rows are on servers, or do not fit.
    fn restore(&mut self, _keys: &[u64], _rows: &[f32]) -> Result<(), BackendError> {
        Err(BackendError::Order("rows are restored in one process only"))
    }

    /// The table's rows and bytes.
    ///
    /// # Errors
    /// The servers are lost.
    fn stats(&mut self) -> Result<Stats, BackendError>;

    /// The table's rows and bytes, when they are in this process and cost nothing to count.
    fn local_stats(&self) -> Option<Stats> {
        None
    }

    /// Appends the numbers of late pushes since the last call: some of their rows arrived after their synchronous
    /// step was applied without them.
    fn take_late(&mut self, _late: &mut Vec<u64>) {}

    /// What went over the wire so far; `None` where the rows are in this process.
    fn counters(&self) -> Option<Counters> {
        None
    }
}
