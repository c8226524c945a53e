//! The progress and the results of a model's training.

use super::fit::sizes;
use super::{Measured, Model};
use crate::backend::error::BackendError;
use crate::backend::tables::Tables;
use crate::learn::push_content::PushContent;
use crate::read::error::BadLines;
use crate::read::formats::columns::Columns;

/// The progress of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fitting {
    /// The current pass, from 0.
    pub epoch: u32,
    /// Examples learned in all passes.
    pub examples: u64,
    /// Batches learned in all passes.
    pub steps: u64,
    /// Bytes of the files read in this pass.
    pub bytes_read: u64,
    /// Bytes of the files, when known.
    pub bytes_total: Option<u64>,
    /// The loss of the current pass so far. Each example is predicted before it is learned.
    pub loss: f64,
    /// Seconds since the start.
    pub seconds: f64,
}

/// The results of a training.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Examples learned in all passes.
    pub examples: u64,
    /// Batches learned in all passes, each with a pull and a push.
    pub steps: u64,
    /// Wall time of reading and learning, without the test.
    pub seconds: f64,
    /// Quality of the first pass, each example predicted before it was learned. `None` without examples.
    pub progressive: Option<Measured>,
    /// Quality of the latest pass.
    pub last_pass: Option<Measured>,
    /// Quality on the test set.
    pub test: Option<Measured>,
    /// Rows in all tables.
    pub rows: u64,
    /// Bytes of memory or disk that the tables take, with all overhead.
    pub bytes: u64,
    /// "embedded", "tcp", "shm".
    pub transport: String,
    /// What pushes carried.
    pub push: PushContent,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'static str,
    /// The columns, of a CSV file.
    pub columns: Option<Columns>,
    /// Batches of one pass, over all shares. 0 where a source hands out splits.
    pub batches: u64,
    /// Bad lines skipped in the first pass.
    pub bad_lines: BadLines,
    /// Examples left out because their outputs were NaN or infinite, and rows of pushes dropped for the same reason.
    pub not_finite: u64,
    /// Rows of pushes that created no row because they were not admitted.
    pub not_admitted: u64,
    /// The number of pulls at each staleness. Staleness is by how many steps the slowest worker was behind the pull's
    /// clock. The last entry counts all larger ones. Empty without other workers.
    pub pulls_by_staleness: Vec<u64>,
    /// Examples, and rows of pushes, that arrived after their synchronous step was applied without them.
    pub dropped_late: (u64, u64),
    /// Whether the stop flag ended the training early.
    pub stopped: bool,
}

impl Fitted {
    /// Updates the tables' sizes, after other workers have learned too.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn measure<T: Tables>(&mut self, model: &dyn Model, tables: &mut T) -> Result<(), BackendError> {
        (self.rows, self.bytes) = sizes(model, tables)?;
        Ok(())
    }
}
