//! Scoring: a test set against the rows of a backend, and any file against the weights of a saved model.

use crate::backend::Backend;
use crate::backend::weights::Weights;
use crate::batch::{Batch, Batcher};
use crate::learn::metrics::{Metrics, Quality};
use crate::learn::report::TrainError;
use crate::read::block::Block;
use crate::read::data::{Data, Share};
use crate::read::error::{BadLines, ReadError};
use crate::read::formats::columns::Columns;
use crate::read::reader::Reader;

/// Scores every labelled example of `data` with the current weights of the backend, pulled in batches. It learns
/// nothing. `None` when no example has a label.
///
/// # Errors
/// The data cannot be read, or the weights cannot be pulled.
pub fn evaluate<B: Backend>(data: &Data, backend: &mut B) -> Result<Option<Quality>, TrainError> {
    or_nothing(measure(data, backend))
}

/// The quality of a test, or none where its data has no example. That ends no training, and a warning says it.
pub(crate) fn or_nothing<Q>(tested: Result<Option<Q>, TrainError>) -> Result<Option<Q>, TrainError> {
    match tested {
        Err(TrainError::Read(error @ ReadError::NoExample { .. })) => {
            tracing::warn!("nothing to test on: {error}");
            Ok(None)
        }
        tested => tested,
    }
}

fn measure<B: Backend>(data: &Data, backend: &mut B) -> Result<Option<Quality>, TrainError> {
    let mut reader = Reader::open(data, data.score_batch(), Share::ALL)?;
    let mut batcher = Batcher::new(backend.schema().shards, 0);
    let (mut batch, mut weights, mut metrics) = (Batch::default(), Vec::new(), Metrics::exact());
    while reader.next(&mut batch.block)? {
        batcher.complete(&mut batch);
        weights.clear();
        weights.resize(batch.keys.len(), 0.0);
        backend.weights(&batch.keys, &mut weights)?;
        for i in 0..batch.block.len() {
            let range = batch.block.range(i);
            let features = batch.local[range.clone()].iter().zip(&batch.block.values[range]);
            let sum: f32 = features.map(|(&at, value)| weights[at as usize] * value).sum();
            let margin = sum + batch.block.base(i);
            metrics.add_scored(&batch.block, i, margin);
        }
    }
    Ok(metrics.quality())
}

/// The result of a prediction.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// Examples scored.
    pub examples: u64,
    /// Measured against the labels. `None` when there are none.
    pub quality: Option<Quality>,
    /// The columns, of a CSV file.
    pub columns: Option<Columns>,
    /// Bad lines skipped: they have no prediction.
    pub bad_lines: BadLines,
}

/// Scores every example of `data` with a model's weights. It calls `out` with the margins in the file's order, a slice
/// at a time: [`sigmoid`](crate::sigmoid) makes probabilities of label 1 of them. An error of `out` ends the
/// prediction.
///
/// # Errors
/// The data cannot be read, or `out` fails.
pub fn predict<E: From<TrainError>>(
    data: &Data,
    weights: &Weights,
    mut out: impl FnMut(&[f32]) -> Result<(), E>,
) -> Result<Predicted, E> {
    let mut reader = Reader::open(data, data.score_batch(), Share::ALL).map_err(TrainError::from)?;
    let (mut block, mut margins, mut metrics, mut examples) =
        (Block::default(), Vec::new(), Metrics::exact(), 0);
    while reader.next(&mut block).map_err(TrainError::from)? {
        margins.clear();
        for i in 0..block.len() {
            let range = block.range(i);
            let features = block.keys[range.clone()].iter().zip(&block.values[range]);
            let sum: f32 = features.map(|(&key, value)| weights.get(key) * value).sum();
            let margin = sum + block.base(i);
            metrics.add_scored(&block, i, margin);
            margins.push(margin);
        }
        examples += margins.len() as u64;
        out(&margins)?;
    }
    let columns = reader.columns().cloned();
    Ok(Predicted { examples, quality: metrics.quality(), columns, bad_lines: reader.bad_lines().clone() })
}
