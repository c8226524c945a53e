//! What a server knows of whoever asks.

pub(crate) mod keysets;
pub(crate) mod memory;
