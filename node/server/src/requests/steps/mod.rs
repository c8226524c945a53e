//! Requests of workers that keep step.

pub(crate) mod awaited;
pub(crate) mod joins;
pub(crate) mod pushes;
