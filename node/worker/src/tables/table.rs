//! A table as a worker knows it.

use crate::cache::caching::Caching;
use crate::tables::clock::TableClock;
use crate::tables::opened_as::OpenedAs;
use crate::tables::rounding_errors::RoundingErrors;
use gannet_core::Schema;

/// A table as this worker knows it.
pub(crate) struct WorkerTable {
    pub(crate) schema: Schema,
    /// The identity that the servers gave the table when the worker opened it.
    pub(crate) opened: OpenedAs,
    /// The link to the owner of each shard.
    pub(crate) owners: Vec<u32>,
    /// All shards are behind one link.
    pub(crate) one_owner: bool,
    pub(crate) last_seq: u64,
    /// The worker's clock over the table, if it keeps step with others.
    pub(crate) group: Option<TableClock>,
    /// The cache that may answer pulls.
    pub(crate) cache: Option<Caching>,
    /// Weights and gradients travel as f16, and this is what the rounding of gradients has left out so far.
    pub(crate) rounding: Option<RoundingErrors>,
}

impl WorkerTable {
    /// This worker has dropped the table: no table has an empty name.
    pub(crate) fn is_dropped(&self) -> bool {
        self.schema.name.is_empty()
    }
}
