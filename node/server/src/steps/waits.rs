//! What waits for synchronous steps on a thread, and which sessions end because of them.

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
    /// Sessions to end, each as (table, pusher, the highest fenced incarnation).
    pub(crate) fenced: Vec<(u32, u64, u64)>,
    /// Sessions to end: their worker keeps step over another session now.
    pub(crate) displaced: Vec<u32>,
}
