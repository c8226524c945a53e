//! Saves over an existing model: the save moves the existing model to the folder `previous`. Also decides which
//! models are not saved at all.

use crate::failure::{Failure, SYSTEM};
use crate::model::out_folder::PREVIOUS;
use gannet::storage::{Checkpoint, CheckpointWriter, foreign_entry, is_table_of, own_files, remove_model};
use gannet::train::BadLines;
use gannet::train::saved::ended;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The folder of the model that becomes the previous one, and that of the one before it.
const PASSING: [&str; 2] = ["previous.new", "previous.old"];

/// The folders in which this process has saved. A model there is its own. (The model has no note for this, because
/// equal trainings must make equal models, byte by byte.)
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Writes a note how the training ended, if it ended early.
pub fn note(writer: &mut CheckpointWriter, ended: Option<&str>) {
    writer.note("complete", if ended.is_none() { "1" } else { "0" });
    if let Some(ended) = ended {
        writer.note("ended", ended);
    }
}

/// Checks that nothing of the user is in the folders of previous models: a save replaces them.
pub fn check_previous(folder: &Path) -> Result<(), Failure> {
    for name in [PREVIOUS].into_iter().chain(PASSING) {
        let path = folder.join(name);
        let foreign = match path.symlink_metadata() {
            Err(_) => None,
            Ok(there) if !there.is_dir() => Some(path.clone()),
            Ok(_) => foreign_entry(&path)?,
        };
        if let Some(foreign) = foreign {
            return Err(Failure::input(format!(
                "--out {}: gannet did not write {}, and a save would replace {}, where it keeps the model before: move \
                 it away, or name another folder",
                folder.display(),
                foreign.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Moves the model in `folder` to `folder/previous`, before another is saved there. A model of a training that ended
/// early does not replace a complete one there. A model of this run does not replace one of an earlier run.
pub fn keep_previous(folder: &Path) -> Result<(), Failure> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if own.iter().any(|own| own == folder) {
        return Ok(());
    }
    own.push(folder.to_path_buf());
    let Ok(there) = Checkpoint::open(folder) else { return Ok(()) };
    if let Err(failure) = check_previous(folder) {
        // It came there during the training, which must not be lost.
        notice!("gannet: the model that was in {} is not kept: {failure}", folder.display());
        return Ok(());
    }
    let failed = |path: &Path, error: std::io::Error| {
        let text = format!("keeping the model that was in {}: {}: {error}", folder.display(), path.display());
        Failure::new(SYSTEM, text)
    };
    let [previous, new, old] = [PREVIOUS, PASSING[0], PASSING[1]].map(|name| folder.join(name));
    if !previous.exists() && old.exists() {
        // An earlier process was killed between the two renames below.
        own_files::rename(&old, &previous).map_err(|error| failed(&old, error))?;
    }
    let whole_before = Checkpoint::open(&previous).is_ok_and(|before| ended(&before).is_none());
    if whole_before && ended(&there).is_some() {
        return Ok(());
    }
    for left in [&new, &old] {
        if left.exists() {
            remove_model(left)?;
        }
    }
    there.link_into(&new)?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_table_of(&path, &there)
            && let Ok(table) = Checkpoint::open(&path)
        {
            table.link_into(&new.join(entry.file_name()))?;
        }
    }
    if previous.exists() {
        own_files::rename(&previous, &old).map_err(|error| failed(&previous, error))?;
    }
    own_files::rename(&new, &previous).map_err(|error| failed(&new, error))?;
    let _ = remove_model(&old); // a left-over costs space only
    Ok(())
}

/// Whether a model of so many examples and rows may be saved in `folder`. The job must have learned something, in
/// this process or in another one.
///
/// # Errors
/// Nothing was learned, and no signal was the reason.
pub fn may_save(
    folder: &Path,
    (examples, rows, alone): (u64, u64, bool),
    stopped: bool,
    bad: &BadLines,
) -> Result<bool, Failure> {
    if examples > 0 || (!alone && rows > 0) {
        return Ok(true);
    }
    let folder = folder.display();
    if stopped {
        notice!(
            "gannet: stopped before the first example: nothing is saved, and what is in {folder} stays as it was"
        );
        return Ok(false);
    }
    let why = match &bad.first[..] {
        [] => String::new(),
        [first] if bad.count == 1 => format!(" (1 bad line was skipped: {first})"),
        [first, ..] => format!(" ({} bad lines were skipped, the first: {first})", bad.count),
    };
    Err(Failure::input(format!(
        "0 examples were learned{why}: no model is saved, and what is in {folder} stays as it was"
    )))
}

/// A remark that names the folder of the previous model, if there is one.
pub fn before(folder: &Path) -> String {
    let previous = folder.join(PREVIOUS);
    let there = Checkpoint::open(&previous).is_ok();
    if there { format!(" (the one before it is in {})", previous.display()) } else { String::new() }
}

/// Warns that the training of a model ended early.
pub fn warn_of_early_end(folder: &Path, ended: Option<&str>) {
    if let Some(ended) = ended {
        notice!(
            "gannet: the training of the model in {} ended early: {ended}; it knows what was learned by then",
            folder.display()
        );
    }
}
