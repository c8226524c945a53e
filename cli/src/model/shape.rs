//! The structure of a model of several tables, and their folders.

use gannet::Schema;
use gannet::storage::Checkpoint;
use std::path::{Path, PathBuf};

/// The structure of a model, without its tables' settings.
pub struct Shape {
    /// The model's name in `--model`.
    pub model: String,
    /// The number of classes of a softmax.
    pub classes: usize,
    /// The number of factors of a feature.
    pub factors: usize,
    /// The number of units of each hidden layer.
    pub hidden: Vec<usize>,
    /// How many trainings came before this one, each from the model of the one before (`--warm-start`).
    pub generation: u64,
}

/// The folder of a table other than the first, in a saved model.
pub fn layer(folder: &Path, checkpoint: &Checkpoint, schema: &Schema) -> PathBuf {
    layer_of_save(folder, schema, checkpoint.note("save").unwrap_or_default())
}

pub fn layer_of_save(folder: &Path, schema: &Schema, save: &str) -> PathBuf {
    folder.join(format!("{}-{save}", schema.name))
}
