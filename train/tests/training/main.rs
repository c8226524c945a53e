//! What trains: loops, models, pieces of data, workers that keep step.

mod damping;
mod gradients;
mod importance;
mod late;
mod lbfgs;
mod loops;
mod models;
mod flights;
mod splits;

#[path = "../model/mod.rs"]
mod model;
