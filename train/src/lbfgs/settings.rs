//! The settings of a training by L-BFGS, and its report.

use std::time::Duration;

/// How to train.
#[derive(Debug, Clone, PartialEq)]
pub struct LbfgsSettings {
    /// The factor of `|w|_1`.
    pub l1: f64,
    /// The factor of `|w|^2 / 2`.
    pub l2: f64,
    /// Whether there is an intercept, which has no penalties.
    pub intercept: bool,
    /// The most iterations.
    pub iterations: u32,
    /// The training ends when the (pseudo-)gradient of the mean objective (per unit of importance) is at most this
    /// long.
    pub tolerance: f64,
    /// The number of workers, with the chief.
    pub workers: u32,
    /// The most time that a worker may take for a command.
    pub patience: Duration,
}

impl LbfgsSettings {
    /// The number of iterations over which the decrease of the objective is measured.
    pub const WINDOW: usize = 10;
    /// The training also ends when [`WINDOW`](Self::WINDOW) iterations have decreased the objective by less than this
    /// share of it: more is beyond its precision.
    pub const STALLED: f64 = 1e-12;
}

/// The results of a training.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Trained {
    /// The sum of log losses and penalties.
    pub objective: f64,
    /// The sum of log losses.
    pub loss: f64,
    /// The number of examples of all workers.
    pub examples: u64,
    /// The sum of the importance of these examples.
    pub importance: f64,
    /// Iterations of this run.
    pub iterations: u64,
    /// Passes over the examples.
    pub passes: u64,
    /// Steps of the line search that needed the margins only.
    pub tries: u64,
    /// The length of the (pseudo-)gradient.
    pub slope: f64,
    /// Iterations of earlier runs, from whose weights and pairs this run continued.
    pub resumed_at: u64,
    /// Whether the objective has stopped falling.
    pub converged: bool,
    /// Whether the stop flag ended it.
    pub stopped: bool,
}

impl Trained {
    /// The length of the (pseudo-)gradient of the mean objective, per unit of importance.
    pub fn mean_slope(&self) -> f64 {
        self.slope / self.importance
    }
}
