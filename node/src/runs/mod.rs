//! Runs: to which training the rows of some tables belong. One server of a job keeps a registry of runs. The first
//! process of a run decides what the run is, and the others take over its decision.

mod alone;
mod comparison;
mod dead_workers;
#[cfg(test)]
mod dead_workers_tests;
mod finishing;
mod forgetting;
#[cfg(test)]
mod forgetting_tests;
mod joining;
mod messages;
mod presences;
mod registry;
#[cfg(test)]
mod registry_model_tests;
#[cfg(test)]
mod restored_runs_tests;
mod runs_file;
#[cfg(test)]
mod silence_tests;

/// The name of the state of a checkpoint that has its run, as the registry of the servers knows it.
pub(crate) const RUNS: &str = "runs";

pub use alone::LocalRunDecision as RunAlone;
pub use messages::{DeadWorker, Run, RunId, RunIntent, RunMember, RunSetting, TableUse};
pub(crate) use messages::{JoinV1, RunActionV1, RunBeatV2, RunReplyV1, RunRequestV1, is_of_place};
pub use registry::{CLIENT, Registry, RunDecision};
pub use runs_file::RunsError;
