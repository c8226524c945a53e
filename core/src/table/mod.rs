//! The shards of a table that one thread owns: pulls, pushes, and what a shard remembers of its pushers.

mod admission_sketch;
mod changes;
pub(crate) mod checkpoint;
mod command;
pub(crate) mod command_record;
pub(crate) mod cursors;
pub(crate) mod cut;
mod damping;
mod delete;
mod deletions;
mod effect;
mod known_pushers;
mod newest_incarnations;
mod page_versions;
mod part_progress;
pub(crate) mod position;
#[cfg(test)]
mod power_tests;
pub(crate) mod program;
pub(crate) mod pull;
pub(crate) mod pull_newer;
pub(crate) mod push;
pub(crate) mod push_chunks;
mod pushers;
pub(crate) mod read_write;
pub(crate) mod replay;
pub(crate) mod restore;
mod run_program;
mod saved_rows;
pub(crate) mod segment_rules;
mod shard;
mod shard_files;
pub(crate) mod shards;
mod slots;
pub(crate) mod vectors;
pub(crate) mod watched_keys;
pub(crate) mod width;
