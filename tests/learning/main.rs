//! What is learned: models and optimizers, with one process and with servers and workers.

mod admission;
mod damping;
mod lbfgs;
mod models;
mod optimizers;

#[path = "../harness/mod.rs"]
mod harness;
