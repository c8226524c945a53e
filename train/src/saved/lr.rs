//! The weights of a saved logistic regression.

use super::error::SavedModelError;
use super::row_state::segment_weights;
use crate::backend::weights::Weights;
use gannet_core::Checkpoint;
use gannet_optim::Rule;
use std::path::Path;

/// The weight in a stored row of one.
pub fn weight_of(rule: &Rule, row: &[f32]) -> f32 {
    let mut weight = [0.0];
    segment_weights(rule, row, &mut weight);
    weight[0]
}

/// Checks that a model is one of logistic regression. `readable` is the end of the error: which models the caller can
/// read.
///
/// # Errors
/// It is another one.
pub fn must_be_lr(
    checkpoint: &Checkpoint,
    folder: &Path,
    readable: &'static str,
) -> Result<(), SavedModelError> {
    let (model, schema) = (checkpoint.note("model"), checkpoint.schema());
    if model == Some("lr") && schema.weights() == 1 {
        return Ok(());
    }
    Err(SavedModelError::OtherKind {
        folder: folder.display().to_string(),
        kind: model.unwrap_or("no model").to_owned(),
        dim: schema.dim,
        readable,
    })
}

/// The weights of a saved model of logistic regression.
///
/// # Errors
/// A file is damaged.
pub(super) fn weights(checkpoint: &Checkpoint) -> Result<Weights, SavedModelError> {
    let (schema, mut weights) = (checkpoint.schema(), Weights::default());
    checkpoint.read(|keys, rows| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            weights.insert(key, weight_of(&schema.rule, row));
        }
    })?;
    Ok(weights)
}
