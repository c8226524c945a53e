//! The rows that a worker keeps, so that it need not pull them each time.

pub(crate) mod arena;
pub(crate) mod caching;
pub(crate) mod following;
pub(crate) mod misses;
pub(crate) mod rows;
#[cfg(test)]
mod rows_tests;
pub(crate) mod settings;
pub(crate) mod sketch;
pub(crate) mod swept;
