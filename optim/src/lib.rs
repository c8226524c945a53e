//! The optim room of gannet.
