//! The transport room of gannet.
