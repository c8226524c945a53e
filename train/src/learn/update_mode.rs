//! How a batch of logistic regression is learned: in place, by replay, or by gradients.

use crate::learn::gradient::Gradients;
use crate::learn::push_content::PushContent;
use crate::learn::replay::Replay;
use gannet_core::Write;
use std::collections::VecDeque;

/// How a batch is learned.
pub(crate) enum UpdateMode {
    /// By replay, where the rows are.
    InPlace,
    /// By replay, on a copy of the state of `planes` floats a row; `changes` are those of the last `depth` batches, the
    /// newest first. `damped`: behind the state stands how many pushes the row has had.
    Replay { replay: Replay, planes: usize, damped: bool, changes: VecDeque<Vec<f32>> },
    /// By the rule, from gradients.
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

    /// How they are written.
    pub(crate) fn write(&self) -> Write {
        match self {
            UpdateMode::Replay { damped: true, .. } => Write::Damped,
            mode => mode.push().write(),
        }
    }

    /// Rows left as they were, or gradients left out, that were NaN or infinite.
    pub(crate) fn not_finite(&self) -> u64 {
        match self {
            UpdateMode::InPlace => 0,
            UpdateMode::Replay { replay, .. } => replay.not_finite(),
            UpdateMode::Gradient(gradients) => gradients.not_finite(),
        }
    }
}
