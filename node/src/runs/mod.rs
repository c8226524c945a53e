//! Runs: which job the rows of some tables are of. One server of a job keeps a registry of them; the first process of a
//! run decides what the run is, and the others take its decision.

mod asking;
mod joining;
mod kept;
mod registry;
#[cfg(test)]
mod trials;

pub(crate) use asking::{JoinV1, RunActionV1, RunReplyV1, RunRequestV1};
pub use asking::{Run, RunId, RunIntent, RunMember, RunSetting};
pub use kept::RunsError;
pub use registry::{CLIENT, LocalRunDecision as RunAlone, Registry, RunDecision};
