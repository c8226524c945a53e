//! The core room of gannet.
