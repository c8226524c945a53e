//! Restore: a server takes its tables from a checkpoint before it listens. It is then what it would be if it had been
//! killed at the checkpoint's cut and started again on its data folder.
//!
//! ```text
//! the folder holds                        the server
//! the tables, confirmed                   goes on from them; the checkpoint need not be there
//! nothing, or images without confirmation restores
//! RESTORING (a restore was interrupted)   removes the tables and restores
//! ```
//! A restore writes RESTORING into the data folder first, and removes it last. In between, no image counts as
//! confirmed, and a start without a restore is refused.

pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod load;
pub(crate) mod place;
pub(crate) mod states;

use crate::counters::server::ServerCounters;
use crate::error::ServerError;
use crate::limits::RESTORE_LOOKS_MAX;
use crate::membership::folder::{PlaceFolder, refuse_without_coordinator};
use crate::membership::standing::OwnPlaces;
use crate::restore::error::RestoreError;
use crate::restore::folder::FolderState;
use crate::restore::states::SavedStates;
use crate::server::{ServerConfig, new_incarnation};
use crate::tables::identities::Identities;
use crate::tables::server_tables::ServerTables;
use gannet_core::{
    CheckpointDir, CheckpointDirError, CheckpointState, JobManifest, Schema, Store, TableCut, TableUid,
};
use gannet_wire::partition::PartitionMap;
use std::path::Path;
use std::sync::Arc;

/// A checkpoint, and which part of it a server takes.
///
/// ```
/// use gannet_core::CheckpointDir;
/// use gannet_server::RestoreSource;
///
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::open(folder.path())?;
/// // The newest checkpoint, for server 1 of 3.
/// let source = RestoreSource::new(&directory, 1, 3);
/// assert_eq!((source.number, source.shards), (None, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RestoreSource {
    /// The checkpoint directory.
    pub directory: CheckpointDir,
    /// The number of the checkpoint. `None`: the newest one that can be used.
    pub number: Option<u64>,
    /// The server's number, counted from 0.
    pub server: u32,
    /// The number of servers.
    pub servers: u32,
    /// The number of shards of each table. `None`: as many as the checkpoint has.
    pub shards: Option<u32>,
    /// Whether this server is the job's scheduler and has its registry of runs: it takes their states, too.
    pub scheduler: bool,
    /// The run that must have saved the checkpoint. `None`: any.
    pub run: Option<String>,
    /// Whether a data folder with tables of the run is used as it is, also if they come from another checkpoint of the
    /// directory, or if this one cannot be used. A server that starts goes on; who asks for a restore does not.
    pub goes_on: bool,
}

impl RestoreSource {
    /// The newest checkpoint of a directory, for server `server` of `servers`. Server 0 is the scheduler.
    pub fn new(directory: &CheckpointDir, server: u32, servers: u32) -> RestoreSource {
        let (directory, scheduler) = (directory.clone(), server == 0);
        let (number, shards, run, goes_on) = (None, None, None, true);
        RestoreSource { directory, number, server, servers, shards, scheduler, run, goes_on }
    }
}

/// What a restore has done. [`restore_folder`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of the checkpoint.
    pub checkpoint: u64,
    /// The tables.
    pub tables: Vec<String>,
    /// Rows of the checkpoint that are on this server now.
    pub rows: u64,
    /// The data folder had the tables already. The server goes on from them, and nothing was loaded.
    pub kept: bool,
}

/// A checkpoint that is being restored, for all threads of a server.
pub(crate) struct RestorePlan {
    directory: CheckpointDir,
    /// The checkpoint and those that it needs, the oldest first.
    chain: Vec<JobManifest>,
    server: u32,
    servers: u32,
    shards: Option<u32>,
    /// The server is only a scheduler and has no tables.
    states_only: bool,
    states: SavedStates,
    goes_on: bool,
}

