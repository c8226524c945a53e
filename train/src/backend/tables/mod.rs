//! Several tables of any dimension: the seam between the models and the shards in this process, or the servers behind a
//! worker's links. What a step needs of all its tables is asked for together, and waited for afterwards.

mod local;
mod remote;
mod saved;
mod segment;

pub use local::LocalTables;
pub use remote::RemoteTables;
pub use saved::SavedTables;
pub(crate) use segment::{SegmentPart, parts, weigh};

use crate::backend::BackendError;
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Read, Schema, Stats, Write};

/// A table among those that are open: the first opened is 0.
pub type TableIndex = usize;

/// Rows to score with.
pub trait WeightTables {
    /// The table's schema.
    ///
    /// # Panics
    /// When no table of this number was opened.
    fn schema(&self, table: TableIndex) -> &Schema;

    /// The weights of `keys`, in their order, into `out`, whose length is made right. A key without a row reads as its
    /// initial value.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError>;
}

/// Rows to learn. Keys of a call are unique, in any order; rows come and go in that order. A push goes to the keys of
/// the pull of its table that was finished last, one push to a pull; a pull has seen every push before it of this
/// process.
pub trait Tables: WeightTables {
    /// How rows travel: "embedded", "tcp", "shm".
    fn transport(&self) -> String;

    /// Opens the table, or makes it.
    ///
    /// # Errors
    /// It is there with another schema, or the servers are lost.
    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError>;

    /// Every step has a part in each of the tables that are open: where workers keep step, this one does from now on,
    /// a step being a pull and a push of each table. Before the first pull.
    ///
    /// # Errors
    /// The others keep step in another way, or the servers are lost.
    fn join(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// There are no more steps: waits until every push is applied; nobody waits for this worker any longer.
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

    /// The rows of the oldest pull begun and not finished, into `out`, whose length is made right.
    ///
    /// # Errors
    /// The rows cannot be read, or no pull was begun.
    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Pushes to the rows of the table's pull that was finished last, of a `piece` of the data under its name.
    /// `values` may be given other memory. It is applied for certain once [`drain`](Self::drain) has returned.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn push(
        &mut self,
        table: TableIndex,
        values: &mut Vec<f32>,
        write: Write,
        piece: Option<&InSplit>,
    ) -> Result<(), BackendError>;

    /// Forgets the names of a split, which is learned, and which nobody will be given again.
    ///
    /// # Errors
    /// The servers are lost.
    fn forget_piece(&mut self, _piece: &InSplit) -> Result<(), BackendError> {
        Ok(())
    }

    /// There is nothing to learn for now: nobody is to wait for this worker until it [`resumes`](Self::resume).
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

    /// Calls `page` with keys and stored floats until all rows of the table have come, each once.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError>;

    /// Puts rows that were saved into a table, in the place of those that are there.
    ///
    /// # Errors
    /// The rows are not in this process, or do not fit.
    fn restore(&mut self, _table: TableIndex, _keys: &[u64], _rows: &[f32]) -> Result<(), BackendError> {
        Err(BackendError::Order("rows are restored in one process only"))
    }

    /// Rows and bytes of a table.
    ///
    /// # Errors
    /// The servers are lost.
    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError>;

    /// Pulls by how many steps the worker furthest behind was behind their clock; the last is for those beyond. Empty
    /// where there are no others.
    fn pulls_by_staleness(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether pushes may come so: as long as this worker keeps step with others in synchronous steps.
    fn may_be_late(&self) -> bool {
        false
    }

    /// Adds the numbers, from 0, of pushes to a table of which rows came after their step was applied without
    /// them, since this was asked last.
    fn take_late(&mut self, _table: TableIndex, _late: &mut Vec<u64>) {}

    /// Rows of such pushes, of all tables.
    fn late_rows(&self) -> u64 {
        0
    }

    /// Rows of pushes that were dropped because a value was NaN or infinite.
    fn not_finite(&self) -> u64;

    /// Rows of pushes that created no row because they were not admitted.
    fn not_admitted(&self) -> u64;
}
