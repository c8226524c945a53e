//! gannet.
