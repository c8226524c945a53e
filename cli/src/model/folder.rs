//! The folder of a model: whether one may be written there, and its rows.

use crate::failure::{Failure, SYSTEM};
use crate::model::{out_folder, saves};
use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointWriter, is_data_folder};
use gannet::train::BackendError;
use std::path::Path;

/// Checks that a model may be written to a folder, and keeps other trainings out of it until this process ends. The
/// folder can be created, and has no model of another kind, which would be lost.
pub fn may_write(folder: &Path, schema: &Schema) -> Result<(), Failure> {
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::input(format!(
            "--out {}: is a file, and a model is saved as a folder; name another",
            folder.display()
        )));
    }
    if is_data_folder(folder) {
        return Err(Failure::input(format!(
            "--out {}: is the data folder of a server, which would not start again with a model in it: name another \
             folder",
            folder.display()
        )));
    }
    // What follows finds no half of another training's save.
    out_folder::hold(folder)?;
    if let Ok(there) = Checkpoint::open(folder)
        && there.schema().is_of_another_kind(schema)
    {
        let (ours, theirs) = (schema, there.schema());
        let name = there.note("model").unwrap_or(&theirs.name);
        let floats = |of: &Schema| of.dim + of.more.iter().map(|segment| segment.dim).sum::<u32>();
        let this = match theirs.name == ours.name {
            true => format!(
                " with {} weights a row; this training has {} (--factors, --classes, --topics)",
                floats(theirs),
                floats(ours)
            ),
            false => format!("; this training is {}", ours.name),
        };
        return Err(Failure::input(format!(
            "--out {} holds a model of {name}{this}, which would be replaced: name another folder, or remove that one",
            folder.display()
        )));
    }
    saves::check_previous(folder)?;
    let made = CheckpointWriter::create(folder, schema).map_err(Failure::from);
    made.map(|_| ()).map_err(|failure| {
        // The errors of the user's files have their remedy.
        let remedy = if failure.code == SYSTEM { "; name a folder that can be written" } else { "" };
        Failure::new(failure.code, format!("--out {}: {failure}{remedy}", folder.display()))
    })
}

/// Receives pages of rows.
pub type RowPages<'a> = &'a mut dyn FnMut(&[u64], &[f32]);

/// Completes the checkpoint with the rows that `scan` passes. Returns the number of rows.
pub fn write(
    mut writer: CheckpointWriter,
    scan: impl FnOnce(RowPages<'_>) -> Result<(), BackendError>,
) -> Result<u64, Failure> {
    scan(&mut |keys, rows| writer.add(keys, rows))?;
    Ok(writer.finish()?)
}
