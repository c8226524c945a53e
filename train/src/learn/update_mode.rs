//! How a batch of logistic regression is learned: in place, by replay, or by gradients.

use crate::learn::gradient::Gradients;
use crate::learn::push_content::PushContent;
use crate::learn::replay::Replay;
use gannet_core::Write;
use std::collections::VecDeque;

/// How the learner handles a batch.
pub(crate) enum UpdateMode {
    /// Replay directly on the rows of the table.
    InPlace,
    /// Replay on a copy of the state, which has `planes` floats a row. `changes` are the changes of the last `depth`
    /// batches, the newest first. `damped`: each row has its count of pushes behind the state. `whole`: rows are pushed
    /// as a whole, and no batch is pulled ahead.
    Replay { replay: Replay, planes: usize, damped: bool, whole: bool, changes: VecDeque<Vec<f32>> },
    /// Gradients, which the rule applies at the server.
    Gradient(Gradients),
}

impl UpdateMode {
    /// What pushes carry.
    pub(crate) fn push(&self) -> PushContent {
        match self {
            UpdateMode::InPlace | UpdateMode::Replay { .. } => PushContent::Replay,
            UpdateMode::Gradient(_) => PushContent::Gradient,
        }
    }

    /// How the shards apply the pushes.
    pub(crate) fn write(&self) -> Write {
        match self {
            UpdateMode::Replay { damped: true, .. } => Write::Damped,
            UpdateMode::Replay { whole: true, .. } => Write::Row,
            mode => mode.push().write(),
        }
    }

    /// Rows left unchanged, or gradients left out, because they were NaN or infinite.
    pub(crate) fn not_finite(&self) -> u64 {
        match self {
            UpdateMode::InPlace => 0,
            UpdateMode::Replay { replay, .. } => replay.not_finite(),
            UpdateMode::Gradient(gradients) => gradients.not_finite(),
        }
    }
}
