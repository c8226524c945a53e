//! Where the files of checkpoints are: a folder, or what a store outside the crate reaches.

pub(crate) mod local_store;
#[cfg(feature = "test-support")]
pub(crate) mod memory_store;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
