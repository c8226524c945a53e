//! A factorization machine (Rendle, "Factorization machines", 2010). The margin is sum w_i x_i + the sum over pairs
//! of (v_i . v_j) x_i x_j. The second sum is half of |sum v_i x_i|^2 - sum |v_i x_i|^2. A row has a weight and the
//! factors, in two segments. The intercept has a weight only.

use super::{BatchRows, Example, Model, ModelSettings, Objective};
use gannet_core::Schema;

/// A factorization machine.
pub struct FactorizationMachine {
    settings: ModelSettings,
    factors: usize,
    /// The sum of v_i x_i of the latest example.
    pub(super) sums: Vec<f32>,
    gradient: Vec<f32>,
    /// Zeros: in this model nothing but the margin depends on the sums.
    none: Vec<f32>,
}

impl FactorizationMachine {
    /// A machine with so many factors a feature.
    pub fn new(settings: ModelSettings, factors: usize) -> FactorizationMachine {
        FactorizationMachine {
            settings,
            factors,
            sums: vec![0.0; factors],
            gradient: vec![0.0; 1 + factors],
            none: vec![0.0; factors],
        }
    }

    /// The schema of a table of such rows.
    pub(super) fn rows(&self, name: &str) -> Schema {
        self.settings.factors(name, self.factors)
    }

    /// Computes the margin and the sums.
    pub(super) fn margin(&mut self, example: Example<'_>, rows: &BatchRows) -> f32 {
        self.sums.fill(0.0);
        let (mut linear, mut squares) = (0.0, 0.0);
        for (at, x, intercept) in example.features() {
            let row = rows.weights(at);
            linear += row[0] * x;
            if !intercept {
                for (sum, v) in self.sums.iter_mut().zip(&row[1..]) {
                    *sum += v * x;
                    squares += v * x * (v * x);
                }
            }
        }
        linear + 0.5 * (self.sums.iter().map(|s| s * s).sum::<f32>() - squares)
    }

    /// Descends. The derivative by w_i is error * x_i, and by v_i it is error * x_i * (sums - v_i x_i). `by_sums` is
    /// the derivative by the sums of what else depends on them.
    pub(super) fn descend(
        &mut self,
        example: Example<'_>,
        error: f32,
        by_sums: &[f32],
        rows: &mut BatchRows,
    ) {
        for (at, x, intercept) in example.features() {
            let row = rows.weights(at);
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            self.gradient[0] = error * x + l2 * row[0];
            if intercept {
                self.gradient[1..].fill(0.0);
            } else {
                let factors = self.gradient[1..].iter_mut().zip(&row[1..]);
                for ((g, v), (sum, by_sum)) in factors.zip(self.sums.iter().zip(by_sums)) {
                    *g = x * (error * (sum - v * x) + by_sum) + l2 * v;
                }
            }
            rows.descend(at, &self.gradient);
        }
    }
}

impl Model for FactorizationMachine {
    fn name(&self) -> &'static str {
        "fm"
    }

    fn task(&self) -> Objective {
        Objective::Click
    }

    fn sparse(&self) -> Schema {
        self.rows(self.name())
    }

    fn forward(&mut self, example: Example<'_>, rows: &[BatchRows], outputs: &mut [f32]) {
        outputs[0] = self.margin(example, &rows[0]);
    }

    fn backward(&mut self, example: Example<'_>, errors: &[f32], rows: &mut [BatchRows]) {
        let none = std::mem::take(&mut self.none);
        self.descend(example, errors[0], &none, &mut rows[0]);
        self.none = none;
    }
}
