//! What a pull wants of each row, and how a worker gets the rows of a table.

use crate::reads::path_choice::ChoiceOf;
use gannet_core::{Read, Segments};

/// What a pull wants of each row.
pub(crate) struct PullSpec {
    pub(crate) table: usize,
    pub(crate) read: Read,
    pub(crate) segments: Segments,
    /// Floats of a row's answer.
    pub(crate) floats: usize,
    /// The rows will be pushed back.
    pub(crate) keep: bool,
    /// The slowest worker must have this clock.
    pub(crate) least: u64,
}

impl PullSpec {
    pub(crate) fn choice(&self) -> ChoiceOf {
        ChoiceOf::reads(self.table, self.keep)
    }
}

/// How a worker gets the rows of a table ([`Worker::read_path_choice`](crate::worker::Worker::read_path_choice)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadPathChoice {
    /// Whether the worker can read any rows without a request.
    pub readable: bool,
    /// The share of the chunks of a pull that it reads now, from 0 to 1.
    pub share: f32,
    /// Whether the choice was measured at least once, or the configuration makes it.
    pub settled: bool,
}
