//! What a server thread is told when it begins.

use crate::config::{ReplicationMode, SessionLimits};
use crate::membership::standing::Standing;
use crate::peers::memory::SessionMemory;
use crate::places::incarnations::HighestIncarnation;
use crate::steps::step_budget::StepBudget;
use gannet_jobs::scheduler::data_server::DataServerConfig;
use std::sync::Arc;
use std::time::Duration;

/// A thread's settings.
#[derive(Clone)]
pub(crate) struct ThreadSettings {
    pub(crate) thread: u32,
    pub(crate) threads: u32,
    pub(crate) incarnation: u64,
    pub(crate) keyset_bytes_max: usize,
    pub(crate) spin: Duration,
    pub(crate) limits: SessionLimits,
    /// The memory of all sessions' buffers, for the whole server.
    pub(crate) buffers: Arc<SessionMemory>,
    /// The memory of all sessions' keysets, for the whole server.
    pub(crate) keysets: Arc<SessionMemory>,
    /// The memory for pushes that wait for their synchronous step, for the whole server.
    pub(crate) step_budget: Arc<StepBudget>,
    /// The data that the scheduler sends to the workers.
    pub(crate) data_server: Option<DataServerConfig>,
    /// The highest incarnation that a session has named.
    pub(crate) highest_incarnation: HighestIncarnation,
    /// For what the answers of the thread wait.
    pub(crate) replication: ReplicationMode,
    /// What the membership has decided. `None`: there is no coordinator.
    pub(crate) standing: Option<Arc<Standing>>,
}
