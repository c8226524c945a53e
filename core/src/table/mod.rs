//! The shards of a table that one thread owns: pulls, pushes, and what a shard remembers of its pushers.

mod admission_sketch;
mod changes;
pub(crate) mod checkpoint;
mod checkpoint_rows;
#[cfg(test)]
mod checkpoint_rows_tests;
#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod checksum_tests;
mod command;
pub(crate) mod command_record;
mod copy_fill;
mod copy_state;
pub(crate) mod cursors;
pub(crate) mod cut;
mod damping;
mod delete;
mod deletions;
mod effect;
mod forgotten_clients;
mod known_pushers;
pub(crate) mod model_folder;
mod newest_incarnations;
mod page_versions;
mod part_end;
mod part_progress;
pub(crate) mod position;
#[cfg(test)]
mod power_tests;
pub(crate) mod program;
pub(crate) mod pull;
pub(crate) mod pull_newer;
pub(crate) mod push;
pub(crate) mod push_chunks;
mod push_loop;
pub(crate) mod push_request;
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
