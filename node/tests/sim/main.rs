//! Servers and workers in the simulation and in one process: exactly once, step, identity, memory.

mod admission;
mod attending;
mod cached;
mod dropped;
mod far;
mod fed;
mod identity;
mod incarnations;
mod keeping;
mod kept;
mod near;
mod scheduled;
mod segments;
mod simulated;
mod tally;
mod waiting;

#[path = "../model/mod.rs"]
mod model;
#[path = "../stepping/mod.rs"]
mod stepping;
