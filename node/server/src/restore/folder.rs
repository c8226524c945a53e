//! What a data folder holds before a restore, and the file RESTORING that marks a restore under way.

use crate::places::incarnations::{HighestIncarnation, Incarnations};
use crate::places::states::{SavedStates, StateHolders};
use crate::restore::error::RestoreError;
use crate::restore::plan::RestorePlan;
use gannet_core::{HeldTable, Store, TableCut, own_files};
use gannet_jobs::failure_detector::FailureDetector;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::data_server::DataServerConfig;
use gannet_jobs::scheduler::jobs::Schedulers;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

const RESTORING: &str = "RESTORING";

/// What RESTORING begins with. The name of the checkpoint follows.
const BEGINNING: &[u8] = b"gannet restores ";

/// The most bytes of RESTORING that an error shows.
const SHOWN_BYTES: usize = 4096;

/// What a restore finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderState {
    /// There is nothing to go on from.
    Restore,
    /// The tables are there.
    Whole,
}

fn restore_io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_path_buf();
    move |source| RestoreError::Io { what, path, source }
}

/// Refuses a data folder in which a restore was interrupted.
pub(crate) fn refuse_interrupted(store: &Store) -> Result<(), RestoreError> {
    let Some(folder) = store.folder() else { return Ok(()) };
    let path = folder.join(RESTORING);
    match own_files::read_whole(&path).map_err(restore_io_error("reading", &path))? {
        None => Ok(()),
        Some(bytes) => {
            let shown = bytes.strip_prefix(BEGINNING).unwrap_or(&bytes);
            let shown = &shown[..shown.len().min(SHOWN_BYTES)];
            let checkpoint = String::from_utf8_lossy(shown).trim().to_owned();
            Err(RestoreError::Interrupted { folder: folder.into(), checkpoint })
        }
    }
}

/// Looks at the data folder, if there is one.
pub(crate) fn look_at_folder(plan: &RestorePlan, store: &Store) -> Result<FolderState, RestoreError> {
    let Some(folder) = store.folder() else { return Ok(FolderState::Restore) };
    if folder.join(RESTORING).exists() {
        return Ok(FolderState::Restore);
    }
    let refuse = |why: String| Err(RestoreError::Folder { folder: folder.into(), why });
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for table in plan.tables() {
        let name = &table.schema.name;
        let held = store.held(name)?.filter(|held| held.confirmed);
        match held {
            Some(held) => match differs(plan, table, &held) {
                Some(why) => return refuse(why),
                None => there.push(name.as_str()),
            },
            None if plan.has_shards(table) => missing.push(name.as_str()),
            None => {}
        }
    }
    match (there.is_empty(), missing.is_empty()) {
        (false, true) => Ok(FolderState::Whole),
        (false, false) => refuse(format!(
            "it holds the rows of {}, but nothing of {}, which the checkpoint has too: restore into an empty folder",
            there.join(", "),
            missing.join(", ")
        )),
        // Of the same run, from a later start with new rows (--fresh).
        (true, _) if has_others_of_run(plan, store)? => Ok(FolderState::Whole),
        // A server without shards has at most the states.
        (true, true) if knows_run(plan, folder)? => Ok(FolderState::Whole),
        (true, _) => Ok(FolderState::Restore),
    }
}

/// The tables of a run (of any, if it is `None`) that the folder holds, if no restore into it was interrupted.
pub(crate) fn tables_of(store: &Store, run: Option<&str>) -> Result<Vec<String>, RestoreError> {
    if store.folder().is_none_or(|folder| folder.join(RESTORING).exists()) {
        return Ok(Vec::new());
    }
    let mut tables = Vec::new();
    for name in store.tables() {
        let of_run = |run| name.strip_prefix(run).is_some_and(|rest: &str| rest.starts_with('.'));
        if run.is_none_or(of_run) && store.held(&name)?.is_some_and(|held| held.confirmed) {
            tables.push(name);
        }
    }
    Ok(tables)
}

