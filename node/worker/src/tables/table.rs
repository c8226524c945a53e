//! The tables that a worker has opened, as it knows them.

use crate::cache::caching::Caching;
use crate::tables::clock::TableClock;
use crate::tables::opened_as::OpenedAs;
use crate::tables::rounding_errors::RoundingErrors;
use gannet_core::{Eviction, Read, Schema, ShardSet};
use std::ops::{Deref, DerefMut};

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
    /// Which rows may die, as this worker tells the servers.
    pub(crate) eviction: Option<Eviction>,
}

impl WorkerTable {
    /// A table that has just been opened, with the link to the owner of each shard.
    pub(crate) fn new(
        schema: Schema,
        opened: OpenedAs,
        owners: Vec<u32>,
        eviction: Option<Eviction>,
    ) -> WorkerTable {
        let one_owner = owners.iter().all(|owner| *owner == owners[0]);
        let (group, cache, rounding) = (None, None, None);
        let last_seq = 0;
        WorkerTable { schema, opened, owners, one_owner, last_seq, group, cache, rounding, eviction }
    }

    /// This worker has dropped the table: no table has an empty name.
    pub(crate) fn is_dropped(&self) -> bool {
        self.schema.name.is_empty()
    }

    /// Makes this link the owner of these shards.
    pub(crate) fn own(&mut self, shards: &ShardSet, link: usize) {
        shards.iter().for_each(|shard| self.owners[shard as usize] = link as u32);
        self.one_owner = self.owners.iter().all(|owner| *owner == self.owners[0]);
    }

    /// Whether a pull rounds what it reads.
    pub(crate) fn rounds(&self, read: Read) -> bool {
        read == Read::Weights && self.rounding.is_some()
    }

    /// The worker makes synchronous steps over this table.
    pub(crate) fn is_bsp(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.sync.mode.is_bsp())
    }
}

/// The tables of a worker, by their numbers.
#[derive(Default)]
pub(crate) struct Tables(Vec<WorkerTable>);

impl Deref for Tables {
    type Target = Vec<WorkerTable>;

    fn deref(&self) -> &Vec<WorkerTable> {
        &self.0
    }
}

impl DerefMut for Tables {
    fn deref_mut(&mut self) -> &mut Vec<WorkerTable> {
        &mut self.0
    }
}
