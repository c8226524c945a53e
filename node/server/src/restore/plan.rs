//! A checkpoint that is being restored.

use crate::config::RestoreSource;
use crate::limits::RESTORE_LOOKS_MAX;
use crate::places::states::SavedStates;
use crate::restore::error::RestoreError;
use gannet_core::{
    CheckpointDir, CheckpointDirError, CheckpointState, JobManifest, Schema, TableCut, TableUid,
};
use gannet_wire::partition::PartitionMap;

/// A checkpoint that is being restored, for all threads of a server.
pub(crate) struct RestorePlan {
    pub(crate) directory: CheckpointDir,
    /// The checkpoint and those that it needs, the oldest first.
    pub(crate) chain: Vec<JobManifest>,
    pub(crate) server: u32,
    pub(crate) servers: u32,
    pub(crate) shards: Option<u32>,
    /// The server is only a scheduler and has no tables.
    states_only: bool,
    pub(crate) states: SavedStates,
    goes_on: bool,
}

impl RestorePlan {
    /// If the newest checkpoint is to be restored, and it is pruned while it is read, takes a newer one.
    pub(crate) fn new(source: &RestoreSource, states_only: bool) -> Result<RestorePlan, RestoreError> {
        let mut looks = 1;
        loop {
            match RestorePlan::read(source, states_only) {
                Err(RestoreError::Checkpoint(error))
                    if error.is_pruned() && source.number.is_none() && looks < RESTORE_LOOKS_MAX =>
                {
                    looks += 1;
                }
                read => return read,
            }
        }
    }

    fn read(source: &RestoreSource, states_only: bool) -> Result<RestorePlan, RestoreError> {
        let &RestoreSource { server, servers, shards, scheduler, .. } = source;
        if server >= servers {
            return Err(RestoreError::Place { server, servers });
        }
        let directory = source.directory.clone();
        let none = || RestoreError::NoCheckpoint(directory.path().into());
        let chain = match source.number {
            Some(number) => directory.chain(number)?,
            None => directory.newest_chain()?.ok_or_else(none)?,
        };
        let newest = chain.last().ok_or_else(none)?;
        if let Some(run) = &source.run {
            newest.must_be_of(run, &directory.folder(newest.number))?;
        }
        let states = SavedStates::read(&directory, newest, scheduler || states_only)?;
        let goes_on = source.goes_on;
        let plan = RestorePlan { directory, server, servers, shards, states_only, states, chain, goes_on };
        for table in plan.tables() {
            let checked = plan.schema(table).check();
            checked.map_err(|error| RestoreError::Shards {
                shards: plan.schema(table).shards,
                why: error.to_string(),
            })?;
        }
        Ok(plan)
    }

    /// The tables that this server restores.
    pub(crate) fn tables(&self) -> &[TableCut] {
        match self.chain.last() {
            Some(newest) if !self.states_only => &newest.tables,
            _ => &[],
        }
    }

    /// The id that a table gets ([`JobManifest::restored_uid`]).
    pub(crate) fn uid(&self, table: &TableCut) -> TableUid {
        self.chain.last().map_or(table.uid, |newest| newest.restored_uid(table))
    }

    /// Whether rows with this table id are those of a checkpoint of the directory, or were restored from one.
    pub(crate) fn has_saved(&self, table: &str, uid: TableUid) -> bool {
        let of = |manifest: &JobManifest| manifest.has_rows_of(table, uid);
        let listed = self.directory.list().unwrap_or_default();
        let any = listed.iter().any(|listed| match &listed.state {
            CheckpointState::Valid(manifest) => of(manifest),
            _ => false,
        });
        self.chain.last().is_some_and(of) || self.goes_on && (self.chain.iter().any(of) || any)
    }

    /// The schema that a table gets.
    pub(crate) fn schema(&self, table: &TableCut) -> Schema {
        let shards = self.shards.unwrap_or(table.schema.shards);
        Schema { shards, ..table.schema.clone() }
    }

    /// The error of a load. If a file is damaged, it offers the newest checkpoint that is good: lengths and manifests
    /// did not show the damage.
    pub(crate) fn offer(&self, error: RestoreError) -> RestoreError {
        match error {
            RestoreError::Checkpoint(damaged @ CheckpointDirError::Damaged { .. }) => {
                match self.directory.verify(self.number()) {
                    Err(refused) => refused.into(),
                    Ok(_) => damaged.into(),
                }
            }
            other => other,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.chain.last().map_or(0, |newest| newest.number)
    }

    /// Whether this server has a shard of any table.
    pub(crate) fn has_shards(&self, table: &TableCut) -> bool {
        !PartitionMap::of_job(self.servers).shards(self.server, self.schema(table).shards).is_empty()
    }

    /// Which checkpoint it is, in words.
    pub(crate) fn in_words(&self) -> String {
        format!("checkpoint {} of {}", self.number(), self.directory.path().display())
    }
}