/// Whether the folder has tables of the checkpoint's run that the checkpoint does not have.
fn has_others_of_run(plan: &RestorePlan, store: &Store) -> Result<bool, RestoreError> {
    let run = plan.states.run();
    for name in store.tables() {
        let of_run = !run.is_empty() && name.strip_prefix(run).is_some_and(|rest| rest.starts_with('.'));
        let saved = plan.tables().iter().any(|table| table.schema.name == name);
        if of_run && !saved && store.held(&name)?.is_some_and(|held| held.confirmed) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the scheduler or the registry of this folder knows the run of the checkpoint.
fn knows_run(plan: &RestorePlan, folder: &Path) -> Result<bool, RestoreError> {
    let refuse = |why: String| RestoreError::Folder { folder: folder.into(), why };
    let detector = FailureDetector::default();
    let runs =
        Registry::open(Some(folder), &detector, Duration::ZERO).map_err(|error| refuse(error.to_string()))?;
    let scheduler = Schedulers::open(Some(folder), None, Duration::ZERO);
    let scheduler = scheduler.map_err(|error| refuse(error.to_string()))?;
    let run = plan.states.run();
    Ok(runs.snapshot(run).is_some() || scheduler.snapshot(run).is_some())
}

/// Why the server cannot go on from these images.
fn differs(plan: &RestorePlan, table: &TableCut, held: &HeldTable) -> Option<String> {
    let (name, identity) = (&table.schema.name, held.identity);
    // The tables that were saved, or tables that were restored from one of these checkpoints, and went on.
    if !plan.has_saved(name, identity.uid) {
        return Some(format!(
            "it holds another table {name:?} than the checkpoints (its id is {}, but that of {} has id {} and {} after \
             a restore): name an empty folder",
            identity.uid,
            plan.in_words(),
            table.uid,
            plan.uid(table)
        ));
    }
    if (identity.server, identity.servers) != (plan.server, plan.servers) {
        return Some(format!(
            "its table {name:?} is that of server {} of {}, and this is server {} of {}: name an empty folder",
            identity.server, identity.servers, plan.server, plan.servers
        ));
    }
    let wanted = plan.shards.filter(|&shards| shards != held.shards)?;
    Some(format!(
        "its table {name:?} has {} shards, and {wanted} are wanted: name an empty folder",
        held.shards
    ))
}

/// Marks the folder, and removes what an interrupted restore has left of the tables.
pub(crate) fn begin_restore(plan: &RestorePlan, store: &Store) -> Result<(), RestoreError> {
    let Some(folder) = store.folder() else { return Ok(()) };
    let path = folder.join(RESTORING);
    let mut to_remove: Vec<String> = plan.tables().iter().map(|table| table.schema.name.clone()).collect();
    if path.exists() {
        // The restore that was interrupted may have been that of other tables.
        for name in store.tables() {
            if store.held(&name)?.is_some_and(|held| !held.confirmed) && !to_remove.contains(&name) {
                to_remove.push(name);
            }
        }
    }
    let text = [BEGINNING, plan.in_words().as_bytes()].concat();
    own_files::replace(&path, BEGINNING, &text).map_err(restore_io_error("writing", &path))?;
    for name in to_remove {
        let path = folder.join(&name);
        store.drop_table(&name).map_err(restore_io_error("removing", &path))?;
    }
    Ok(())
}

/// Writes the states into the files that a restart reads. `data`: what the scheduler sends to workers, and whether the
/// server is only a scheduler.
pub(crate) fn save_states(
    states: &SavedStates,
    store: &Store,
    (data, scheduler_only): (Option<DataServerConfig>, bool),
) -> Result<(), RestoreError> {
    let Some(folder) = store.folder() else { return Ok(()) };
    let (now, refuse) = (Duration::ZERO, |why: String| RestoreError::Folder { folder: folder.into(), why });
    let detector = FailureDetector::default();
    let scheduler = Schedulers::open(Some(folder), data, now);
    let mut scheduler = scheduler.map_err(|error| refuse(error.to_string()))?;
    let mut runs = match scheduler_only {
        true => None,
        false => {
            Some(Registry::open(Some(folder), &detector, now).map_err(|error| refuse(error.to_string()))?)
        }
    };
    let incarnations = Incarnations::open(store, HighestIncarnation::default(), scheduler_only);
    let mut incarnations = incarnations.map_err(|error| refuse(error.to_string()))?;
    let holders =
        StateHolders { scheduler: &mut scheduler, runs: runs.as_mut(), incarnations: &mut incarnations };
    states.restore(holders, now)
}

/// Ends the restore: from now on the server goes on from the folder.
pub(crate) fn end_restore(store: &Store) -> Result<(), RestoreError> {
    let Some(folder) = store.folder() else { return Ok(()) };
    let path = folder.join(RESTORING);
    let removed = || own_files::remove_own(&path, &[BEGINNING]).and_then(|_| File::open(folder)?.sync_all());
    removed().map_err(restore_io_error("removing", &path))
}
