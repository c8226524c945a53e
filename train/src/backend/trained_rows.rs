//! What logistic regression and the models need of the rows that they train, wherever these are.

use crate::backend::error::BackendError;
use crate::batch::InSplit;

/// Rows that a worker trains, perhaps together with other workers: how it keeps in touch with them, and what its pushes
/// came to.
pub trait TrainedRows {
    /// How rows travel: "embedded", "tcp", "shm".
    fn transport(&self) -> String;

    /// Batches of this worker's fixed share that the rows have already, over all passes. The worker reads past them.
    fn batches_before(&self) -> u64 {
        0
    }

    /// Shows other workers and the servers that this worker is alive, while it has nothing to request.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    fn stay_in_touch(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Makes the servers forget the push names of a split that is learned and that no worker will get again.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    fn forget_split(&mut self, _split: &InSplit) -> Result<(), BackendError> {
        Ok(())
    }

    /// Tells other workers not to wait for this one, because it has nothing to learn for now.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    fn rest(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Ends the rest: this worker has a batch to learn again.
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

    /// The number of pulls at each staleness. Staleness is by how many steps the slowest worker was behind the pull's
    /// clock. A clock counts the pushes before the pull. The last entry counts all larger ones. Empty without other
    /// workers.
    fn pulls_by_staleness(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether pushes may be late: as long as this worker keeps step with others in synchronous steps.
    fn may_be_late(&self) -> bool {
        false
    }

    /// Rows of late pushes.
    fn late_rows(&self) -> u64 {
        0
    }

    /// Rows of pushes that were dropped because a value was NaN or infinite.
    fn not_finite(&self) -> u64;

    /// Rows of pushes that created no row because they were not admitted (0 where every first push is admitted).
    fn not_admitted(&self) -> u64 {
        0
    }

    /// Changes of state that were dropped because their row had died after the pull.
    fn refused(&self) -> u64 {
        0
    }

    /// Rows of this process that have died. Servers count their own.
    fn evicted(&self) -> u64 {
        0
    }
}
