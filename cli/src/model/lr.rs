//! Models of logistic regression on disk: a checkpoint of the table.

use crate::failure::Failure;
use crate::model::folder::write;
use crate::model::notes::Notes;
use crate::model::reading::{DataReading, reading};
use crate::model::row_state::segment_weights;
use crate::model::saves;
use crate::model::warm_source::{WarmRows, WarmSource, open_warm_source};
use gannet::storage::{Checkpoint, CheckpointWriter};
use gannet::train::lbfgs::WeightSink;
use gannet::train::{Backend, INTERCEPT_KEY, Weights};
use gannet::{Rule, Schema};
use std::path::Path;

const PREDICT: &str = "predict reads models that `gannet train --out` wrote, of all --model but lda";

const WARM: &str = "--warm-start reads models that `gannet train --model lr --out` wrote";

/// Writes the table as a model. Returns the number of rows.
pub fn save_lr<B: Backend>(folder: &Path, backend: &mut B, notes: &Notes<'_>) -> Result<u64, Failure> {
    let schema = backend.schema().clone();
    saves::keep_previous(folder)?;
    let mut writer = CheckpointWriter::create(folder, &schema)?;
    writer.note("model", "lr");
    notes.write(&mut writer);
    write(writer, |page| backend.scan(page))
}

/// A model, loaded for `predict`.
pub struct SavedModel {
    /// Weights by key.
    pub weights: Weights,
    /// How the model's data was read.
    pub reading: DataReading,
}

/// The weight in a row of one.
fn weight_of(rule: &Rule, row: &[f32]) -> f32 {
    let mut weight = [0.0];
    segment_weights(rule, row, &mut weight);
    weight[0]
}

/// Opens a model of logistic regression. `user_reads` is the end of the error: which models the caller can read.
fn open_lr(folder: &Path, user_reads: &str) -> Result<(Checkpoint, Schema), Failure> {
    let checkpoint = Checkpoint::open_to_read(folder)?;
    let schema = checkpoint.schema().clone();
    if checkpoint.note("model") != Some("lr") || schema.weights() != 1 {
        let what = checkpoint.note("model").unwrap_or("no model");
        return Err(Failure::input(format!(
            "{}: holds {what} of dim {}; {user_reads}",
            folder.display(),
            schema.dim
        )));
    }
    Ok((checkpoint, schema))
}

/// Checks that a training can start from a model, or from a checkpoint of a job.
pub fn check_warm_start(folder: &Path) -> Result<(), Failure> {
    weights_of(folder).map(|_| ())
}

/// The rows of logistic regression in a model or in a checkpoint of a job.
fn weights_of(folder: &Path) -> Result<WarmRows, Failure> {
    let rows = match open_warm_source(folder)? {
        WarmSource::Model(_) => return Ok(WarmRows::Model(Box::new(open_lr(folder, WARM)?.0))),
        WarmSource::Job(job) => job.table(TABLE)?,
    };
    match rows.dims()[..] {
        [1] => Ok(rows),
        _ => Err(Failure::input(format!(
            "--warm-start {}: rows of table {} have {:?} weights, and this training has 1",
            folder.display(),
            rows.schema().name,
            rows.dims()
        ))),
    }
}

/// Passes a model's weights page by page. The intercept's weight is included only with `intercept`.
pub fn warm_start(folder: &Path, intercept: bool, page: &mut WeightSink<'_>) -> Result<(), Failure> {
    let saved = weights_of(folder)?;
    let (schema, mut result) = (saved.schema(), Ok(()));
    let (floats, own) = (schema.floats(), schema.rule.floats(1));
    saved.read(|keys, rows| {
        let weighed = keys.iter().zip(rows.chunks_exact(floats).map(|row| &row[..own]));
        let weighed = weighed.filter(|(key, _)| intercept || **key != INTERCEPT_KEY);
        let (keys, weights): (Vec<u64>, Vec<f32>) =
            weighed.map(|(&key, row)| (key, weight_of(&schema.rule, row))).unzip();
        if result.is_ok() {
            result = page(&keys, &weights);
        }
    })?;
    Ok(result?)
}

/// Reads a model.
pub fn load_lr(folder: &Path) -> Result<SavedModel, Failure> {
    let (checkpoint, schema) = open_lr(folder, PREDICT)?;
    let mut weights = Weights::default();
    checkpoint.read(|keys, rows| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            weights.insert(key, weight_of(&schema.rule, row));
        }
    })?;
    Ok(SavedModel { weights, reading: reading(&checkpoint, folder)? })
}

/// The table of a logistic regression.
pub const TABLE: &str = "lr";
