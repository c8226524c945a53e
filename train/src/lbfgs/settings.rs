//! The settings of a training by L-BFGS, and its report.

use std::time::Duration;

/// How is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct LbfgsSettings {
    /// The factor of the weights' absolute values.
    pub l1: f64,
    /// Half the factor of their squares.
    pub l2: f64,
    /// Whether there is an intercept, which has no penalties.
    pub intercept: bool,
    /// Iterations at most.
    pub iterations: u32,
    /// The training is over when the (pseudo-)gradient of the mean objective, of what an example counts, is no longer
    /// than this.
    pub tolerance: f64,
    /// Workers, the chief among them.
    pub workers: u32,
    /// How long a worker may take for a command.
    pub patience: Duration,
}

impl LbfgsSettings {
    /// Iterations over which the objective's fall is looked at.
    pub const WINDOW: usize = 10;
    /// The training is over, whatever the gradient, when so many iterations have made the objective smaller by less
    /// than this share of it: its digits are used up.
    pub const STALLED: f64 = 1e-12;
}

/// What came of a training.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Trained {
    /// The sum of log losses and penalties.
    pub objective: f64,
    /// The sum of log losses.
    pub loss: f64,
    /// Examples of all workers, and how much they count together.
    pub examples: u64,
    /// See [`Trained::examples`].
    pub importance: f64,
    /// Iterations of this run.
    pub iterations: u64,
    /// Passes over the examples.
    pub passes: u64,
    /// Steps that were looked at on the margins alone.
    pub tries: u64,
    /// The length of the (pseudo-)gradient.
    pub slope: f64,
    /// Iterations of runs before, whose weights and pairs this one went on from.
    pub resumed_at: u64,
    /// The objective has stopped falling.
    pub converged: bool,
    /// A signal ended it.
    pub stopped: bool,
}

impl Trained {
    /// The length of the (pseudo-)gradient of the mean objective: of what an example counts.
    pub fn mean_slope(&self) -> f64 {
        self.slope / self.importance
    }
}
