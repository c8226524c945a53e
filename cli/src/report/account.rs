//! The run's part of a report.

use crate::report::numbers::Numbers;
use gannet::runs::{RunDecision, RunId};
use serde_json::json;

/// The run's part of the report.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub run: Option<(RunId, RunDecision)>,
    /// Batches of this worker's fixed share that the rows had when it began, over all passes.
    pub batches_before: u64,
    /// Workers whose share is not trained.
    pub missing: Vec<u32>,
    /// Their batches that are not trained. `None`: unknown.
    pub untrained: Option<u64>,
}

impl Account {
    /// Adds what a report says of the run.
    pub fn put(&self, report: &mut Numbers) {
        let Some((id, decided)) = &self.run else { return };
        report.add_all(json!({
            "run": { "name": id.name, "generation": id.generation, "decided": decided.name() },
            "batches_before": self.batches_before, "missing_workers": self.missing,
            "untrained_batches": self.untrained,
        }));
    }
}
