//! The checkpoints of a whole job, in a checkpoint directory: manifests, row files, state files. docs/checkpoint.md has
//! the bytes.
//!
//! The folder that `--out` writes is something else: a model without the job's state, in `table/checkpoint.rs`.

#[cfg(test)]
mod checkpoint_tests;
pub(crate) mod directory;
pub(crate) mod draft;
pub(crate) mod encoder;
pub(crate) mod error;
mod file_ring;
#[cfg(test)]
mod foreign_tests;
pub(crate) mod local_store;
pub(crate) mod manifest;
mod manifest_v1;
#[cfg(feature = "test-support")]
pub(crate) mod memory_store;
mod names;
pub(crate) mod owner;
#[cfg(test)]
mod owner_tests;
pub(crate) mod prune;
#[cfg(test)]
mod pruned_tests;
pub(crate) mod row_file;
pub(crate) mod row_file_reader;
#[cfg(test)]
mod row_file_tests;
pub(crate) mod row_file_writer;
pub(crate) mod shard_rows;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
pub(crate) mod verify;
