//! What a shard remembers of its pushers: which push it applied last.

pub(crate) mod cursors;
pub(crate) mod forgotten_clients;
pub(crate) mod known_pushers;
pub(crate) mod newest_incarnations;
pub(crate) mod part_end;
pub(crate) mod part_progress;
pub(crate) mod pushers;
