//! What a training reports: its progress, each of its steps, and at the end its results or why it failed.

use crate::backend::error::BackendError;
use crate::learn::measures::Measured;
use crate::learn::push_content::PushContent;
use crate::read::error::{BadLines, ReadError};
use crate::read::formats::columns::Columns;
use gannet_core::Stats;
use gannet_worker::Counters;
use std::ops::ControlFlow;

/// A training has made a step: it has sent the push.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Batches learned in all passes.
    pub number: u64,
    /// The pass of the batch, from 0.
    pub epoch: u32,
    /// The sum of the importance of the examples learned in all passes.
    pub mass: f64,
    /// The sum of the examples' losses times their importance, where each example is predicted before it is learned.
    /// The loss is half the squared error where the model predicts numbers, otherwise it is in nats.
    pub loss: f64,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'static str,
    /// The columns, of a CSV file.
    pub columns: Option<&'a Columns>,
}

/// Called after each step, and before the first step of each later pass, with the backend. `Break` ends the training
/// like the stop flag.
pub type StepObserver<'w, B> = dyn FnMut(&StepReport<'_>, &mut B) -> ControlFlow<()> + 'w;

/// Rows to start from: those of a saved model.
pub trait StartRows: Send + Sync {
    /// Tells the model apart from any other.
    fn name(&self) -> u64;

    /// Calls `put` with the rows of one of the model's tables, numbered from 0, in the layout of the training's
    /// table.
    ///
    /// # Errors
    /// They cannot be read, or `put` fails.
    fn rows(&self, table: usize, put: &mut RowSink<'_>) -> Result<(), BackendError>;
}

/// Takes keys and their rows.
pub type RowSink<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), BackendError> + 'a;

/// Checks that a table that starts from a saved model has no rows.
pub(crate) fn no_rows(rows: u64) -> Result<(), BackendError> {
    match rows {
        0 => Ok(()),
        rows => Err(BackendError::Schema(format!(
            "--warm-start: the table of this training has rows already ({rows}); begin from the model with an empty \
             --data-dir, or go on from the rows without --warm-start"
        ))),
    }
}

/// The error about a job whose tables have rows that did not begin from a model.
pub(crate) fn rows_of_others(rows: u64) -> BackendError {
    BackendError::Schema(format!(
        "--warm-start: the tables of this run have {rows} rows, which did not begin from a model, and they are not \
         replaced: go on from them without --warm-start, or begin a run with --fresh or --run NAME"
    ))
}

/// The progress of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
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
    /// Progressive AUC of the first pass so far, of logistic regression.
    pub auc: Option<f64>,
    /// Seconds since the start.
    pub seconds: f64,
    /// Bad lines skipped in the first pass so far.
    pub bad_lines: u64,
    /// Batches that are read and not yet learned.
    pub queued: usize,
    /// Batches whose pulls are in flight.
    pub in_flight: usize,
    /// Rows and bytes of the table of logistic regression, when it is in this process.
    pub local: Option<Stats>,
}

/// The results of a training, of logistic regression or of another model.
#[derive(Clone, Debug)]
pub struct Report {
    /// Examples learned in all passes.
    pub examples: u64,
    /// Batches learned in all passes, each with a pull and a push.
    pub steps: u64,
    /// Wall time of reading and learning, without the test.
    pub seconds: f64,
    /// Progressive quality of the first pass: each example is predicted before it is learned. `None` without examples
    /// (a share of the batches may be empty).
    pub progressive: Option<Measured>,
    /// Progressive loss of the latest pass. `None` without examples.
    pub last_loss: Option<f64>,
    /// Progressive quality of the latest pass. `None` without examples, and of logistic regression, which measures no
    /// more than the loss after the first pass.
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
    /// Repeated occurrences of a key in an example. Their values are added to the first occurrence.
    pub repeated_keys: u64,
    /// Examples left out because their outputs were NaN or infinite, and rows of pushes dropped for the same reason.
    pub not_finite: u64,
    /// Rows of pushes that created no row because they were not admitted.
    pub not_admitted: u64,
    /// Changes of state that were dropped because their row had died after the pull.
    pub refused: u64,
    /// Rows of this process that have died. Servers count their own.
    pub evicted: u64,
    /// The number of pulls at each staleness. Staleness is by how many steps the slowest worker was behind the pull's
    /// clock. The last entry counts all larger ones. Empty without other workers.
    pub pulls_by_staleness: Vec<u64>,
    /// Examples, and rows of pushes, that arrived after their synchronous step was applied without them.
    pub dropped_late: (u64, u64),
    /// What went over the wire, without the test. `None` where the rows are in this process.
    pub wire: Option<Counters>,
    /// Whether the stop flag ended the training early.
    pub stopped: bool,
}

impl Report {
    /// `examples / seconds`.
    pub fn examples_per_second(&self) -> f64 {
        self.examples as f64 / self.seconds
    }
}

/// Why a training failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows cannot be read or written.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An example that the model cannot learn.
    #[error("example {number} of the pass: {what}")]
    Example {
        /// The example's number, counted from 1 over the worker's batches.
        number: u64,
        /// What the example must be.
        what: String,
    },
}
