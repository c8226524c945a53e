//! What a server counts.

pub(crate) mod cut;
pub(crate) mod server;
pub(crate) mod table;
