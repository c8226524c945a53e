//! The canonical work of `gannet bench`, and the inputs of the benchmarks in benches/.
//!
//! `gannet bench` starts the processes and prints. This crate has the worker's side ([`served`], [`small_pulls`]) and
//! the limit for the comparison ([`limit`]).
//!
//! `cargo bench -p gannet-bench` measures; `cargo test -p gannet-bench --benches` runs each benchmark once, on small
//! tables.
#![forbid(unsafe_code)]

mod cpu;
pub mod inputs;
pub mod limit;
pub mod links;
pub mod served;
pub mod small_pulls;

pub use inputs::{DIMS, batches, cut, key, rules, sized};
