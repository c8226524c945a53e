//! The rows of a place in a job with a coordinator: a server loads them from a checkpoint, or opens those in its data
//! folder, while its threads serve other places. The threads then take what was loaded.

use crate::config::{RestoreSource, ServerConfig};
use crate::counters::server::ServerCounters;
use crate::error::ServerError;
use crate::places::folder::{Claim, PlaceFolder};
use crate::places::own::{Positions, SCHEDULER_PLACE};
use crate::restore::error::RestoreError;
use crate::restore::load::open_folder;
use crate::restore::loaded::{LoadedPlace, PlaceStates};
use crate::restore::plan::RestorePlan;
use crate::restore::{OpenedTables, folder, load_all_threads, with_threads};
use crate::server_tables::ServerTables;
use crate::tables::identities::Identities;
use gannet_core::{CheckpointDir, Position, Store};
use gannet_worker::savers_of;
use std::fmt;
use std::sync::Arc;

/// The rows that a server begins a place with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceRows {
    None,
    /// Those of this checkpoint.
    Checkpoint(u64),
    /// Those in the data folder.
    Folder,
}

impl fmt::Display for PlaceRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceRows::None => write!(f, "no rows"),
            PlaceRows::Checkpoint(number) => write!(f, "checkpoint {number}"),
            PlaceRows::Folder => write!(f, "the rows in its data folder"),
        }
    }
}

/// Loads the rows of places.
#[derive(Clone)]
pub(crate) struct PlaceLoader {
    checkpoints: Option<CheckpointDir>,
    run: String,
    /// The place that this server began with, and of how many.
    home: (u32, u32),
    store: Store,
    /// The data folder of that place.
    folder: Option<Arc<PlaceFolder>>,
    identities: Arc<Identities>,
    counters: Arc<ServerCounters>,
}

impl PlaceLoader {
    /// That of a server with a membership, and with a checkpoint directory or a data folder.
    pub(crate) fn of(config: &ServerConfig, opened: &OpenedTables) -> Option<PlaceLoader> {
        let (membership, checkpoints) = (config.membership.as_ref()?, config.checkpoints.clone());
        let (first, folder) = (opened.threads.first()?, opened.folder.clone());
        (checkpoints.is_some() || folder.is_some()).then(|| PlaceLoader {
            checkpoints,
            run: membership.job.clone(),
            home: membership.place,
            store: config.store.clone(),
            folder,
            identities: first.home.identities.clone(),
            counters: first.counters.clone(),
        })
    }

    /// The data folder of the server's own place.
    pub(crate) fn folder(&self) -> Option<&PlaceFolder> {
        self.folder.as_deref()
    }

    /// Whether there may be checkpoints.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// The number of the newest checkpoint of the job that can be used.
    ///
    /// # Errors
    /// The directory cannot be read, or has checkpoints of another run.
    pub(crate) fn newest(&self) -> Result<Option<u64>, RestoreError> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(None) };
        let Some(newest) = checkpoints.newest_valid()? else { return Ok(None) };
        newest.must_be_of(&self.run, &checkpoints.folder(newest.number))?;
        Ok(Some(newest.number))
    }

    /// Gives up the saves of the job that have begun: the job goes back to a checkpoint, so what they would publish is
    /// of rows that are undone.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub(crate) fn give_up_saves(&self) -> Result<(), RestoreError> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let given_up = checkpoints.give_up_of_all(&savers_of(&self.run))?;
        if !given_up.is_empty() {
            tracing::warn!(?given_up, "the job goes back: checkpoints whose saves had begun are given up");
        }
        Ok(())
    }

    /// How many changes the shard has had since this checkpoint that has had the most, of those at these positions.
    /// Shards that were begun after the checkpoint have had all of their changes since.
    ///
    /// # Errors
    /// The checkpoint cannot be read.
    pub(crate) fn undone(&self, checkpoint: u64, of: &Positions) -> Result<u64, RestoreError> {
        let chain = match &self.checkpoints {
            Some(checkpoints) => checkpoints.chain(checkpoint)?,
            None => Vec::new(),
        };
        let since = |(name, at): &(String, Position)| {
            let table = chain.last().and_then(|newest| newest.table(name));
            let cut = table.and_then(|(_, table)| table.shards.get(at.shard as usize));
            let saved = cut.filter(|cut| cut.birth == at.birth).map_or(0, |cut| cut.to);
            at.command.saturating_sub(saved)
        };
        Ok(of.iter().map(since).max().unwrap_or(0))
    }

    /// Loads the rows of a place, with a thread for each thread of the server. If they are in the data folder then,
    /// they are of this claim.
    ///
    /// # Errors
    /// They cannot be read, or there is no space for them.
    pub(crate) fn load(&self, place: u32, claim: Claim, rows: PlaceRows) -> Result<LoadedPlace, ServerError> {
        let folder = self.folder.as_ref().filter(|_| place == self.home.0);
        if folder.is_some() {
            self.identities.serve_folder();
        }
        let new = |thread| {
            ServerTables::new(self.store.clone(), self.identities.clone(), thread, self.counters.clone())
        };
        let mut threads: Vec<ServerTables> = (0..self.counters.threads.len() as u32).map(new).collect();
        let mut states = None;
        let rows = match rows {
            PlaceRows::None => 0,
            PlaceRows::Folder => with_threads(&mut threads, |tables| open_folder(tables, claim.epoch))?,
            PlaceRows::Checkpoint(number) => {
                let plan = self.plan(place, number)?;
                if folder.is_some() && place == SCHEDULER_PLACE {
                    folder::save_states(&plan.states, &self.store, (None, false))?;
                }
                let rows = load_all_threads(&plan, &mut threads)?;
                states = Some(PlaceStates::Saved(plan.states));
                rows
            }
        };
        if let Some(folder) = folder {
            folder.note_rows(claim)?;
            if place == SCHEDULER_PLACE {
                states = Some(PlaceStates::Folder);
            }
        }
        let tables = threads.into_iter().map(|thread| thread.all.into_tables()).collect();
        Ok(LoadedPlace { rows, tables, states })
    }

    fn plan(&self, place: u32, number: u64) -> Result<RestorePlan, ServerError> {
        let none = || RestoreError::NoCheckpoint("--checkpoint".into());
        let source = RestoreSource {
            number: Some(number),
            run: Some(self.run.clone()),
            ..RestoreSource::new(self.checkpoints.as_ref().ok_or_else(none)?, place, self.home.1)
        };
        Ok(RestorePlan::new(&source, false)?)
    }
}
