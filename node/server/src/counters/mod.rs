//! What a server counts.

pub(crate) mod cut;
pub(crate) mod request_kind;
pub(crate) mod server;
pub(crate) mod table;
