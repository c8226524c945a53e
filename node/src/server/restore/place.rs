//! The rows of a place in a job with a coordinator: a server loads them from a checkpoint while its threads serve other
//! places. The threads then take what was loaded.

use super::error::RestoreError;
use super::{OpenedTables, RestorePlan, RestoreSource, SavedStates, load_all};
use crate::counters::ServerCounters;
use crate::error::ServerError;
use crate::server::ServerConfig;
use crate::server::identities::Identities;
use crate::server::membership::Positions;
use crate::server::tables::{ServerTable, ServerTables};
use gannet_core::{CheckpointDir, Position, Store};
use std::sync::Arc;

/// Loads the rows of places from the checkpoints of a job.
#[derive(Clone)]
pub(in crate::server) struct PlaceLoader {
    checkpoints: CheckpointDir,
    run: String,
    servers: u32,
    store: Store,
    identities: Arc<Identities>,
    counters: Arc<ServerCounters>,
}

/// The rows of a place, for the threads of the server.
pub(in crate::server) struct LoadedPlace {
    /// How many rows.
    pub(in crate::server) rows: u64,
    /// The tables of each thread.
    tables: Vec<Vec<ServerTable>>,
    /// What thread 0 knows besides rows.
    states: Option<SavedStates>,
}

/// What one thread takes of a place.
pub(in crate::server) struct LoadedPart {
    pub(in crate::server) tables: Vec<ServerTable>,
    pub(in crate::server) states: Option<SavedStates>,
}

impl LoadedPlace {
    /// The part of a thread. It takes it once.
    pub(in crate::server) fn take(&mut self, thread: u32) -> LoadedPart {
        let tables = self.tables.get_mut(thread as usize).map(std::mem::take).unwrap_or_default();
        LoadedPart { tables, states: self.states.take_if(|_| thread == 0) }
    }
}

impl PlaceLoader {
    /// That of a server with a membership and a checkpoint directory.
    pub(in crate::server) fn of(config: &ServerConfig, opened: &OpenedTables) -> Option<PlaceLoader> {
        let (membership, checkpoints) = (config.membership.as_ref()?, config.checkpoints.clone()?);
        let first = opened.threads.first()?;
        Some(PlaceLoader {
            checkpoints,
            run: membership.job.clone(),
            servers: membership.place.1,
            store: config.store.clone(),
            identities: first.identities.clone(),
            counters: first.counters.clone(),
        })
    }

    /// The number of the newest checkpoint of the job that can be used.
    ///
    /// # Errors
    /// The directory cannot be read, or has checkpoints of another run.
    pub(in crate::server) fn newest(&self) -> Result<Option<u64>, RestoreError> {
        let Some(newest) = self.checkpoints.newest_valid()? else { return Ok(None) };
        newest.must_be_of(&self.run, &self.checkpoints.folder(newest.number))?;
        Ok(Some(newest.number))
    }

    /// How many changes the shard has had since this checkpoint that has had the most, of those at these positions.
    /// Shards that were begun after the checkpoint have had all of their changes since.
    ///
    /// # Errors
    /// The checkpoint cannot be read.
    pub(in crate::server) fn undone(&self, checkpoint: u64, of: &Positions) -> Result<u64, RestoreError> {
        let chain = self.checkpoints.chain(checkpoint)?;
        let since = |(name, at): &(String, Position)| {
            let table = chain.last().and_then(|newest| newest.table(name));
            let cut = table.and_then(|(_, table)| table.shards.get(at.shard as usize));
            let saved = cut.filter(|cut| cut.birth == at.birth).map_or(0, |cut| cut.to);
            at.command.saturating_sub(saved)
        };
        Ok(of.iter().map(since).max().unwrap_or(0))
    }

    /// Loads the rows of a place from this checkpoint, with a thread for each thread of the server.
    ///
    /// # Errors
    /// The checkpoint cannot be read, or there is no memory for its rows.
    pub(in crate::server) fn load(&self, place: u32, checkpoint: u64) -> Result<LoadedPlace, ServerError> {
        let source = RestoreSource {
            number: Some(checkpoint),
            run: Some(self.run.clone()),
            ..RestoreSource::new(&self.checkpoints, place, self.servers)
        };
        let plan = RestorePlan::new(&source, false)?;
        let new = |thread| {
            ServerTables::new(self.store.clone(), self.identities.clone(), thread, self.counters.clone())
        };
        let mut threads: Vec<ServerTables> = (0..self.counters.threads.len() as u32).map(new).collect();
        let rows = load_all(&plan, &mut threads)?;
        let tables = threads.into_iter().map(|thread| thread.all).collect();
        Ok(LoadedPlace { rows, tables, states: Some(plan.states) })
    }
}
