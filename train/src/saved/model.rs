//! Reads a saved model, to score with it.

use super::error::SavedModelError;
use super::folder::table_folder;
use super::kinds::{build, schemas_of};
use super::learned::LearnedFeature;
use super::lr::{must_be_lr, weights};
use super::notes::NAMES;
use super::reading::{DataReading, reading};
use super::shape::Shape;
use crate::backend::error::BackendError;
use crate::backend::tables::{SavedTables, TableIndex, WeightTables};
use crate::backend::weights::Weights;
use crate::learn::evaluate::{or_nothing, predict};
use crate::learn::report::TrainError;
use crate::models::{Explained, Linear, Measured, Model, ModelSettings, Objective, explain, outputs};
use crate::onnx::{OnnxError, OnnxSource, onnx};
use crate::read::block::INTERCEPT_KEY;
use crate::read::data::{Data, Format};
use crate::read::error::BadLines;
use crate::read::feature_names::FeatureNames;
use crate::read::formats::columns::Columns;
use gannet_core::{Checkpoint, Init, Schema};
use std::path::{Path, PathBuf};

const PREDICT: &str = "predict reads models that `gannet train --out` wrote, of all --model but lda";

/// A saved model. Threads may share it.
pub struct SavedModel {
    pub(super) folder: PathBuf,
    pub(super) shape: Shape,
    pub(super) settings: ModelSettings,
    pub(super) weights: SavedWeights,
    /// The names of features, as lines.
    pub(super) names: Option<String>,
    /// How the model's data was read.
    pub reading: DataReading,
    /// The rows of its features.
    pub rows: u64,
    /// Names the content of its folder.
    pub digest: u64,
}

/// The weights of a model.
pub(super) enum SavedWeights {
    /// Of a logistic regression, by key; and the schema of its table.
    Clicks(Weights, Schema),
    /// Of the tables of another model.
    Tables(SavedTables),
}

impl WeightTables for &SavedWeights {
    fn schema(&self, table: TableIndex) -> &Schema {
        match self {
            SavedWeights::Clicks(_, schema) => schema,
            SavedWeights::Tables(tables) => tables.schema(table),
        }
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        match self {
            SavedWeights::Tables(tables) => tables.read(table, keys, out),
            SavedWeights::Clicks(weights, _) => {
                out.clear();
                out.extend(keys.iter().map(|&key| weights.get(key)));
            }
        }
        Ok(())
    }
}

impl SavedModel {
    /// The structure of the model.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The kind of its outputs.
    pub fn task(&self) -> Objective {
        self.model().task()
    }

    /// The model, without its rows. A logistic regression is a linear model of clicks.
    fn model(&self) -> Box<dyn Model> {
        build(&self.shape, self.settings)
            .unwrap_or_else(|| Box::new(Linear::new(self.settings).with_objective(Objective::Click)))
    }

    /// Makes `data` be read as the model's data was. A column of labels that the data names stays.
    ///
    /// # Errors
    /// As for [`DataReading::read_as`].
    pub fn read_as(&self, data: &mut Data) -> Result<(), SavedModelError> {
        self.reading.read_as(data, &self.folder)?;
        let task = self.task();
        if !task.is_of_two() {
            data.labels = task.labels();
        }
        Ok(())
    }

