//! Jobs of real processes: runs, tasks, steps, and processes that are killed and come back.

mod feeding;
mod identity;
mod incarnations;
mod job;
mod runs;
mod scheduler;
mod steps;

#[path = "../harness/mod.rs"]
mod harness;
