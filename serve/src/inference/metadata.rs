//! What the protocol says about a model: its inputs and outputs.

use super::examples::{LINE, columns_of};
use crate::models::ServedModel;
use gannet::train::models::Objective;
use serde::Serialize;

/// A tensor that a model takes or gives. A dimension of -1 is any number.
#[derive(Debug, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: String,
    /// Its type.
    pub datatype: &'static str,
    /// Its shape.
    pub shape: Vec<i64>,
}

/// A model.
#[derive(Debug, Serialize)]
pub struct ModelMetadata {
    /// Its name.
    pub name: String,
    /// Its versions: the one that is served.
    pub versions: Vec<String>,
    /// What made it.
    pub platform: String,
    /// What it takes.
    pub inputs: Vec<TensorMetadata>,
    /// What it gives.
    pub outputs: Vec<TensorMetadata>,
}

fn tensor(name: &str, datatype: &'static str, shape: &[i64]) -> TensorMetadata {
    TensorMetadata { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

/// What a model takes and gives.
pub fn metadata(name: &str, model: &ServedModel) -> ModelMetadata {
    let reading = &model.saved.reading;
    let inputs = match reading.columns.as_ref().filter(|_| reading.format.has_columns()) {
        None => vec![tensor(LINE, "BYTES", &[-1])],
        Some(columns) => {
            let datatype = |name: &String| match columns.categorical.contains(name) {
                true => "BYTES",
                false => "FP64",
            };
            columns_of(columns).map(|name| tensor(name, datatype(name), &[-1])).collect()
        }
    };
    ModelMetadata {
        name: name.to_owned(),
        versions: vec![model.version.clone()],
        platform: format!("gannet_{}", model.saved.shape().model),
        inputs,
        outputs: outputs(model.saved.task()),
    }
}

/// What a model of this kind gives.
pub fn outputs(task: Objective) -> Vec<TensorMetadata> {
    match task {
        Objective::Click => vec![tensor("probability", "FP32", &[-1])],
        Objective::Separation => vec![tensor("margin", "FP32", &[-1])],
        Objective::Number(_) => vec![tensor("prediction", "FP32", &[-1])],
        Objective::Class(classes) => {
            let classes = classes as i64;
            vec![tensor("class", "INT64", &[-1]), tensor("probabilities", "FP32", &[-1, classes])]
        }
    }
}
