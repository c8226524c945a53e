//! Reads a saved model, to score with it.

use super::error::SavedModelError;
use super::folder::table_folder;
use super::kinds::{build, schemas_of};
use super::lr::{must_be_lr, weights};
use super::reading::{DataReading, reading};
use super::shape::Shape;
use crate::backend::tables::SavedTables;
use crate::backend::weights::Weights;
use crate::learn::evaluate::predict;
use crate::learn::report::TrainError;
use crate::models::{Linear, Measured, Model, ModelSettings, Objective, score};
use crate::read::data::Data;
use gannet_core::{Admission, Checkpoint, Init, RowType};
use gannet_optim::{GradientTransform, Rule, Sgd};
use std::path::Path;

const PREDICT: &str = "predict reads models that `gannet train --out` wrote, of all --model but lda";

/// A saved model.
pub struct SavedModel {
    /// Its weights.
    pub scorer: Scorer,
    /// How the model's data was read.
    pub reading: DataReading,
    /// Its kind, as `--model` names it.
    pub kind: String,
    /// The rows of its features.
    pub rows: u64,
}

/// What scores examples.
pub enum Scorer {
    /// A logistic regression: weights by key.
    Clicks(Weights),
    /// Another model, and its tables.
    Tables(Box<dyn Model>, SavedTables),
}

impl Scorer {
    /// The model with its tables. A logistic regression is a linear model of clicks.
    pub fn into_tables(self) -> (Box<dyn Model>, SavedTables) {
        let weights = match self {
            Scorer::Tables(model, tables) => return (model, tables),
            Scorer::Clicks(weights) => weights,
        };
        let (rule, shaping) = (Rule::Sgd(Sgd { lr: 0.0 }), GradientTransform::NONE);
        let (row_type, admission) = (RowType::F32, Admission::All);
        let settings = ModelSettings { rule, row_type, shaping, admission, seed: 0, deviation: 0.0, l2: 0.0 };
        let model = Linear::new(settings).with_objective(Objective::Click);
        let mut tables = SavedTables::default();
        let table = tables.add(&model.sparse());
        let (keys, rows): (Vec<u64>, Vec<f32>) = weights.iter().unzip();
        tables.put(table, &keys, &rows);
        (Box::new(model), tables)
    }
}

/// The model of the tables in a folder, by the notes of the first one. `None`: it is of another kind.
fn model_of(first: &Checkpoint) -> Option<Box<dyn Model>> {
    let schema = first.schema();
    let deviation = match schema.more.first().map(|segment| segment.init) {
        Some(Init::Normal { deviation, .. }) => deviation,
        _ => 0.0,
    };
    let (rule, row_type) = (schema.rule.f32_rule(), schema.row_type());
    let (shaping, admission, seed) = (schema.shaping, schema.admission, schema.seed);
    let settings = ModelSettings { rule, row_type, shaping, admission, seed, deviation, l2: 0.0 };
    build(&Shape::of(first), settings)
}

/// Reads a model, of one save.
///
/// # Errors
/// The folder has no model, one that cannot score examples, or tables of several saves.
pub fn load_model(folder: &Path) -> Result<SavedModel, SavedModelError> {
    let others = |first: &Checkpoint| {
        let model = model_of(first).filter(|model| *first.schema() == model.sparse());
        let schemas = model.map(|model| schemas_of(&*model)).unwrap_or_default();
        schemas.iter().skip(1).map(|schema| table_folder(folder, first, schema)).collect()
    };
    let (first, others) = Checkpoint::open_tables(folder, others)?;
    let scorer = match model_of(&first) {
        Some(model) => {
            let tables = tables(folder, &*model, (&first, &others))?;
            Scorer::Tables(model, tables)
        }
        None => {
            must_be_lr(&first, folder, PREDICT)?;
            Scorer::Clicks(weights(&first)?)
        }
    };
    let kind = Shape::of(&first).model;
    Ok(SavedModel { scorer, reading: reading(&first, folder)?, kind, rows: first.rows() })
}

impl SavedModel {
    /// The quality of the model on data that is read as its own. `None`: no example has a label.
    ///
    /// # Errors
    /// The data cannot be read.
    pub fn measure(self, data: &Data) -> Result<Option<Measured>, TrainError> {
        match self.scorer {
            Scorer::Clicks(weights) => {
                let scored = predict(data, &weights, |_| Ok::<_, TrainError>(()))?;
                Ok(scored.quality.map(|quality| Measured::Click(Box::new(quality))))
            }
            Scorer::Tables(mut model, mut tables) => score(data, &mut *model, &mut tables),
        }
    }
}

/// Reads the tables of a model.
fn tables(
    folder: &Path,
    model: &dyn Model,
    (first, others): (&Checkpoint, &[Checkpoint]),
) -> Result<SavedTables, SavedModelError> {
    let unfit = |what: String| SavedModelError::Unfit { folder: folder.display().to_string(), what };
    if *first.schema() != model.sparse() {
        return Err(unfit(format!("its notes say {} and its table is another", model.name())));
    }
    let mut tables = SavedTables::default();
    for (schema, saved) in schemas_of(model).iter().zip(std::iter::once(first).chain(others)) {
        if saved.schema() != schema || saved.note("save") != first.note("save") {
            return Err(unfit(format!("table {} is of another save", schema.name)));
        }
        let table = tables.add(schema);
        saved.read(|keys, rows| tables.put(table, keys, rows))?;
    }
    Ok(tables)
}
