//! Predictions for the examples of a request.

mod deadline;
mod explanations;
mod outputs;

pub use deadline::Deadline;
pub use explanations::{explained_lines, explanation};
pub use outputs::{Scores, score};