    /// Scores every example of data that is read as the model's own. As [`outputs`](fn@outputs).
    ///
    /// # Errors
    /// The data cannot be read or is not of the model's shape, or `out` fails.
    pub fn outputs<E: From<TrainError>>(
        &self,
        data: &Data,
        out: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(u64, Option<Measured>, BadLines), E> {
        match &self.weights {
            SavedWeights::Clicks(weights, _) => {
                let scored = predict(data, weights, out)?;
                let measured = scored.quality.map(|quality| Measured::Click(Box::new(quality)));
                Ok((scored.examples, measured, scored.bad_lines))
            }
            SavedWeights::Tables(_) => outputs(data, &mut *self.model(), &mut &self.weights, out),
        }
    }

    /// The quality of the model on such data. `None`: no example has a label.
    ///
    /// # Errors
    /// As for [`outputs`](Self::outputs).
    pub fn measure(&self, data: &Data) -> Result<Option<Measured>, TrainError> {
        let scored = self.outputs(data, |_| Ok::<_, TrainError>(()));
        or_nothing(scored.map(|(_, measured, _)| measured))
    }

    /// Explains every example of such data in order.
    ///
    /// # Errors
    /// As for [`outputs`](Self::outputs).
    pub fn explain<E: From<TrainError>>(
        &self,
        data: &Data,
        out: impl FnMut(Explained<'_>) -> Result<(), E>,
    ) -> Result<BadLines, E> {
        explain(data, &mut *self.model(), &mut &self.weights, out)
    }

    /// What its features have learned, those first that can matter most. Of a logistic regression only the weights that
    /// are not 0.
    pub fn learned(&self) -> Vec<LearnedFeature> {
        let classes = matches!(self.task(), Objective::Class(_));
        let mut all: Vec<LearnedFeature> = match &self.weights {
            SavedWeights::Clicks(weights, _) => {
                weights.iter().map(|(key, weight)| LearnedFeature::of(key, &[weight], false)).collect()
            }
            SavedWeights::Tables(tables) => {
                tables.rows(0).map(|(key, weights)| LearnedFeature::of(key, weights, classes)).collect()
            }
        };
        all.sort_by(|a, b| b.size().total_cmp(&a.size()).then(a.key.cmp(&b.key)));
        all
    }
}

impl SavedModel {
    /// The model as a file of ONNX: [`onnx`](fn@onnx) says its inputs and outputs.
    ///
    /// # Errors
    /// The model is too large for the format.
    pub fn onnx(&self) -> Result<Vec<u8>, OnnxError> {
        let (model, reading) = (self.model(), &self.reading);
        let (mut keys, mut weights) = (Vec::new(), Vec::new());
        match &self.weights {
            SavedWeights::Clicks(all, _) => (keys, weights) = all.iter().unzip(),
            SavedWeights::Tables(tables) => tables.rows(0).for_each(|(key, row)| {
                keys.push(key);
                weights.extend_from_slice(row);
            }),
        }
        let mut layers = Vec::new();
        if let SavedWeights::Tables(tables) = &self.weights {
            for (number, (schema, units)) in (1..).zip(model.dense()) {
                let mut weights = Vec::new();
                tables.read(number, &(0..units).collect::<Vec<_>>(), &mut weights);
                layers.push(weights.chunks_exact(schema.weights()).map(<[f32]>::to_vec).collect());
            }
        }
        let mut notes = vec![("format".to_owned(), reading.format_name().to_owned())];
        if let Some(columns) = &reading.columns {
            let Columns { categorical, numeric, both, .. } = columns;
            let lists = [("categorical", categorical), ("numeric", numeric), ("both", both)];
            notes.extend(lists.map(|(name, of)| (name.to_owned(), of.join("\n"))));
        }
        onnx(&OnnxSource {
            kind: &self.shape.model,
            task: model.task(),
            keys,
            weights,
            width: model.sparse().weights(),
            layers,
            fields: reading.fields.as_deref(),
            normalization: reading.normalize.known(),
            offset: matches!(reading.format, Format::Vw | Format::VwJson)
                || reading.columns.as_ref().is_some_and(|columns| columns.offset.is_some()),
            notes,
        })
    }

    /// The names of features that the model keeps (`--keep-names`). `None`: it keeps none.
    ///
    /// # Errors
    /// The note is damaged.
    pub fn names(&self) -> Result<Option<FeatureNames<'static>>, SavedModelError> {
        let Some(lines) = &self.names else { return Ok(None) };
        let damaged = || SavedModelError::Unfit {
            folder: self.folder.display().to_string(),
            what: "the names of its features are damaged".to_owned(),
        };
        FeatureNames::of_lines(lines).map(Some).ok_or_else(damaged)
    }
}

/// The intercept among the features of a model, for values as the data has them. `None`: the model has none.
pub fn intercept_of(learned: &[LearnedFeature], reading: &DataReading) -> Option<f32> {
    let at = learned.iter().position(|feature| feature.key == INTERCEPT_KEY)?;
    let (keys, mut weights): (Vec<u64>, Vec<f32>) = learned.iter().map(|of| (of.key, of.weight)).unzip();
    if let Some(known) = reading.normalization_of_data() {
        known.measured_as_given(&keys, &mut weights);
    }
    Some(weights[at])
}

/// The settings of a model, as far as scores need them, by the schema of its first table.
pub(super) fn settings_of(schema: &Schema) -> ModelSettings {
    let deviation = match schema.more.first().map(|segment| segment.init) {
        Some(Init::Normal { deviation, .. }) => deviation,
        _ => 0.0,
    };
    let (rule, row_type) = (schema.rule.f32_rule(), schema.row_type());
    let (shaping, admission, seed) = (schema.shaping, schema.admission, schema.seed);
    ModelSettings { rule, row_type, shaping, admission, seed, deviation, l2: 0.0 }
}

/// The model of the tables in a folder, by the notes of the first one. `None`: it is of another kind.
fn model_of(first: &Checkpoint) -> Option<Box<dyn Model>> {
    build(&Shape::of(first), settings_of(first.schema()))
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
    let weights = match model_of(&first) {
        Some(model) => SavedWeights::Tables(tables(folder, &*model, (&first, &others))?),
        None => {
            must_be_lr(&first, folder, PREDICT)?;
            let settings = settings_of(first.schema());
            SavedWeights::Clicks(weights(&first)?, Linear::new(settings).sparse())
        }
    };
    let (shape, settings, rows) = (Shape::of(&first), settings_of(first.schema()), first.rows());
    let (reading, names) = (reading(&first, folder)?, first.note(NAMES).map(str::to_owned));
    let digest = first.digest();
    Ok(SavedModel { folder: folder.to_owned(), shape, settings, weights, names, reading, rows, digest })
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
