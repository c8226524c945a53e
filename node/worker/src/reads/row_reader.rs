//! What a worker holds to read rows itself, beside what it knows of each peer.

use crate::reads::path_choice::PathChoices;
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct RowReader {
    /// How it gets the rows of each table.
    pub(crate) choices: PathChoices,
    /// When a worker that only reads receives frames next.
    pub(crate) next_receive: Duration,
    /// Memory for the slots where a small pull found rows.
    pub(crate) found_slots: Vec<u32>,
}
