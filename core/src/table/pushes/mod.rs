//! Pushes: which are applied, and how the update rule changes a row.

pub(crate) mod damping;
pub(crate) mod effect;
pub(crate) mod push;
pub(crate) mod push_chunks;
pub(crate) mod push_loop;
pub(crate) mod push_request;
pub(crate) mod read_write;
pub(crate) mod segment_rules;
