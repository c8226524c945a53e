//! The labels of a model, and its default learning rate.

use crate::failure::Failure;
use crate::flags::{InputArgs, ModelArgs, ModelName};
use crate::model::optimizer::spelt;
use gannet::train::Labels;
use gannet::train::models::Objective;

/// The kind of a model's labels. Where they are 1 and 0 it is `of_two`.
pub fn labels(args: &ModelArgs, input: &InputArgs, of_two: Labels) -> Result<Labels, Failure> {
    let labels = match args.objective() {
        Some(objective) if objective.is_of_two() => return Ok(of_two),
        objective => objective.map_or(Labels::Numbers, Objective::labels),
    };
    match &input.positive {
        None => Ok(labels),
        Some(_) => Err(Failure::input(format!(
            "--positive: for models of two classes (lr; fm, ffm and deepfm with --loss logistic or hinge); the labels \
             of --model {} are numbers here",
            spelt(&args.model)
        ))),
    }
}

/// The default learning rate of AdaGrad for a model.
pub fn rate(model: ModelName) -> f32 {
    match model {
        ModelName::Linear => 0.5,
        ModelName::Ffm => 0.1,
        _ => 0.05,
    }
}
