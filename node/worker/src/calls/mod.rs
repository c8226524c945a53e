//! What a worker can be asked.

pub(crate) mod awaited;
pub(crate) mod cached_pulls;
pub(crate) mod clocks;
pub(crate) mod copy_client;
pub(crate) mod cut_client;
pub(crate) mod identity;
pub(crate) mod one_sided;
pub(crate) mod pipeline;
pub(crate) mod saved_rows;
pub(crate) mod shares;
pub(crate) mod simple;
pub(crate) mod subscriptions;
pub(crate) mod tables;
pub(crate) mod vectors;
pub(crate) mod wire_type;
