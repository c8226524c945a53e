//! The models of tables by their names.

use super::shape::Shape;
use crate::models::{
    DeepFm, Factorization, FactorizationMachine, FieldAwareMachine, Linear, Model, ModelSettings, NumberLoss,
    Objective, Softmax,
};
use gannet_core::Schema;

/// A model of this shape. `None` when no such model has the name.
pub fn build(shape: &Shape, settings: ModelSettings) -> Option<Box<dyn Model>> {
    let Shape { model, classes, factors, hidden, .. } = shape;
    let fields = shape.places();
    let task = |own: Objective| shape.loss.map_or(own, |loss| loss.0);
    let click = task(Objective::Click);
    Some(match model.as_str() {
        "linear" => {
            let task = task(Objective::Number(NumberLoss::Squared));
            Box::new(Linear::new(settings).with_objective(task))
        }
        "softmax" => Box::new(Softmax::new(settings, *classes)),
        "fm" => Box::new(FactorizationMachine::new(settings, *factors).with_objective(click)),
        "ffm" => Box::new(FieldAwareMachine::new(settings, fields, *factors).with_objective(click)),
        "deepfm" => Box::new(DeepFm::new(settings, fields, *factors, hidden).with_objective(click)),
        "mf" => Box::new(Factorization::new(settings, *factors)),
        _ => return None,
    })
}

/// The schemas of all tables of a model.
pub fn schemas_of(model: &dyn Model) -> Vec<Schema> {
    std::iter::once(model.sparse()).chain(model.dense().into_iter().map(|(schema, _)| schema)).collect()
}
