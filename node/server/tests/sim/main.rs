//! Servers and workers in the simulation and in one process: exactly-once pushes, steps, identity, memory.

mod admission;
mod asynchronous;
mod blocking;
mod broken_requests;
mod cached;
mod checkpoints;
mod clocks;
mod cluster;
mod counters;
mod data_server;
mod deleted_rows;
mod deposed;
mod dropped;
mod evictions;
mod f16_wire;
mod failover;
mod failover_job;
mod failover_restore;
mod filled_backup;
mod forgotten_clients;
mod heartbeats;
mod identity;
mod incarnations;
mod members;
mod one_sided;
mod packed_rows;
mod rdma;
mod reached;
mod replication;
mod restore;
mod restore_killed;
mod restored_again;
mod restored_folders;
mod restored_job;
mod saved_rows;
mod scheduled;
mod segments;
mod simulated;
mod small_pulls;
mod step_budget;
mod strict;
mod sync;
mod thread_changes;
mod torn_pushes;
mod undone_runs;
mod waiting;

#[path = "../model/mod.rs"]
mod model;
#[path = "../saved/mod.rs"]
mod saved;
#[path = "../stepping/mod.rs"]
mod stepping;

/// A folder on tmpfs if there is one: what the simulation shows does not depend on a disk, and no sync waits for it.
fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
