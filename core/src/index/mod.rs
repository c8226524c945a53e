//! From the hash of a key to the slot of its row.

pub(crate) mod expansion;
pub(crate) mod geometry;
pub(crate) mod hash_index;
#[cfg(test)]
mod index_tests;
pub(crate) mod resolve;
