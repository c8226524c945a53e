//! The checkpoints of a whole job, in a checkpoint directory: manifests, row files, state files. docs/checkpoint.md has
//! the bytes.
//!
//! The folder that `--out` writes is something else: a model without the job's state, in `table/models/checkpoint.rs`.

#[cfg(test)]
mod checkpoint_tests;
pub(crate) mod directory;
pub(crate) mod draft;
pub(crate) mod error;
#[cfg(test)]
mod foreign_tests;
pub(crate) mod manifest;
mod manifest_v1;
mod names;
pub(crate) mod owner;
#[cfg(test)]
mod owner_tests;
pub(crate) mod prune;
#[cfg(test)]
mod pruned_tests;
pub(crate) mod row_files;
pub(crate) mod stores;
pub(crate) mod verify;
