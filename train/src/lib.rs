//! The train room of gannet.
