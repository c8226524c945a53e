//! What one thread owns of a table: its shards, their slots, and what commands changed in them.

pub(crate) mod admission_sketch;
pub(crate) mod changes;
pub(crate) mod page_versions;
pub(crate) mod position;
pub(crate) mod shard;
pub(crate) mod shard_files;
pub(crate) mod shards;
pub(crate) mod slots;
pub(crate) mod vectors;
pub(crate) mod width;
