//! Jobs of real processes: runs, tasks, steps, and processes that are killed and started again.

mod addresses;
mod backups;
mod checkpoints;
mod data_server;
mod evictions;
mod f16_wire;
mod follow;
mod identity;
mod incarnations;
mod job;
mod kept_runs;
mod launch;
mod launch_checks;
mod launch_hosts;
mod names;
mod normalize;
mod runs;
mod scheduler;
mod steps;
mod warm_start;
mod world;

#[path = "../harness/mod.rs"]
mod harness;
