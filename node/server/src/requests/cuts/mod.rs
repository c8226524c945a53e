//! The steps of a checkpoint on a server thread.

pub(crate) mod absent;
pub(crate) mod follower;
#[cfg(test)]
mod follower_tests;
pub(crate) mod holding;
pub(crate) mod protocol;
pub(crate) mod slices;
#[cfg(test)]
mod step_cuts_tests;
pub(crate) mod tables;
#[cfg(test)]
mod torn_pushes_tests;
