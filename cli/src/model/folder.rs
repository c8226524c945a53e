//! The folder of a model: whether one may be written there, and how it is saved.

use crate::failure::{Failure, SYSTEM};
use crate::model::notes::Notes;
use crate::model::{out_folder, saves};
use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointWriter, is_data_folder, is_left_table, remove_model};
use gannet::train::saved::folder_of_save;
use gannet::train::{BackendError, TableIndex};
use std::path::Path;
use std::time::SystemTime;

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

/// Saves the tables of a model. The first has the examples' keys, and `scan` passes the rows of one. Returns the number
/// of rows.
///
/// The first table is written into the folder itself, the others into folders in it, named after the table and the
/// save. The first comes last, so until then the folder has the previous model.
pub fn save_model(
    folder: &Path,
    (shape, notes): (&[(&str, String)], &Notes<'_>),
    schemas: &[Schema],
    mut scan: impl FnMut(TableIndex, RowPages<'_>) -> Result<(), BackendError>,
) -> Result<u64, Failure> {
    let [first, others @ ..] = schemas else { return Ok(0) };
    saves::keep_previous(folder)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let save = since.as_nanos().to_string();
    let mut write = |mut writer: CheckpointWriter, table| -> Result<u64, Failure> {
        scan(table, &mut |keys, rows| writer.add(keys, rows))?;
        Ok(writer.finish()?)
    };
    let mut rows = 0;
    for (table, schema) in (1..).zip(others) {
        let mut writer = CheckpointWriter::create(&folder_of_save(folder, schema, &save), schema)?;
        writer.note("save", &save);
        rows += write(writer, table)?;
    }
    let mut writer = CheckpointWriter::create(folder, first)?;
    shape.iter().for_each(|(name, value)| writer.note(name, value));
    if !others.is_empty() {
        writer.note("save", &save);
    }
    notes.write(&mut writer);
    rows += write(writer, 0)?;
    others.iter().for_each(|schema| remove_others(folder, schema, &save));
    Ok(rows)
}

/// Removes the folders of a table from other saves. If that fails, it only costs space.
fn remove_others(folder: &Path, schema: &Schema, save: &str) {
    let (ours, prefix) = (folder_of_save(folder, schema, save), format!("{}-", schema.name));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_other = entry.file_name().to_string_lossy().starts_with(&prefix) && path != ours;
        if is_other && is_left_table(&path) {
            let _ = remove_model(&path);
        }
    }
}
