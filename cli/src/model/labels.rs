//! The labels of a model, and its default learning rate.

use crate::failure::Failure;
use crate::flags::{InputArgs, ModelArgs, ModelName};
use gannet::train::Labels;

/// The kind of a model's labels. For click models it is `clicks`.
pub fn labels(args: &ModelArgs, input: &InputArgs, clicks: Labels) -> Result<Labels, Failure> {
    let labels = match args.model {
        ModelName::Lr | ModelName::Fm | ModelName::Deepfm => return Ok(clicks),
        ModelName::Linear | ModelName::Mf | ModelName::Lda => Labels::Numbers,
        ModelName::Softmax => Labels::Classes(args.classes.unwrap_or(CLASSES)),
    };
    let name = format!("{:?}", args.model).to_lowercase();
    match &input.positive {
        None => Ok(labels),
        Some(_) => Err(Failure::input(format!(
            "--positive: for models of two classes (lr, fm, deepfm); the labels of --model {name} are numbers"
        ))),
    }
}

/// The default of `--classes`.
pub const CLASSES: u32 = 10;

/// The default learning rate of AdaGrad for a model.
pub fn rate(model: ModelName) -> f32 {
    match model {
        ModelName::Linear => 0.5,
        _ => 0.05,
    }
}
