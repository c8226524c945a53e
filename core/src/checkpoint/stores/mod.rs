//! Where the files of checkpoints are: a folder, or what a store outside the crate reaches.

pub(crate) mod local_store;
pub(crate) mod store;
