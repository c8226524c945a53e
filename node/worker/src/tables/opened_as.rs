//! The identity of an opened table at its servers.

use crate::error::WorkerError;
use gannet_core::{Schema, ShardSet, TableUid};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{OpenTableV2, TableOpenedV4};
use gannet_wire::partition::{PartitionMap, set_of};
use std::sync::Arc;

/// A thread of a server, by its server's number among those of the worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerThread {
    pub(crate) server: u32,
    pub(crate) thread: u32,
    /// Threads of the server.
    pub(crate) threads: u32,
}

/// The identity of a table at its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedAs {
    pub(crate) uid: TableUid,
    /// For each server, in the order of the worker's addresses, which of the table's servers it is.
    pub(crate) places: Vec<u32>,
    /// For each shard, the random number that it got when it was made.
    pub(crate) births: Vec<u64>,
}

impl OpenedAs {
    /// The shards behind a link.
    pub(crate) fn shards(&self, at: ServerThread) -> ShardSet {
        let (place, shards) = (self.places[at.server as usize], self.births.len() as u32);
        self.map().shards_of_thread(place, at.thread, at.threads, shards)
    }

    /// The shards of a server.
    pub(crate) fn of_server(&self, server: usize) -> ShardSet {
        self.map().shards(self.places[server], self.births.len() as u32)
    }

    fn map(&self) -> PartitionMap {
        PartitionMap::of_job(self.places.len() as u32)
    }

    /// The request to open the table again, over another link.
    pub(crate) fn request(&self, schema: &Schema, server: u32) -> Vec<u8> {
        self.request_in(schema, server as usize, 0)
    }

    pub(crate) fn request_in(&self, schema: &Schema, server: usize, make_in: u64) -> Vec<u8> {
        let (place, servers) = (self.places[server], self.places.len() as u32);
        let (schema, uid) = (schema.encode(), self.uid.0);
        control::seal_as(2, &OpenTableV2 { schema, uid, server: place, servers, make_in })
    }

    /// Checks that the table that was opened again is the one that was there before.
    pub(crate) fn check(&self, table: &str, peer: &Arc<str>, now: &TableOpenedV4) -> Result<(), WorkerError> {
        let Some(shards) = told(now, self.births.len()) else {
            let what = format!("shards {:?} with {} births", now.shards, now.births.len());
            return Err(WorkerError::Protocol { peer: peer.clone(), what });
        };
        let other = shards.iter().zip(&now.births);
        let gone = other.filter(|(shard, now)| self.births[*shard as usize] != **now).map(|(shard, _)| shard);
        match ShardSet::of(gone) {
            gone if gone.is_empty() => Ok(()),
            gone => Err(forgot(table, peer, gone)),
        }
    }

    /// The error of a server that has lost the table.
    pub(crate) fn gone(&self, table: &str, peer: &Arc<str>, server: u32) -> WorkerError {
        forgot(table, peer, self.of_server(server as usize))
    }
}

/// The shards that a thread says it has, if it names a birth for each.
pub(crate) fn told(opened: &TableOpenedV4, shards: usize) -> Option<ShardSet> {
    set_of(&opened.shards, shards as u32).filter(|told| told.len() == opened.births.len())
}

pub(crate) fn forgot(table: &str, peer: &Arc<str>, shards: ShardSet) -> WorkerError {
    WorkerError::Forgot { peer: peer.clone(), table: table.to_owned(), shards: shards.to_string() }
}
