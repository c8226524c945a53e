//! The node room of gannet.
