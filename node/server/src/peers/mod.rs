//! What a server knows of whoever asks.

pub(crate) mod buffers;
pub(crate) mod keysets;
pub(crate) mod kinds;
pub(crate) mod memory;
pub(crate) mod outcome;
pub(crate) mod pusher;
