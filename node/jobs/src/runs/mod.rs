//! Runs: to which training the rows of some tables belong. One server of a job keeps a registry of runs. The first
//! process of a run decides what the run is, and the others take over its decision.

pub(crate) mod alone;
pub(crate) mod comparison;
pub(crate) mod dead_workers;
#[cfg(test)]
mod dead_workers_tests;
pub(crate) mod finishing;
pub(crate) mod forgetting;
#[cfg(test)]
mod forgetting_tests;
pub(crate) mod joining;
pub(crate) mod presences;
pub mod registry;
#[cfg(test)]
mod registry_model_tests;
#[cfg(test)]
mod restored_runs_tests;
pub mod runs_file;
#[cfg(test)]
mod silence_tests;
