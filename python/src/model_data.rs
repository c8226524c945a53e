//! Data for a saved model: the examples of a data set, read as the model's own data was.

use crate::arrow_source::ArrowSource;
use crate::dataset::{Dataset, unreadable, with_parameters};
use crate::failure::{CallFailure, Kind};
use gannet::storage::CheckpointError;
use gannet::train::saved::{SavedModel, SavedModelError};
use gannet::train::{Data, FieldUse, Format, TableSettings, TrainError};
use pyo3::prelude::*;
use std::sync::Arc;

/// A message of the readers, for whoever gave data to a model: the model names the columns, and no parameter does.
fn in_words(message: &str) -> String {
    const ROLES: [&str; 5] = ["categorical", "numeric", "both", "ignore", "offset"];
    let named =
        |text: String, role| text.replace(&format!("(named by {role}=)"), "(the model was trained on it)");
    ROLES.iter().fold(with_parameters(message), named).replace("; predict reads", "; gannet.load reads")
}

/// Why a model cannot be read, or not for this data.
pub fn unusable(error: &SavedModelError) -> CallFailure {
    let kind = match error {
        SavedModelError::Checkpoint(CheckpointError::Io { .. }) => Kind::Machine,
        _ => Kind::Input,
    };
    CallFailure::new(kind, in_words(&error.to_string()))
}

/// Why data cannot be scored.
pub fn unscored(error: &TrainError) -> CallFailure {
    match error {
        TrainError::Read(error) => {
            let failure = unreadable(error);
            CallFailure::new(failure.kind(), in_words(failure.message()))
        }
        TrainError::Example { .. } => CallFailure::input(error.to_string()),
        error => CallFailure::new(Kind::Machine, error.to_string()),
    }
}

/// Data of a model.
pub struct ModelData {
    /// The examples.
    pub data: Data,
    /// The same, for the names of their features.
    pub named: Data,
}

/// How tables are read: as the model's own data was.
///
/// # Errors
/// The model was trained on data without columns.
pub fn table_settings(saved: &SavedModel, label: Option<String>) -> Result<TableSettings, CallFailure> {
    let reading = &saved.reading;
    if !reading.format.has_columns() {
        return Err(CallFailure::input(format!(
            "data is a table, and the model was trained on {}, which has no columns: give files of {}",
            reading.format_name(),
            reading.format_name()
        )));
    }
    // With a format nothing is looked at.
    let mut data = Data { format: reading.format, ..Data::of(Vec::new()) };
    data.columns.label = label;
    saved.read_as(&mut data).map_err(|error| unusable(&error))?;
    if data.columns.only {
        // No column has this name. Scores need no labels, and frames spell those of files in another way.
        data.columns.label = Some(String::new());
    }
    let (choice, scale, labels) = (data.columns, data.scale, data.labels);
    Ok(TableSettings { choice, scale, labels, unlabelled: true, fields: data.fields })
}

impl ModelData {
    /// The examples of a data set.
    ///
    /// # Errors
    /// The features of the data mean nothing in the model.
    pub fn of(py: Python<'_>, saved: &SavedModel, dataset: &Dataset) -> PyResult<ModelData> {
        let mut data = dataset.data(saved.reading.intercept);
        if let Some(table) = dataset.table() {
            return Ok(ModelData::of_table(py, saved, data, table)?);
        }
        if dataset.is_matrix() {
            if saved.reading.format != Format::Libsvm {
                return Err(CallFailure::input(format!(
                    "data is a matrix, whose columns are ids of features, and the model was trained on {}: give it a \
                     table or files",
                    saved.reading.format_name()
                ))
                .into());
            }
            data.format = Format::Libsvm;
        }
        // A look at files takes time.
        let read = py.detach(|| saved.read_as(&mut data));
        read.map_err(|error| unusable(&error))?;
        Ok(ModelData { named: data.clone(), data })
    }

    fn of_table(
        py: Python<'_>,
        saved: &SavedModel,
        mut data: Data,
        table: &Arc<ArrowSource>,
    ) -> Result<ModelData, CallFailure> {
        let settings = table_settings(saved, table.chosen_label())?;
        data.format = saved.reading.format;
        saved.read_as(&mut data).map_err(|error| unusable(&error))?;
        // The source has the columns.
        data.format = Format::Auto;
        let plain =
            TableSettings { fields: FieldUse { in_blocks: true, ..FieldUse::default() }, ..settings.clone() };
        let named = Data { source: Some(Arc::new(table.with(py, plain))), ..data.clone() };
        data.source = Some(Arc::new(table.with(py, settings)));
        Ok(ModelData { data, named })
    }
}
