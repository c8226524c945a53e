//! Training: models and optimizers, in one process and with servers and workers.

mod admission;
mod cached_data;
mod column_types;
mod crosses;
mod damping;
mod fields;
mod importance;
mod inspect;
mod lbfgs;
mod losses;
mod models;
mod normalize;
mod optimizers;
mod validation;

#[path = "../harness/mod.rs"]
mod harness;
