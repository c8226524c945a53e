//! Criterion benchmarks live in benches/.
#![forbid(unsafe_code)]
