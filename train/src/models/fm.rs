//! A factorization machine (Rendle, "Factorization machines", 2010). The margin is sum w_i x_i + the sum over pairs
//! of (v_i . v_j) x_i x_j. The second sum is half of |sum v_i x_i|^2 - sum |v_i x_i|^2. A row has a weight and the
//! factors, in two segments. The intercept has a weight only.
//!
//! A register holds some factors, and each factor adds its features in their order. The differences of the squares are
//! then added over the factors as [`sum`] says.

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::learned_rows::LearnedRows;
use super::{BatchRows, Example, Model, ModelSettings, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::Schema;
use gannet_optim::{GradientLanes, Isa, sum};

/// The segments of a row.
pub(super) const WEIGHT: usize = 0;
pub(super) const FACTORS: usize = 1;

/// A factorization machine.
pub struct FactorizationMachine {
    settings: ModelSettings,
    task: Objective,
    factors: usize,
    /// The sum of v_i x_i of the latest example.
    pub(super) sums: Vec<f32>,
    /// For each factor f, the square of its sum minus the sum of (v_if x_i)^2.
    pairs: Vec<f32>,
    /// Zeros: in this model nothing but the margin depends on the factors.
    none: Vec<f32>,
}

/// The gradient of a feature's factors: x (error (sums - v x) + by_vector) + l2 v.
struct FactorGradient<'a> {
    x: f32,
    error: f32,
    sums: &'a [f32],
    by_vector: &'a [f32],
    l2: f32,
}

impl<I: Isa> GradientLanes<I> for FactorGradient<'_> {
    #[inline(always)]
    fn lanes(&self, isa: I, at: usize, n: usize, v: I::Lanes) -> I::Lanes {
        let (x, error) = (isa.splat(self.x), isa.splat(self.error));
        let (sums, by_vector) = (isa.load(&self.sums[at..][..n]), isa.load(&self.by_vector[at..][..n]));
        x * (error * (sums - v * x) + by_vector) + isa.splat(self.l2) * v
    }
}

impl FactorizationMachine {
    /// A machine with so many factors a feature.
    pub fn new(settings: ModelSettings, factors: usize) -> FactorizationMachine {
        let zeros = vec![0.0; factors];
        let (task, pairs, none) = (Objective::Click, zeros.clone(), zeros.clone());
        FactorizationMachine { settings, task, factors, sums: zeros, pairs, none }
    }

    /// The machine with another objective, of one output.
    pub fn with_objective(self, task: Objective) -> FactorizationMachine {
        FactorizationMachine { task, ..self }
    }

    /// The schema of a table of such rows.
    pub(super) fn rows(&self, name: &str) -> Schema {
        self.settings.in_row_type(self.settings.factors(name, self.factors))
    }

    /// Computes the margin and the sums.
    #[inline(always)]
    pub(super) fn margin<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        rows: &R,
    ) -> f32 {
        let mut linear = 0.0;
        for (at, x, _) in example.features() {
            linear += rows.weights(at, WEIGHT)[0] * x;
        }
        let mut from = 0;
        while from + I::LANES <= self.factors {
            self.sum_factors(isa, example, rows, from, I::LANES);
            from += I::LANES;
        }
        if from < self.factors {
            self.sum_factors(isa, example, rows, from, self.factors - from);
        }
        linear + 0.5 * sum(isa, &self.pairs)
    }

    /// Computes the sums of `n` factors from factor `from` on.
    #[inline(always)]
    fn sum_factors<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        rows: &R,
        from: usize,
        n: usize,
    ) {
        let (mut sums, mut squares) = (isa.splat(0.0), isa.splat(0.0));
        for (at, x, intercept) in example.features() {
            if !intercept {
                let product = isa.load(&rows.weights(at, FACTORS)[from..][..n]) * isa.splat(x);
                sums = sums + product;
                squares = squares + product * product;
            }
        }
        isa.store(sums, &mut self.sums[from..][..n]);
        isa.store(sums * sums - squares, &mut self.pairs[from..][..n]);
    }

    /// Descends. The derivative by w_i is error * x_i, and by v_i it is error * x_i * (sums - v_i x_i). `by_vector`
    /// says for the feature with this index the derivative by v_i x_i of what else depends on it.
    #[inline(always)]
    pub(super) fn descend<'v, I: Isa, R: LearnedRows<I>>(
        &'v self,
        example: Example<'_>,
        error: f32,
        by_vector: impl Fn(usize) -> Option<&'v [f32]>,
        rows: &mut R,
    ) {
        for (i, (at, x, intercept)) in example.features().enumerate() {
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            rows.step(at, WEIGHT, error * x + l2 * rows.weights(at, WEIGHT)[0]);
            if !intercept {
                let by_vector = by_vector(i).unwrap_or(&self.none);
                rows.descend(at, FACTORS, &FactorGradient { x, error, sums: &self.sums, by_vector, l2 });
            }
        }
    }
}

impl Model for FactorizationMachine {
    fn name(&self) -> &'static str {
        "fm"
    }

    fn task(&self) -> Objective {
        self.task
    }

    fn sparse(&self) -> Schema {
        self.rows(self.name())
    }

    fn learn(&mut self, step: BatchStep<'_>) -> Result<(), BackendError> {
        learn(self, step)
    }

    fn score(&mut self, batch: &Batch, rows: &mut [BatchRows], each: &mut dyn FnMut(usize, &mut [f32])) {
        score(self, batch, rows, each);
    }

    fn explain(&mut self, batch: &Batch, i: usize, rows: &mut [BatchRows]) -> Contributions {
        let rows = contributions::to_read(rows);
        let mut features = contributions::linear(batch, i, &rows[0], 0);
        contributions::add_pairs(batch, i, &rows[0], self.factors, &mut features);
        Contributions { features, ..Contributions::default() }
    }
}

impl Passes for FactorizationMachine {
    fn task(&self) -> Objective {
        self.task
    }

    fn lane_dim(&self) -> usize {
        self.factors
    }

    #[inline(always)]
    fn forward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        rows: &R,
        _: &[R],
        outputs: &mut [f32],
    ) {
        outputs[0] = self.margin(isa, example, rows);
    }

    #[inline(always)]
    fn backward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        _: I,
        example: Example<'_>,
        errors: &[f32],
        rows: &mut R,
        _: &mut [R],
    ) {
        self.descend(example, errors[0], |_| None, rows);
    }
}
