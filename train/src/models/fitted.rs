//! How far the training of a model is, and what it did.

use super::fit::sizes;
use super::{Measured, Model};
use crate::backend::BackendError;
use crate::backend::tables::Tables;
use crate::learn::push_content::PushContent;
use crate::read::columns::Columns;
use crate::read::error::BadLines;

/// How far a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fitting {
    /// The pass, from 0.
    pub epoch: u32,
    /// Examples learned, all passes.
    pub examples: u64,
    /// Batches learned, all passes.
    pub steps: u64,
    /// Bytes of the files read in this pass.
    pub bytes_read: u64,
    /// Bytes of the files, when known.
    pub bytes_total: Option<u64>,
    /// The loss of the pass that runs so far, each example predicted before it was learned.
    pub loss: f64,
    /// Seconds since the start.
    pub seconds: f64,
}

/// What a training did.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Examples learned, all passes.
    pub examples: u64,
    /// Batches learned, all passes: pulls, and pushes.
    pub steps: u64,
    /// Wall time of the training: reading and learning, not the test.
    pub seconds: f64,
    /// Quality of the first pass, each example predicted before it was learned. `None` without examples.
    pub progressive: Option<Measured>,
    /// Quality of the last pass.
    pub last_pass: Option<Measured>,
    /// Quality on the test set.
    pub test: Option<Measured>,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of memory or disk that the tables take, all-in.
    pub bytes: u64,
    /// "embedded", "tcp", "shm".
    pub transport: String,
    /// What pushes carried.
    pub push: PushContent,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'static str,
    /// The columns, of a CSV file.
    pub columns: Option<Columns>,
    /// Batches of one pass, over all shares; 0 where splits are handed out.
    pub batches: u64,
    /// Bad lines skipped in the first pass.
    pub bad_lines: BadLines,
    /// Examples that were left out because their outputs were NaN or infinite, and rows of pushes dropped for that.
    pub not_finite: u64,
    /// Rows of pushes that created no row because they were not admitted.
    pub not_admitted: u64,
    /// Pulls by how many steps the worker furthest behind was behind their clock; the last is for those beyond. Empty
    /// without other workers.
    pub pulls_by_staleness: Vec<u64>,
    /// Examples, and rows of pushes, that came after their synchronous step was applied without them.
    pub dropped_late: (u64, u64),
    /// Whether the stop flag ended it early.
    pub stopped: bool,
}

impl Fitted {
    /// Takes the tables' sizes as they are now, when others have learned too.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn measure<T: Tables>(&mut self, model: &dyn Model, tables: &mut T) -> Result<(), BackendError> {
        (self.rows, self.bytes) = sizes(model, tables)?;
        Ok(())
    }
}
