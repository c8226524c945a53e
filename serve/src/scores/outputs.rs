//! The predictions of a model: the floats that `gannet predict` prints.

use super::deadline::Deadline;
use crate::error::RequestError;
use crate::models::ServedModel;
use gannet::train::Data;
use gannet::train::models::{Forecast, Objective};
use std::fmt::Write;

/// The most bytes of a number in an answer.
const OUTPUT_BYTES: usize = 16;

/// The predictions for some examples.
pub struct Scores {
    /// What a model predicts.
    pub task: Objective,
    /// The prediction for each example.
    pub forecasts: Vec<Forecast>,
    /// The same as floats, those of one example after another: [`Objective::outputs`] of each.
    pub outputs: Vec<f32>,
}

impl Scores {
    /// The text that `gannet predict` prints: a line for each example.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for forecast in &self.forecasts {
            let _ = writeln!(text, "{forecast}");
        }
        text
    }
}

/// Scores the examples of a request.
///
/// # Errors
/// An example is wrong, the answer has more bytes than `most`, or the time is over.
pub fn score(
    model: &ServedModel,
    data: &Data,
    (most, deadline): (usize, Deadline),
) -> Result<Scores, RequestError> {
    let task = model.saved.task();
    let mut scores = Scores { task, forecasts: Vec::new(), outputs: Vec::new() };
    model.saved.outputs(data, |of_some| {
        let from = scores.outputs.len();
        scores.outputs.extend_from_slice(of_some);
        let each = scores.outputs[from..].chunks_mut(task.outputs());
        scores.forecasts.extend(each.map(|outputs| Forecast::of(task, outputs)));
        if scores.outputs.len() > most / OUTPUT_BYTES {
            return Err(RequestError::Bad(format!(
                "the answer has more than {} predictions: ask for fewer examples at once",
                most / OUTPUT_BYTES
            )));
        }
        deadline.check()
    })?;
    Ok(scores)
}
