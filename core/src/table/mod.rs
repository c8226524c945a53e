//! The shards of a table that one thread owns: pulls, pushes, and what a shard remembers of its pushers.

#[cfg(test)]
mod checksum_tests;
pub(crate) mod commands;
pub(crate) mod cuts;
pub(crate) mod eviction;
pub(crate) mod models;
pub(crate) mod owned;
#[cfg(test)]
mod power_tests;
pub(crate) mod progress;
pub(crate) mod pulls;
pub(crate) mod pushes;
