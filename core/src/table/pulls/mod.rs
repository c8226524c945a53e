//! Pulls: rows of keys, rows newer than a cached one, and the keys that a reader watches.

pub(crate) mod pull;
pub(crate) mod pull_newer;
pub(crate) mod watched_keys;
