//! Saved models of several tables. The folder itself has the table of the feature keys. Each other table has a folder
//! in it, named after the table and the save. The first table is written last, so until then the folder has the
//! previous model.

use crate::failure::Failure;
use crate::model::folder::write;
use crate::model::kinds::build;
use crate::model::notes::Notes;
use crate::model::reading::{DataReading, reading};
use crate::model::saves::keep_previous;
use crate::model::shape::{Shape, layer, layer_of_save};
use crate::model::warm_start;
use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointWriter, is_left_table, remove_model};
use gannet::table::Init;
use gannet::train::models::{Model, ModelSettings};
use gannet::train::{SavedTables, Tables};
use std::path::Path;
use std::time::SystemTime;

/// Writes the tables. Returns the number of rows.
pub fn save_tables<T: Tables>(
    folder: &Path,
    shape: &Shape,
    model: &dyn Model,
    tables: &mut T,
    notes: &Notes<'_>,
) -> Result<u64, Failure> {
    keep_previous(folder)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let save = since.as_nanos().to_string();
    let mut rows = 0;
    for (table, (schema, _)) in (1..).zip(model.dense()) {
        let mut writer = CheckpointWriter::create(&layer_of_save(folder, &schema, &save), &schema)?;
        writer.note("save", &save);
        rows += write(writer, |page| tables.scan(table, page))?;
    }
    let schema = model.sparse();
    let mut writer = CheckpointWriter::create(folder, &schema)?;
    let hidden: Vec<String> = shape.hidden.iter().map(usize::to_string).collect();
    writer.note("model", &shape.model);
    writer.note("classes", &shape.classes.to_string());
    writer.note("factors", &shape.factors.to_string());
    writer.note("hidden", &hidden.join(","));
    writer.note("save", &save);
    writer.note("generation", &shape.generation.to_string());
    notes.write(&mut writer);
    rows += write(writer, |page| tables.scan(0, page))?;
    for (layer, _) in model.dense() {
        remove_others(folder, &layer, &save);
    }
    Ok(rows)
}

/// Removes the folders of a table from other saves. If that fails, it only costs space.
fn remove_others(folder: &Path, schema: &Schema, save: &str) {
    let (ours, prefix) = (layer_of_save(folder, schema, save), format!("{}-", schema.name));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_other = entry.file_name().to_string_lossy().starts_with(&prefix) && path != ours;
        if is_other && is_left_table(&path) {
            let _ = remove_model(&path);
        }
    }
}

/// A saved model.
pub struct SavedTablesModel {
    pub model: Box<dyn Model>,
    pub tables: SavedTables,
    pub reading: DataReading,
}

/// The model of the tables in a folder, by the notes of the first one. `None`: it is another kind of model.
fn model_of(checkpoint: &Checkpoint) -> (Shape, Option<Box<dyn Model>>) {
    let number = |name: &str| checkpoint.note(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let hidden = checkpoint.note("hidden").unwrap_or_default();
    let shape = Shape {
        model: checkpoint.note("model").unwrap_or_default().to_owned(),
        classes: number("classes"),
        factors: number("factors"),
        hidden: hidden.split(',').filter_map(|units| units.parse().ok()).collect(),
        generation: warm_start::generation(checkpoint),
    };
    let schema = checkpoint.schema();
    let deviation = match schema.more.first().map(|segment| segment.init) {
        Some(Init::Normal { deviation, .. }) => deviation,
        _ => 0.0,
    };
    let (rule, row_type) = (schema.rule.f32_rule(), schema.row_type());
    let (shaping, admission, seed) = (schema.shaping, schema.admission, schema.seed);
    let settings = ModelSettings { rule, row_type, shaping, admission, seed, deviation, l2: 0.0 };
    let model = build(&shape, settings);
    (shape, model)
}

/// Reads a model, of one save. `None` when the folder has another kind of model.
pub fn load_tables(folder: &Path) -> Result<Option<SavedTablesModel>, Failure> {
    let layers = |first: &Checkpoint| {
        let model = model_of(first).1.filter(|model| *first.schema() == model.sparse());
        let dense = model.map(|model| model.dense()).unwrap_or_default();
        dense.iter().map(|(schema, _)| layer(folder, first, schema)).collect()
    };
    let (checkpoint, others) = Checkpoint::open_tables(folder, layers)?;
    let (shape, model) = model_of(&checkpoint);
    let Some(model) = model else { return Ok(None) };
    let unfit = |what: String| {
        Failure::input(format!("{}: {what}; the model cannot be used, take another", folder.display()))
    };
    let schema = checkpoint.schema();
    if *schema != model.sparse() {
        return Err(unfit(format!("its notes say {} and its table is another", shape.model)));
    }
    let mut tables = SavedTables::default();
    let table = tables.add(schema);
    checkpoint.read(|keys, rows| tables.put(table, keys, rows))?;
    for ((schema, _), layer) in model.dense().into_iter().zip(others) {
        if *layer.schema() != schema || layer.note("save") != checkpoint.note("save") {
            return Err(unfit(format!("table {} is of another save", schema.name)));
        }
        let table = tables.add(&schema);
        layer.read(|keys, rows| tables.put(table, keys, rows))?;
    }
    let reading = reading(&checkpoint, folder)?;
    Ok(Some(SavedTablesModel { model, tables, reading }))
}