impl RestorePlan {
    /// If the newest checkpoint is to be restored, and it is pruned while it is read, takes a newer one.
    fn new(source: &RestoreSource, states_only: bool) -> Result<RestorePlan, RestoreError> {
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
    fn tables(&self) -> &[TableCut] {
        match self.chain.last() {
            Some(newest) if !self.states_only => &newest.tables,
            _ => &[],
        }
    }

    /// The id that a table gets ([`JobManifest::restored_uid`]).
    fn uid(&self, table: &TableCut) -> TableUid {
        self.chain.last().map_or(table.uid, |newest| newest.restored_uid(table))
    }

    /// Whether rows with this table id are those of a checkpoint of the directory, or were restored from one.
    fn has_saved(&self, table: &str, uid: TableUid) -> bool {
        let of = |manifest: &JobManifest| manifest.has_rows_of(table, uid);
        let listed = self.directory.list().unwrap_or_default();
        let any = listed.iter().any(|listed| match &listed.state {
            CheckpointState::Valid(manifest) => of(manifest),
            _ => false,
        });
        self.chain.last().is_some_and(of) || self.goes_on && (self.chain.iter().any(of) || any)
    }

    /// The schema that a table gets.
    fn schema(&self, table: &TableCut) -> Schema {
        let shards = self.shards.unwrap_or(table.schema.shards);
        Schema { shards, ..table.schema.clone() }
    }

    /// The error of a load. If a file is damaged, it offers the newest checkpoint that is good: lengths and manifests
    /// did not show the damage.
    fn offer(&self, error: RestoreError) -> RestoreError {
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

    fn number(&self) -> u64 {
        self.chain.last().map_or(0, |newest| newest.number)
    }

    /// Whether this server has a shard of any table.
    fn has_shards(&self, table: &TableCut) -> bool {
        !PartitionMap::of_job(self.servers).shards(self.server, self.schema(table).shards).is_empty()
    }

    /// Which checkpoint it is, in words.
    fn in_words(&self) -> String {
        format!("checkpoint {} of {}", self.number(), self.directory.path().display())
    }
}

/// The tables of each thread of a server, and the states that thread 0 takes over when it begins.
pub(crate) struct OpenedTables {
    pub(crate) threads: Vec<ServerTables>,
    pub(crate) states: Option<SavedStates>,
    pub(crate) restored: Option<Restored>,
    /// The data folder of a server with a place.
    pub(crate) folder: Option<Arc<PlaceFolder>>,
}

/// Makes the tables of each thread of a server: restored ones, or none that are open.
pub(crate) fn open_tables(
    config: &ServerConfig,
    incarnation: u64,
    counters: &Arc<ServerCounters>,
) -> Result<OpenedTables, ServerError> {
    let home = config.membership.as_ref().map(|membership| membership.place.0);
    let identities = Arc::new(Identities::new(config.store.clone(), incarnation, home));
    let new_tables = |thread| {
        let mut tables =
            ServerTables::new(config.store.clone(), identities.clone(), thread, counters.clone());
        tables.scheduler_only = config.scheduler_only;
        if config.membership.is_some() {
            tables.places = OwnPlaces::managed();
        }
        tables.checkpoints.clone_from(&config.checkpoints);
        tables.coordinator.clone_from(&config.coordinator);
        tables
    };
    let threads: Vec<ServerTables> = (0..config.threads as u32).map(new_tables).collect();
    let folder = match &config.membership {
        Some(membership) => PlaceFolder::open(&config.store, membership)?,
        None => refuse_without_coordinator(&config.store).map(|()| None)?,
    };
    let opened = OpenedTables { threads, states: None, restored: None, folder: folder.map(Arc::new) };
    match &config.restore {
        None => {
            folder::refuse_interrupted(&config.store)?;
            Ok(opened)
        }
        Some(source) => restore(source, config, opened),
    }
}

/// Restores the tables of all threads, each in a thread of its own.
fn restore(
    source: &RestoreSource,
    config: &ServerConfig,
    mut opened: OpenedTables,
) -> Result<OpenedTables, ServerError> {
    let store = &config.store;
    let plan = match RestorePlan::new(source, config.scheduler_only) {
        Ok(plan) => plan,
        Err(error) if !source.goes_on => return Err(error.into()),
        Err(error) => {
            let tables = folder::tables_of(store, source.run.as_deref())?;
            if tables.is_empty() {
                return Err(error.into());
            }
            let folder = store.folder().unwrap_or(Path::new("")).display();
            tracing::warn!(%folder, %error, "no checkpoint can be used; the server goes on from the tables in its folder");
            let checkpoint = source.number.unwrap_or(0);
            opened.restored = Some(Restored { checkpoint, tables, rows: 0, kept: true });
            return Ok(opened);
        }
    };
    let checkpoint = plan.number();
    let tables: Vec<String> = plan.tables().iter().map(|table| table.schema.name.clone()).collect();
    if folder::look(&plan, store)? == FolderState::Whole {
        let folder = store.folder().unwrap_or(Path::new("")).display();
        tracing::info!(%folder, checkpoint, "the folder has these tables: the server goes on from them, not from the checkpoint");
        opened.restored = Some(Restored { checkpoint, tables, rows: 0, kept: true });
        return Ok(opened);
    }
    tracing::info!(checkpoint, directory = %source.directory.path().display(), "restoring");
    folder::begin(&plan, store)?;
    // The states are in the folder before an image is confirmed. A server in memory gets them when it begins.
    match store.folder() {
        Some(_) => {
            let data = (config.data_server.clone(), config.scheduler_only);
            folder::save_states(&plan.states, store, data)?;
        }
        None => opened.states = Some(plan.states.clone()),
    }
    let rows = load_all(&plan, &mut opened.threads)?;
    folder::end(store)?;
    tracing::info!(checkpoint, rows, "restored");
    opened.restored = Some(Restored { checkpoint, tables, rows, kept: false });
    Ok(opened)
}

/// Loads the tables of all threads, each in a thread of its own. Returns the number of their rows.
fn load_all(plan: &RestorePlan, all: &mut [ServerTables]) -> Result<u64, ServerError> {
    let rows = with_threads(all, |tables| load::restore(tables, plan).map_err(|error| plan.offer(error)))?;
    all.iter().for_each(crate::restore::load::confirm_restored);
    Ok(rows)
}

/// Does this for the tables of all threads, each in a thread of its own. Returns the sum of the rows.
fn with_threads(
    all: &mut [ServerTables],
    load: impl Fn(&mut ServerTables) -> Result<u64, RestoreError> + Sync,
) -> Result<u64, ServerError> {
    std::thread::scope(|scope| -> Result<u64, ServerError> {
        let load = &load;
        let threads: Vec<_> = all.iter_mut().map(|tables| scope.spawn(move || load(tables))).collect();
        let mut rows = 0;
        for thread in threads {
            let died = |_| ServerError::Died("a thread that loaded the rows panicked".into());
            rows += thread.join().map_err(died)??;
        }
        Ok(rows)
    })
}

/// Restores a server's part of a checkpoint into a store with a data folder, with `threads` threads, and closes its
/// images in order. A server that is started on the folder goes on from there.
///
/// ```
/// use gannet_core::{CheckpointDir, JobManifest, Store};
/// use gannet_server::{RestoreSource, restore_folder};
///
/// # let folder = tempfile::tempdir()?;
/// // A checkpoint without tables.
/// let checkpoints = CheckpointDir::create(&folder.path().join("checkpoints"))?;
/// let draft = checkpoints.begin()?;
/// let number = draft.number();
/// draft.publish(&JobManifest::new(number, "monday"))?;
///
/// let store = Store::open_dir(&folder.path().join("server-0"))?;
/// let restored = restore_folder(&store, 2, &RestoreSource::new(&checkpoints, 0, 1))?;
/// assert_eq!((restored.checkpoint, restored.rows), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The checkpoint cannot be restored, or the images cannot be closed.
pub fn restore_folder(
    store: &Store,
    threads: usize,
    source: &RestoreSource,
) -> Result<Restored, ServerError> {
    let (store, restore) = (store.clone(), Some(source.clone()));
    let config = ServerConfig { threads, store, restore, ..ServerConfig::new("") };
    config.check()?;
    let counters = ServerCounters::new(threads);
    let mut opened = open_tables(&config, new_incarnation()?, &counters)?;
    opened.threads.iter_mut().try_for_each(ServerTables::close)?;
    let (checkpoint, none) = (0, Vec::new());
    Ok(opened.restored.unwrap_or(Restored { checkpoint, tables: none, rows: 0, kept: false }))
}
