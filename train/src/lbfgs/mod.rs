//! Logistic regression by L-BFGS, with L1 by OWL-QN: the whole data a step, on one process or on servers and workers.
//!
//! The objective is `sum of log losses + l2 / 2 |w|^2 + l1 |w|_1`, the intercept without penalties. Weights, gradients and
//! curvature pairs are columns of one table ([`Layout`]); whoever leads, the [`Chief`], sees numbers only: dot products,
//! losses and slopes. Every worker holds its share of the examples ([`Examples`]) with their margins, so that an iteration is one pass
//! over them: the direction's share of each margin and, on the guess that the step will be 1, the gradient there. A step
//! of another length is found on the margins alone and costs one pass more, for its gradient.
//!
//! Workers keep step over a second table of a few cells: the chief writes what is to be done, the others write what came
//! of it. Whoever is waited for is named, and no wait is without limit.

mod cells;
mod chief;
mod columns;
mod dictionary;
mod examples;
mod follower;
mod layout;
mod learned;
mod local;
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

use crate::backend::BackendError;
use crate::read::error::ReadError;
use std::time::Duration;

/// What takes keys and their weights, page by page.
pub type WeightSink<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), LbfgsError> + 'a;

/// Why a training by L-BFGS ends without a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LbfgsError {
    /// The data.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The examples are too many for the memory that they may take.
    #[error(
        "{file}: after {examples} examples the data takes {bytes} bytes of memory, {limit} are allowed: raise --data-memory, \
         or share it among more workers"
    )]
    Memory {
        /// The data.
        file: String,
        /// Examples read so far.
        examples: u64,
        /// What they take.
        bytes: u64,
        /// What they may take.
        limit: u64,
    },
    /// A number came out as NaN or infinite.
    #[error("the {0} is not finite: a feature's values may be too large (scale them), or --l2 too small")]
    NotFinite(&'static str),
    /// A worker gave no sign of life.
    #[error(
        "worker {worker} has not answered for {:.0} s (--pass-timeout) at {at}: look at its log, and start it again", waited.as_secs_f64()
    )]
    WorkerLost {
        /// Its index.
        worker: u32,
        /// How long it was waited for.
        waited: Duration,
        /// What it was to do.
        at: &'static str,
    },
    /// A worker ended before the training did.
    #[error(
        "worker {worker} was stopped, and the training cannot go on without its examples: start the job again"
    )]
    WorkerLeft {
        /// Its index.
        worker: u32,
    },
    /// The chief says nothing.
    #[error(
        "the chief (worker 0) has asked for nothing for {:.0} s (--pass-timeout): look at its log, and start it again", waited.as_secs_f64()
    )]
    ChiefLost {
        /// How long it was waited for.
        waited: Duration,
    },
}
