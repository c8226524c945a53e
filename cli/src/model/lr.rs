//! Models of logistic regression: how one is saved, and how a training starts from one.

use crate::failure::Failure;
use crate::model::folder::save_model;
use crate::model::notes::Notes;
use crate::model::warm_source::{WarmRows, WarmSource, job_table, open_warm_source};
use gannet::train::lbfgs::WeightSink;
use gannet::train::saved::{Shape, must_be_lr, weight_of};
use gannet::train::{Backend, INTERCEPT_KEY};
use std::path::Path;

/// The table of a logistic regression.
pub const TABLE: &str = "lr";

const WARM: &str = "--warm-start reads models that `gannet train --model lr --out` wrote";

/// Saves the table as a model. Returns the number of rows.
pub fn save_lr<B: Backend>(folder: &Path, backend: &mut B, notes: &Notes<'_>) -> Result<u64, Failure> {
    let schema = backend.schema().clone();
    save_model(folder, (&Shape::lr().notes(), notes), &[schema], |_, page| backend.scan(page))
}

/// Checks that a training can start from a model, or from a checkpoint of a job.
pub fn check_warm_start(folder: &Path) -> Result<(), Failure> {
    rows_of(folder).map(|_| ())
}

/// The rows of logistic regression in a model or in a checkpoint of a job.
fn rows_of(folder: &Path) -> Result<WarmRows, Failure> {
    let rows = match open_warm_source(folder)? {
        WarmSource::Model(model) => {
            must_be_lr(&model, folder, WARM)?;
            return Ok(WarmRows::Model(model));
        }
        WarmSource::Job(job) => job_table(&job, TABLE)?,
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
    let saved = rows_of(folder)?;
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
