//! Synchronous steps: who has made which, what is stored of them, and their sums.

pub(crate) mod clocks;
pub(crate) mod group;
pub(crate) mod step;
pub(crate) mod step_budget;
pub(crate) mod step_files;
pub(crate) mod step_merge;
pub(crate) mod step_sums;
pub(crate) mod unowned_step_files;
pub(crate) mod waits;
