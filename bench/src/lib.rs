//! What is measured, and with what: the canonical work of `gannet bench`, and the inputs of the benchmarks in benches/.
//!
//! `gannet bench` starts the processes and prints. Here are the worker's side of it ([`served`]) and the limit that it
//! compares itself with ([`limit`]).
//!
//! `cargo bench -p gannet-bench` measures; `cargo test -p gannet-bench --benches` runs each benchmark once, on small
//! tables.
#![forbid(unsafe_code)]

mod cpu;
pub mod inputs;
pub mod limit;
pub mod links;
pub mod served;

pub use inputs::{DIMS, batches, cut, key, rules, sized};
