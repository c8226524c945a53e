//! Several tables of any dimension: the interface between the models and the rows, which are in shards in this
//! process or on servers. A step requests the rows of all its tables together, and waits for them afterwards.

mod flat;
mod local;
mod remote;
mod row_index;
mod saved;
mod segment;

pub use flat::FlatTables;
pub use local::LocalTables;
pub use remote::RemoteTables;
pub use row_index::{PreparedRows, RowPreparer};
pub use saved::SavedTables;
pub(crate) use segment::{SegmentPart, parts, weigh};

use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Read, Schema, Stats, Write};

/// The number of an open table: the first opened is 0.
pub type TableIndex = usize;

/// Weights to score with.
pub trait WeightTables {
    /// The table's schema.
    ///
    /// # Panics
    /// When no table of this number was opened.
    fn schema(&self, table: TableIndex) -> &Schema;

    /// Reads the weights of `keys`, in their order, into `out`, which is resized. A key without a row has its initial
    /// value.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError>;
}

/// Rows to learn. The keys of a call are unique, in any order, and its rows are in the same order. A push goes to the
/// keys of the table's pull that was finished last, one push for each pull. A pull includes every earlier push of
/// this process.
pub trait Tables: WeightTables + TrainedRows {
    /// Opens the table, or creates it. If it is open here already, this returns its number.
    ///
    /// # Errors
    /// The table exists with another schema, or the servers are lost.
    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError>;

    /// Starts to keep step with other workers, where they do. A step is a pull and a push of each open table. Call it
    /// before the first pull.
    ///
    /// # Errors
    /// The other workers keep step in another mode, or the servers are lost.
    fn join(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Ends keeping step: waits until every push is applied. No worker waits for this one any longer.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    fn leave(&mut self) -> Result<(), BackendError> {
        self.drain()
    }

    /// Begins to pull the weights or the state of the rows of `keys`.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn begin_pull(&mut self, table: TableIndex, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError>;

    /// What prepares the rows of batches for pulls of this table, on the thread that makes the batches. `None`: nothing
    /// needs to be prepared.
    ///
    /// # Errors
    /// There is no memory for it.
    fn preparer(&mut self, table: TableIndex) -> Result<Option<RowPreparer>, BackendError> {
        let _ = table;
        Ok(None)
    }

    /// Finishes the oldest pull, and writes its rows into `out`, which is resized.
    ///
    /// # Errors
    /// The rows cannot be read, or no pull was begun.
    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Pushes to the rows of the table's pull that was finished last. A push of a batch of a split has the name of
    /// that batch. The call may swap the memory of `values`. The push is certainly applied when
    /// [`drain`](TrainedRows::drain) has returned.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn push(
        &mut self,
        table: TableIndex,
        values: &mut Vec<f32>,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError>;

    /// Whether the tables have the pulled rows as they were pulled, until the push after the pull.
    fn has_pulled_rows(&self) -> bool {
        false
    }

    /// Pushes the change of state of the rows of the table's pull that was finished last: from `before`, as they were
    /// pulled, to `after`. `before` may be empty if the tables [have them](Self::has_pulled_rows). It holds anything
    /// afterwards. Otherwise as [`push`](Self::push).
    ///
    /// # Errors
    /// As for `push`.
    fn push_states(
        &mut self,
        table: TableIndex,
        before: &mut Vec<f32>,
        after: &[f32],
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        before.iter_mut().zip(after).for_each(|(before, after)| *before = after - *before);
        self.push(table, before, Write::Change, split)
    }

    /// Calls `page` with keys and stored floats until it has seen every row of the table once.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError>;

    /// Writes saved rows into a table. They replace existing rows.
    ///
    /// # Errors
    /// The rows are on servers, or do not fit.
    fn restore(&mut self, _table: TableIndex, _keys: &[u64], _rows: &[f32]) -> Result<(), BackendError> {
        Err(BackendError::Order("rows are restored in one process only"))
    }

    /// The rows and bytes of a table.
    ///
    /// # Errors
    /// The servers are lost.
    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError>;

    /// Appends the numbers, from 0, of a table's late pushes since the last call: some of their rows arrived after
    /// their synchronous step was applied without them.
    fn take_late(&mut self, _table: TableIndex, _late: &mut Vec<u64>) {}
}
