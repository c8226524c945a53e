//! Cuts for checkpoints, on the side of a server.

pub(crate) mod absences;
pub(crate) mod cut_parts;
pub(crate) mod cut_slices;
pub(crate) mod cut_tables;
pub(crate) mod cut_writer;
pub(crate) mod protocol;
#[cfg(test)]
mod step_cuts_tests;
