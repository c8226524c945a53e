//! A linear model: the output is w . x, with the intercept among the features. A row is one weight. By default it is a
//! regression by least squares.

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::learned_rows::LearnedRows;
use super::{BatchRows, Example, Model, ModelSettings, NumberLoss, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::Schema;
use gannet_optim::Isa;

/// A linear model.
pub struct Linear {
    settings: ModelSettings,
    task: Objective,
}

impl Linear {
    /// Linear regression with these settings.
    pub fn new(settings: ModelSettings) -> Linear {
        Linear { settings, task: Objective::Number(NumberLoss::Squared) }
    }

    /// The model with another objective, of one output.
    pub fn with_objective(self, task: Objective) -> Linear {
        Linear { task, ..self }
    }
}

impl Model for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn task(&self) -> Objective {
        self.task
    }

    fn sparse(&self) -> Schema {
        self.settings.zeros(self.name(), 1)
    }

    fn learn(&mut self, step: BatchStep<'_>) -> Result<(), BackendError> {
        learn(self, step)
    }

    fn score(&mut self, batch: &Batch, rows: &mut [BatchRows], each: &mut dyn FnMut(usize, &mut [f32])) {
        score(self, batch, rows, each);
    }

    fn explain(&mut self, batch: &Batch, i: usize, rows: &mut [BatchRows]) -> Contributions {
        Contributions {
            features: contributions::linear(batch, i, &contributions::to_read(rows)[0], 0),
            ..Contributions::default()
        }
    }
}

impl Passes for Linear {
    fn task(&self) -> Objective {
        self.task
    }

    fn lane_dim(&self) -> usize {
        1
    }

    #[inline(always)]
    fn forward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        _: I,
        example: Example<'_>,
        rows: &R,
        _: &[R],
        outputs: &mut [f32],
    ) {
        let mut sum = 0.0;
        for (at, x, _) in example.features() {
            sum += rows.weights(at, 0)[0] * x;
        }
        outputs[0] = sum;
    }

    /// The derivative by a weight is error * x.
    #[inline(always)]
    fn backward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        _: I,
        example: Example<'_>,
        errors: &[f32],
        rows: &mut R,
        _: &mut [R],
    ) {
        for (at, x, intercept) in example.features() {
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            rows.step(at, 0, errors[0] * x + l2 * rows.weights(at, 0)[0]);
        }
    }
}
