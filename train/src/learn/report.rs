//! What a training reports: its progress, each of its steps, and in the end what it did or why it failed.

use crate::backend::BackendError;
use crate::learn::metrics::Quality;
use crate::learn::push_content::PushContent;
use crate::read::columns::Columns;
use crate::read::error::{BadLines, ReadError};
use gannet_core::Stats;
use gannet_node::Counters;
use std::ops::ControlFlow;

/// A step of a training has been made: its push is under way.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Steps made, all passes: batches learned.
    pub number: u64,
    /// Importance of the examples learned, all passes.
    pub mass: f64,
    /// The sum of their losses, each example predicted before it was learned, times its importance. Half the square
    /// of the error where numbers are predicted, otherwise nats.
    pub loss: f64,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'static str,
    /// The columns, of a CSV file.
    pub columns: Option<&'a Columns>,
}

/// Called after each step, with the backend. Returning `Break` ends the training like the stop flag.
pub type StepObserver<'w, B> = dyn FnMut(&StepReport<'_>, &mut B) -> ControlFlow<()> + 'w;

/// Rows to begin from: those of a model that was saved.
pub trait StartRows: Send + Sync {
    /// Hands out the rows of a table of the model, its first being 0, as the table of the training has them.
    ///
    /// # Errors
    /// They cannot be read, or `put` fails.
    fn rows(&self, table: usize, put: &mut RowSink<'_>) -> Result<(), BackendError>;
}

/// Takes keys and their rows.
pub type RowSink<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), BackendError> + 'a;

/// Holds that a table which is to begin with the rows of a model has none.
pub(crate) fn no_rows(rows: u64) -> Result<(), BackendError> {
    match rows {
        0 => Ok(()),
        rows => Err(BackendError::Schema(format!(
            "--warm-start: the table of this training has rows already ({rows}); begin from the model with an empty \
             --data-dir, or go on from the rows without --warm-start"
        ))),
    }
}

/// How far a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// The pass, from 0.
    pub epoch: u32,
    /// Examples learned, all passes.
    pub examples: u64,
    /// Bytes of the file read in this pass.
    pub bytes_read: u64,
    /// Bytes of the file, when known.
    pub bytes_total: Option<u64>,
    /// Progressive log loss so far: of the first pass until it ends, then of the pass that runs.
    pub log_loss: f64,
    /// Progressive AUC of the first pass so far.
    pub auc: Option<f64>,
    /// Seconds since the start.
    pub seconds: f64,
    /// Bad lines skipped in the first pass so far.
    pub bad_lines: u64,
    /// Batches that are read and wait to be learned.
    pub queued: usize,
    /// Batches whose rows are being pulled.
    pub in_flight: usize,
    /// Sizes of the table, when it is in this process.
    pub local: Option<Stats>,
}

/// What a training did.
#[derive(Clone, Debug)]
pub struct Report {
    /// Examples learned, all passes.
    pub examples: u64,
    /// Wall time of the training: reading and learning, not the test.
    pub seconds: f64,
    /// `examples / seconds`.
    pub examples_per_second: f64,
    /// Progressive quality of the first pass: each example predicted before it was learned. `None` without examples
    /// (a share of the batches may be empty).
    pub progressive: Option<Quality>,
    /// Progressive log loss of the last pass: that of the first when there is one only. `None` without examples.
    pub last_pass: Option<f64>,
    /// Passes requested.
    pub passes: u32,
    /// Quality on the test set.
    pub test: Option<Quality>,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of memory or disk that the table takes, all-in.
    pub bytes: u64,
    /// `bytes / rows`; 0 without rows.
    pub bytes_per_row: f64,
    /// "embedded", "tcp".
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
    /// Repeated occurrences of a key in an example; they are summed into the first one.
    pub repeated_keys: u64,
    /// Rows of pushes dropped because they were NaN or infinite.
    pub not_finite: u64,
    /// Rows of pushes that created no row because they were not admitted.
    pub not_admitted: u64,
    /// Pulls by how many steps the worker furthest behind was behind their clock; the last is for those beyond. Empty
    /// without other workers.
    pub pulls_by_staleness: Vec<u64>,
    /// Examples, and rows of pushes, that came after their synchronous step was applied without them.
    pub dropped_late: (u64, u64),
    /// What went over the wire, the test excluded; `None` where the rows are in this process.
    pub wire: Option<Counters>,
    /// Whether the stop flag ended it early.
    pub stopped: bool,
}

/// Why a training ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An example that the model cannot learn.
    #[error("example {number} of the pass: {what}")]
    Example {
        /// Which, counted from 1 over the worker's batches.
        number: u64,
        /// What it must be.
        what: String,
    },
}
