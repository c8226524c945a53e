//! The step files of sets of shards that no thread has any more, because the server was started again with other
//! threads. They go as soon as no shard needs them. Without that, every number of threads would leave two files.
//!
//! A shard needs such a file until a file of the thread that has the shard now says that it is at least as far. That
//! thread has then finished the step of the unowned file. Files of present threads always stay, so at most two files
//! for each thread are left, and those of shards that are ahead of other shards of their thread. These go when the
//! server is started after the others have made the steps.

#[cfg(test)]
#[path = "unowned_step_files_tests.rs"]
mod tests;

use crate::steps::step_files::{
    BEGINNING, RecoveredSteps, StepFile, StepFiles, file_name, if_there, read_step, step_files_of,
};
use gannet_core::{ShardSet, Shards, Store, own_files};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The steps of the files of present threads: for each image, by shard and birth, the last one that is written down.
type LastSteps = BTreeMap<(u32, u64), u64>;

/// The step files of shards whose steps are finished. Unowned files of the table go, as far as nothing needs them.
pub(crate) fn open_step_files(
    store: &Store,
    shards: &Shards,
    recovered: &RecoveredSteps,
    present: &[ShardSet],
) -> StepFiles {
    let mut files = StepFiles::new(store, shards);
    files.begin(shards, recovered);
    let table = &shards.schema().name;
    match remove_unowned(store, shards, present) {
        Ok(0) => {}
        Ok(removed) => tracing::info!(table, removed, "unowned step files are removed"),
        Err(why) => tracing::warn!(table, why, "an unowned step file stays"),
    }
    files
}

/// Removes the unowned step files of a table that nothing needs. `shards`: those of this thread. `present`: the shards
/// of each thread of this server. Returns how many files went.
///
/// # Errors
/// A file cannot be read or removed: in words. It is tried again when the table is opened again.
fn remove_unowned(store: &Store, shards: &Shards, present: &[ShardSet]) -> Result<usize, String> {
    let names: Vec<String> = present.iter().flat_map(|set| [0, 1].map(|turn| file_name(set, turn))).collect();
    let is_present = |path: &PathBuf| names.iter().any(|name| path.ends_with(name));
    let (ours, unowned): (Vec<_>, Vec<_>) =
        step_files_of(store, &shards.schema().name)?.into_iter().partition(is_present);
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let (mut last, mut removed) = (LastSteps::new(), 0);
    for path in ours.iter().filter(|_| !unowned.is_empty()) {
        let found = if_there(read_step(path)).map_err(|error| failed(path, error))?.flatten();
        for image in found.iter().flat_map(|found| found.step.births()) {
            let known = last.entry(image).or_default();
            *known = found.as_ref().map_or(0, |found| found.step.step).max(*known);
        }
    }
    for path in unowned {
        let goes = goes(&path, shards, present, &last).map_err(|error| failed(&path, error))?;
        let gone =
            goes && own_files::remove_part(&path, &[BEGINNING]).map_err(|error| failed(&path, error))?;
        removed += usize::from(gone);
    }
    Ok(removed)
}

/// Whether no shard needs an unowned file.
fn goes(path: &Path, shards: &Shards, present: &[ShardSet], last: &LastSteps) -> io::Result<bool> {
    let Some(found) = if_there(read_step(path))? else { return Ok(false) };
    let Some(StepFile { step, .. }) = found else {
        // A torn file is of a step that was not begun. All threads have steps, so none is left that looks for one.
        let has_steps = |shard: u32| last.keys().any(|&(of, _)| of == shard);
        return Ok(present.iter().flat_map(ShardSet::iter).all(has_steps));
    };
    let births = shards.births();
    let is_needed = |(shard, birth): (u32, u64)| {
        // An image that was made anew has nothing to do with the file.
        let own = shards.set().position(shard).and_then(|at| births.get(at));
        own.is_none_or(|own| *own == birth) && last.get(&(shard, birth)).is_none_or(|last| *last < step.step)
    };
    Ok(!step.births().into_iter().any(is_needed))
}
