//! Scoring with a model: a test set against the tables, and any file against a saved model.

use super::contributions::Contributions;
use super::{BatchRows, Example, Measured, Measures, Model, Objective};
use crate::backend::error::BackendError;
use crate::backend::tables::WeightTables;
use crate::batch::{Batch, Batcher};
use crate::learn::evaluate::or_nothing;
use crate::learn::measures::highest;
use crate::learn::report::TrainError;
use crate::read::data::{Data, Share};
use crate::read::error::BadLines;
use crate::read::reader::Reader;
use std::fmt;

/// The prediction for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Forecast {
    /// The probability of label 1.
    Probability(f32),
    /// A number.
    Number(f32),
    /// A margin, above 0 where label 1 is predicted.
    Margin(f32),
    /// The likeliest class, and its probability.
    Class(usize, f32),
}

/// A scored example, with what its features contribute.
pub struct Explained<'a> {
    /// The keys of its features, those of contributions in the same order.
    pub keys: &'a [u64],
    /// The prediction.
    pub forecast: Forecast,
    /// The output without contributions: the example's base, and the start of the intercept.
    pub base: f32,
    /// The contributions to the output.
    pub contributions: Contributions,
}

/// Explains every example of `data` in order.
///
/// # Errors
/// As for [`outputs`].
///
/// # Panics
/// As [`outputs`].
pub fn explain<T: WeightTables, E: From<TrainError>>(
    data: &Data,
    model: &mut dyn Model,
    tables: &mut T,
    mut out: impl FnMut(Explained<'_>) -> Result<(), E>,
) -> Result<BadLines, E> {
    let read = TrainError::from;
    let task = model.task();
    let mut reader = Reader::open(data, data.score_batch(), Share::ALL).map_err(read)?;
    let mut batcher = Batcher::new(model.sparse().shards, 0);
    let (mut batch, mut rows) = (Batch::default(), rows_to_score(model, tables).map_err(TrainError::from)?);
    let mut examples = 0;
    while reader.next(&mut batch.block).map_err(read)? {
        batcher.complete(&mut batch);
        rows[0].pull(tables, &batch.keys).map_err(TrainError::from)?;
        check(model, &batch, &mut examples)?;
        let mut forecasts = Vec::new();
        model.score(&batch, &mut rows, &mut |_, outputs| forecasts.push(Forecast::of(task, outputs)));
        for (i, forecast) in forecasts.into_iter().enumerate() {
            let contributions = model.explain(&batch, i, &mut rows);
            let (keys, base) = (&batch.block.keys[batch.block.range(i)], batch.block.base(i));
            out(Explained { keys, forecast, base, contributions })?;
        }
    }
    Ok(reader.bad_lines().clone())
}

/// Checks the shape of a batch's examples. `examples`: how many were checked before it.
fn check(model: &dyn Model, batch: &Batch, examples: &mut u64) -> Result<(), TrainError> {
    for i in 0..batch.block.len() {
        *examples += 1;
        let checked = model.check(Example::of(batch, i));
        checked.map_err(|what| TrainError::Example { number: *examples, what })?;
    }
    Ok(())
}

/// The rows of a model's tables, with those of all examples pulled.
fn rows_to_score<T: WeightTables>(model: &dyn Model, tables: &mut T) -> Result<Vec<BatchRows>, BackendError> {
    let mut rows = vec![BatchRows::to_score(0, &model.sparse())];
    for (number, (schema, count)) in (1..).zip(model.dense()) {
        let mut layer = BatchRows::to_score(number, &schema);
        layer.pull(tables, &(0..count).collect::<Vec<_>>())?;
        rows.push(layer);
    }
    Ok(rows)
}

impl Forecast {
    /// What the outputs of an example say. They become predictions, as [`Objective::predict`] makes them.
    pub fn of(task: Objective, outputs: &mut [f32]) -> Forecast {
        let class = highest(outputs);
        task.predict(outputs);
        match task {
            Objective::Click => Forecast::Probability(outputs[0]),
            Objective::Separation => Forecast::Margin(outputs[0]),
            Objective::Number(_) => Forecast::Number(outputs[0]),
            Objective::Class(_) => Forecast::Class(class, outputs[class]),
        }
    }
}

impl fmt::Display for Forecast {
    /// Six digits behind the point. A class comes before its probability.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forecast::Probability(x) | Forecast::Number(x) | Forecast::Margin(x) => write!(f, "{x:.6}"),
            Forecast::Class(class, probability) => write!(f, "{class} {probability:.6}"),
        }
    }
}

/// Scores every labelled example of `data` with the current weights of the tables. It learns nothing. `None` when no
/// example has a label.
///
/// # Errors
/// The data cannot be read or is not of the model's shape, or the weights cannot be read.
pub fn score<T: WeightTables>(
    data: &Data,
    model: &mut dyn Model,
    tables: &mut T,
) -> Result<Option<Measured>, TrainError> {
    let scored = outputs(data, model, tables, |_| Ok::<_, TrainError>(()));
    or_nothing(scored.map(|(_, measured, _)| measured))
}

/// Scores every example of `data`. Returns the number of examples, the quality where there are labels, and the bad
/// lines that were skipped. It calls `out` with the outputs of examples in the files' order, those of some examples at
/// a time: [`Objective::outputs`] of each. An error of `out` ends the scoring.
///
/// # Errors
/// As for [`score`], or `out` fails.
///
/// # Panics
/// When the model's tables are not the first of `tables`.
pub fn outputs<T: WeightTables, E: From<TrainError>>(
    data: &Data,
    model: &mut dyn Model,
    tables: &mut T,
    mut out: impl FnMut(&[f32]) -> Result<(), E>,
) -> Result<(u64, Option<Measured>, BadLines), E> {
    let read = TrainError::from;
    let task = model.task();
    let mut reader = Reader::open(data, data.score_batch(), Share::ALL).map_err(read)?;
    let mut batcher = Batcher::new(model.sparse().shards, 0);
    let (mut batch, mut measures) = (Batch::default(), Measures::new(task, true));
    let mut rows = rows_to_score(model, tables).map_err(TrainError::from)?;
    let (mut all, mut examples) = (Vec::new(), 0);
    while reader.next(&mut batch.block).map_err(read)? {
        batcher.complete(&mut batch);
        rows[0].pull(tables, &batch.keys).map_err(TrainError::from)?;
        check(model, &batch, &mut examples)?;
        all.clear();
        model.score(&batch, &mut rows, &mut |i, outputs| {
            measures.add_scored(&batch.block, i, outputs);
            all.extend_from_slice(outputs);
        });
        out(&all)?;
    }
    Ok((examples, measures.measured(), reader.bad_lines().clone()))
}
