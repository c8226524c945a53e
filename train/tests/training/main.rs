//! Tests of training: loops, models, splits of data, workers that keep step.

mod alone;
mod damping;
mod f16_wire;
mod flat_tables;
mod flights;
mod free_intercept;
mod gradients;
mod importance;
mod late;
mod lbfgs;
mod loops;
mod memory;
mod models;
mod norm_table;
mod splits;
mod start_table;

#[path = "../model/mod.rs"]
mod model;
