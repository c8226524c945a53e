//! The models of tables by their names.

use crate::model::shape::Shape;
use gannet::train::models::{
    DeepFm, Factorization, FactorizationMachine, Linear, Model, ModelSettings, Softmax,
};

/// A model of this shape. `None` when no such model has the name.
pub fn build(shape: &Shape, settings: ModelSettings) -> Option<Box<dyn Model>> {
    let Shape { model, classes, factors, hidden, .. } = shape;
    Some(match model.as_str() {
        "linear" => Box::new(Linear::new(settings)),
        "softmax" => Box::new(Softmax::new(settings, *classes)),
        "fm" => Box::new(FactorizationMachine::new(settings, *factors)),
        "deepfm" => Box::new(DeepFm::new(settings, *factors, hidden)),
        "mf" => Box::new(Factorization::new(settings, *factors)),
        _ => return None,
    })
}
