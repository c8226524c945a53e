//! Logistic regression by L-BFGS, with L1 by OWL-QN. A step uses the whole data, in one process or on servers and
//! workers.
//!
//! The objective is `sum of log losses + l2 / 2 |w|^2 + l1 |w|_1`. The intercept has no penalties. Weights, gradients
//! and curvature pairs are columns of one table ([`Layout`]).
//!
//! Worker 0 leads: it is the [`Chief`], and handles numbers only (dot products, losses and slopes). The other workers
//! [`follow`]. Every worker keeps its share of the examples ([`Examples`]) with their margins. An iteration is one
//! pass over them: it computes each margin along the direction, and the gradient at step 1, which is the usual step.
//! The search for another step needs only the margins. Then one more pass computes the gradient there.
//!
//! Commands and answers are cells of a second table (`cells.rs` says why). The chief writes a command, the others write
//! their answers. Every wait has a limit and names the worker that it waits for.

mod cells;
mod chief;
mod columns;
mod dictionary;
mod examples;
mod follower;
mod layout;
mod learned;
mod local;
mod log_loss;
mod remote;
mod settings;

pub use chief::Chief;
pub use columns::{Columns, CommandCell};
pub use examples::{Examples, LoadedData};
pub use follower::{FollowerReport, follow};
pub use layout::{CELLS_TABLE, Layout, TABLE};
pub use learned::LearnedWeights;
pub use local::LocalColumns;
pub use remote::RemoteColumns;
pub use settings::{LbfgsSettings, Trained};

use crate::backend::error::BackendError;
use crate::read::error::ReadError;
use std::time::Duration;

/// Takes keys and their weights, page by page.
pub type WeightSink<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), LbfgsError> + 'a;

/// Why a training by L-BFGS failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LbfgsError {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows cannot be read or written.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The examples need more memory than allowed.
    #[error(
        "{file}: after {examples} examples the data takes {bytes} bytes of memory, and {limit} are allowed: raise \
         --data-memory, or use more workers"
    )]
    Memory {
        /// The current file.
        file: String,
        /// Examples read so far.
        examples: u64,
        /// Bytes that they take.
        bytes: u64,
        /// Bytes that they may take.
        limit: u64,
    },
    /// A number came out as NaN or infinite.
    #[error("the {0} is not finite: a feature's values may be too large (scale them), or --l2 too small")]
    NotFinite(&'static str),
    /// A worker did not answer.
    #[error(
        "worker {worker} has not answered for {:.0} s (--pass-timeout) at {at}: look at its log, and start it again",
        waited.as_secs_f64()
    )]
    WorkerLost {
        /// Its index.
        worker: u32,
        /// How long the chief waited.
        waited: Duration,
        /// The command that the worker was to run.
        at: &'static str,
    },
    /// A worker ended before the training did.
    #[error(
        "worker {worker} was stopped, and the training cannot continue without its examples: start the job again"
    )]
    WorkerLeft {
        /// Its index.
        worker: u32,
    },
    /// The chief gave no command.
    #[error(
        "the chief (worker 0) has given no command for {:.0} s (--pass-timeout): look at its log, and start it again",
        waited.as_secs_f64()
    )]
    ChiefLost {
        /// How long the worker waited.
        waited: Duration,
    },
}
