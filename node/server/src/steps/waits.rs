//! What waits on a thread: for synchronous steps, for sessions that end because of them, or to be done at once.

use crate::steps::step_budget::StepBudget;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct StepWaits {
    /// Something that a request waits for may have happened.
    pub(crate) group_changed: bool,
    /// A push waits for memory of the step budget.
    pub(crate) memory_short: bool,
    /// The memory for pushes that wait for their synchronous step.
    pub(crate) budget: Option<Arc<StepBudget>>,
    /// Rows are to be evicted at once: the thread does not sleep.
    pub(crate) evicts: bool,
    /// Sessions to end, each as (table, pusher, the highest fenced incarnation).
    pub(crate) fenced: Vec<(u32, u64, u64)>,
    /// Sessions to end: their worker keeps step over another session now.
    pub(crate) displaced: Vec<u32>,
}
