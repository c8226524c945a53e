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
pub(crate) mod loaded;
pub(crate) mod place;
pub(crate) mod plan;

use crate::config::{RestoreSource, ServerConfig};
use crate::counters::server::ServerCounters;
use crate::error::ServerError;
use crate::incarnation::new_incarnation;
use crate::limits::RESTORE_LOOKS_MAX;
use crate::places::folder::{PlaceFolder, refuse_without_coordinator};
use crate::places::own::OwnPlaces;
use crate::places::states::SavedStates;
use crate::restore::error::RestoreError;
use crate::restore::folder::FolderState;
use crate::restore::plan::RestorePlan;
use crate::server_tables::ServerTables;
use crate::tables::identities::Identities;
use gannet_core::Store;
use std::path::Path;
use std::sync::Arc;

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
    let new_tables = |thread, identities: &Arc<Identities>| {
        let mut tables =
            ServerTables::new(config.store.clone(), identities.clone(), thread, counters.clone());
        tables.scheduler_only = config.scheduler_only;
        if config.membership.is_some() {
            tables.places = OwnPlaces::managed();
        }
        tables.checkpoints.directory.clone_from(&config.checkpoints);
        if thread == 0 {
            tables.coordinator.clone_from(&config.coordinator);
        }
        tables
    };
    let folder = match &config.membership {
        Some(membership) => PlaceFolder::open(&config.store, membership)?,
        None => refuse_without_coordinator(&config.store).map(|()| None)?,
    };
    let folder = folder.map(Arc::new);
    let new = || {
        let identities = Arc::new(Identities::new(config.store.clone(), incarnation, home));
        let threads = (0..config.threads as u32).map(|thread| new_tables(thread, &identities)).collect();
        OpenedTables { threads, states: None, restored: None, folder: folder.clone() }
    };
    let Some(source) = &config.restore else {
        folder::refuse_interrupted(&config.store)?;
        return Ok(new());
    };
    // A prune may remove the newest checkpoint while it is read. Then there is a newer one.
    for _ in 1..RESTORE_LOOKS_MAX {
        match restore_all(source, config, new()) {
            Err(ServerError::Restore(error)) if error.is_pruned() && source.number.is_none() => {
                tracing::info!(%error, "another checkpoint is restored");
            }
            restored => return restored,
        }
    }
    restore_all(source, config, new())
}

/// Restores the tables of all threads, each in a thread of its own.
fn restore_all(
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
    if folder::look_at_folder(&plan, store)? == FolderState::Whole {
        let folder = store.folder().unwrap_or(Path::new("")).display();
        tracing::info!(%folder, checkpoint, "the folder has these tables: the server goes on from them, not from the checkpoint");
        opened.restored = Some(Restored { checkpoint, tables, rows: 0, kept: true });
        return Ok(opened);
    }
    tracing::info!(checkpoint, directory = %source.directory.path().display(), "restoring");
    folder::begin_restore(&plan, store)?;
    // The states are in the folder before an image is confirmed. A server in memory gets them when it begins.
    match store.folder() {
        Some(_) => {
            let data = (config.data_server.clone(), config.scheduler_only);
            folder::save_states(&plan.states, store, data)?;
        }
        None => opened.states = Some(plan.states.clone()),
    }
    let rows = load_all_threads(&plan, &mut opened.threads)?;
    folder::end_restore(store)?;
    tracing::info!(checkpoint, rows, "restored");
    opened.restored = Some(Restored { checkpoint, tables, rows, kept: false });
    Ok(opened)
}

/// Loads the tables of all threads, each in a thread of its own. Returns the number of their rows.
fn load_all_threads(plan: &RestorePlan, all: &mut [ServerTables]) -> Result<u64, ServerError> {
    let rows =
        with_threads(all, |tables| load::restore_tables(tables, plan).map_err(|error| plan.offer(error)))?;
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
