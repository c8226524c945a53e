//! The ways in which a batch of logistic regression is learned.

use crate::gradient::Gradients;
use crate::push::Push;
use crate::replay::Replay;
use gannet_node::Write;
use std::collections::VecDeque;

/// How a batch is learned.
pub(crate) enum Way {
    /// By replay, where the rows are.
    InPlace,
    /// By replay, on a copy of the state of `planes` floats a row; `changes` are those of the last `depth` batches, the
    /// newest first. `damped`: behind the state stands how many pushes the row has had.
    Replay { replay: Replay, planes: usize, damped: bool, changes: VecDeque<Vec<f32>> },
    /// By the rule, from gradients.
    Gradient(Gradients),
}

impl Way {
    /// What pushes carry.
    pub(crate) fn push(&self) -> Push {
        match self {
            Way::InPlace | Way::Replay { .. } => Push::Replay,
            Way::Gradient(_) => Push::Gradient,
        }
    }

    /// How they are written.
    pub(crate) fn write(&self) -> Write {
        match self {
            Way::Replay { damped: true, .. } => Write::Damped,
            way => way.push().write(),
        }
    }

    /// Rows left as they were, or gradients left out, that were NaN or infinite.
    pub(crate) fn not_finite(&self) -> u64 {
        match self {
            Way::InPlace => 0,
            Way::Replay { replay, .. } => replay.not_finite(),
            Way::Gradient(gradients) => gradients.not_finite(),
        }
    }
}
