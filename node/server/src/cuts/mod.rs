//! Cuts for checkpoints, on the side of a server.

pub(crate) mod absences;
pub(crate) mod parts;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod writer;
