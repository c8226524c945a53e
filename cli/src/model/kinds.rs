//! The models of tables by their names.

use crate::model::shape::Shape;
use gannet::Schema;
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

/// The schemas of all tables of a model.
pub fn schemas_of(model: &dyn Model) -> Vec<Schema> {
    std::iter::once(model.sparse()).chain(model.dense().into_iter().map(|(schema, _)| schema)).collect()
}
