//! The interface between the training and its columns: shards in this process, or servers.

use crate::backend::error::BackendError;
use crate::lbfgs::Layout;
use gannet_core::{Program, Stats};

/// A number with the id of the command under which it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommandCell {
    /// 0 in a cell that was never written.
    pub command_id: u64,
    /// 48 bits of an f64.
    pub value: f64,
}

/// The table of vectors and the table of cells. The keys of a call are unique and ascending by shard, and its rows
/// are in the same order.
pub trait Columns {
    /// How rows travel: "embedded", "tcp", "shm".
    fn transport(&self) -> String;

    /// The layout of the columns.
    fn layout(&self) -> Layout;

    /// Reads a segment of the rows of `keys`.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn pull(&mut self, segment: usize, keys: &[u64], rows: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Adds two floats to the sum of a pass in each row of `keys`. Returns when all are added. The passes of later
    /// calls are not smaller.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn add(&mut self, pass: u64, keys: &[u64], values: Vec<f32>) -> Result<(), BackendError>;

    /// Runs a program on all rows and returns its sums.
    ///
    /// # Errors
    /// The program is refused, or the servers are lost.
    fn run(&mut self, program: &Program) -> Result<Vec<f64>, BackendError>;

    /// Reads cells. No cell is half written, and cells with the same id were written together.
    ///
    /// # Errors
    /// The servers are lost.
    fn read_cells(&mut self, keys: &[u64]) -> Result<Vec<CommandCell>, BackendError>;

    /// Writes cells under a larger id than they have. Under the same id the numbers are added.
    ///
    /// # Errors
    /// The push is refused, or the servers are lost.
    fn write_cells(&mut self, command_id: u64, cells: &[(u64, f64)]) -> Result<(), BackendError>;

    /// Calls `page` with keys and stored floats until it has seen every row once.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError>;

    /// The rows and bytes of the table of vectors.
    ///
    /// # Errors
    /// The servers are lost.
    fn stats(&mut self) -> Result<Stats, BackendError>;
}
