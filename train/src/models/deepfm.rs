//! DeepFM (Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", 2017). The margin is
//! that of a factorization machine plus the output of a network, and both read the same factors. The network reads a
//! vector for each field: the sum of v_i x_i over the features of the field. A feature of a field that the model does
//! not know has no part in the network. Of data without fields all features are of one.
//!
//! Each layer is a table: row u has the weights of unit u and its bias, in two segments. Hidden units are rectified. A
//! unit adds its inputs as [`dot`] says.

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::fm::{FACTORS, FactorizationMachine};
use super::learned_rows::{LearnedRows, ScaledVector};
use super::{BatchRows, Example, Model, ModelSettings, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::{Admission, Init, Schema, Segment};
use gannet_optim::{Isa, add_scaled, dot};

/// The segments of a unit's row.
const WEIGHTS: usize = 0;
const BIAS: usize = 1;

/// The network beside a factorization machine.
pub struct DeepFm {
    settings: ModelSettings,
    machine: FactorizationMachine,
    factors: usize,
    /// The number of inputs of each layer, and at the end 1, the output.
    widths: Vec<usize>,
    /// The values that each layer reads, of the latest example.
    values: Vec<Vec<f32>>,
    /// The derivatives of the loss by those values.
    errors: Vec<Vec<f32>>,
}

impl DeepFm {
    /// A model of data with so many fields, with so many factors a feature and hidden layers of so many units.
    ///
    /// # Panics
    /// Without a field.
    pub fn new(settings: ModelSettings, fields: usize, factors: usize, hidden: &[usize]) -> DeepFm {
        assert!(fields > 0, "data without fields has one that holds all features");
        let widths: Vec<usize> = [fields * factors].iter().chain(hidden).chain(&[1]).copied().collect();
        let values: Vec<Vec<f32>> = widths.iter().map(|&width| vec![0.0; width]).collect();
        let errors = values.clone();
        let machine = FactorizationMachine::new(settings, factors);
        DeepFm { settings, machine, factors, widths, values, errors }
    }

    /// The model with another objective, of one output.
    pub fn with_objective(self, task: Objective) -> DeepFm {
        DeepFm { machine: self.machine.with_objective(task), ..self }
    }

    /// Sums the vectors of each field.
    #[inline(always)]
    fn pool<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, example: Example<'_>, rows: &R) {
        let input = &mut self.values[0];
        if input.len() == self.factors {
            return input.copy_from_slice(&self.machine.sums);
        }
        input.fill(0.0);
        for (i, (at, x, _)) in example.features().enumerate() {
            if let Some(field) = example.field(i) {
                let vector = &mut input[field * self.factors..][..self.factors];
                add_scaled(isa, x, rows.weights(at, FACTORS), vector);
            }
        }
    }

    /// The network's output for the current values of its first layer.
    #[inline(always)]
    fn network<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, layers: &[R]) -> f32 {
        for (at, layer) in layers.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(at + 1);
            let (input, output) = (&before[at], &mut after[0]);
            let last = at + 1 == layers.len();
            for (unit, value) in output.iter_mut().enumerate() {
                let sum = layer.weights(unit, BIAS)[0] + dot(isa, layer.weights(unit, WEIGHTS), input);
                *value = if last { sum } else { sum.max(0.0) };
            }
        }
        self.values.last().map_or(0.0, |output| output[0])
    }

    /// Steps the layers, and computes the derivatives by the values of the first layer.
    #[inline(always)]
    fn back<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, error: f32, layers: &mut [R]) {
        if let Some(last) = self.errors.last_mut() {
            last[0] = error;
        }
        for (at, layer) in layers.iter_mut().enumerate().rev() {
            let (before, after) = self.errors.split_at_mut(at + 1);
            let (by_input, by_output) = (&mut before[at], &after[0]);
            let input = &self.values[at];
            by_input.fill(0.0);
            for (unit, &error) in by_output.iter().enumerate() {
                if error == 0.0 {
                    continue;
                }
                add_scaled(isa, error, layer.weights(unit, WEIGHTS), by_input);
                let l2 = self.settings.l2;
                layer.descend(unit, WEIGHTS, &ScaledVector { factor: error, vector: input, l2 });
                layer.step(unit, BIAS, error);
            }
            if at > 0 {
                // A rectified unit with output 0 has derivative 0.
                for (error, &x) in by_input.iter_mut().zip(input) {
                    *error = if x > 0.0 { *error } else { 0.0 };
                }
            }
        }
    }
}

impl Model for DeepFm {
    fn name(&self) -> &'static str {
        "deepfm"
    }

    fn task(&self) -> Objective {
        Model::task(&self.machine)
    }

    fn sparse(&self) -> Schema {
        self.machine.rows(self.name())
    }

    /// Initial weights as He et al. (2015) propose for rectified units: normal, of variance 2 / inputs.
    fn dense(&self) -> Vec<(Schema, u64)> {
        let layer = |(number, widths): (usize, &[usize])| {
            let (inputs, units) = (widths[0], widths[1]);
            let name = format!("{}.{}", self.name(), number + 1);
            let ModelSettings { rule, shaping, .. } = self.settings;
            let deviation = (2.0 / inputs as f32).sqrt();
            let bias = Segment { dim: 1, rule, shaping, init: Init::Zero };
            let schema = Schema {
                init: Init::Normal { mean: 0.0, deviation },
                more: vec![bias],
                admission: Admission::All,
                ..self.settings.zeros(&name, inputs)
            };
            (schema, units as u64)
        };
        self.widths.windows(2).enumerate().map(layer).collect()
    }

    fn learn(&mut self, step: BatchStep<'_>) -> Result<(), BackendError> {
        learn(self, step)
    }

    fn score(&mut self, batch: &Batch, rows: &mut [BatchRows], each: &mut dyn FnMut(usize, &mut [f32])) {
        score(self, batch, rows, each);
    }

    fn explain(&mut self, batch: &Batch, i: usize, rows: &mut [BatchRows]) -> Contributions {
        let rows = contributions::to_read(rows);
        let (example, factors) = (Example::of(batch, i), self.factors);
        let (sparse, layers) = (&rows[0], &rows[1..]);
        let mut features = contributions::linear(batch, i, sparse, 0);
        contributions::add_pairs(batch, i, sparse, factors, &mut features);
        let is_pooled = self.widths[0] == factors;
        let vectors = || {
            let all = example.features().enumerate().filter(|(_, (.., intercept))| !intercept);
            let field = |i| if is_pooled { Some(0) } else { example.field(i) };
            all.filter_map(move |(i, (at, x, _))| Some((i, at, f64::from(x), field(i)?)))
        };
        let mut input = vec![0.0; self.widths[0]];
        for (_, at, x, field) in vectors() {
            contributions::add(&mut input[field * factors..][..factors], x, sparse.weights(at, FACTORS));
        }
        let (by_input, rest) = contributions::multipliers(layers, &self.widths, input);
        for (i, at, x, field) in vectors() {
            let by_vector = &by_input[field * factors..][..factors];
            features[i] += x * contributions::product(sparse.weights(at, FACTORS), by_vector);
        }
        Contributions { output: 0, features, rest }
    }
}

impl Passes for DeepFm {
    fn task(&self) -> Objective {
        Model::task(&self.machine)
    }

    fn lane_dim(&self) -> usize {
        self.machine.lane_dim()
    }

    #[inline(always)]
    fn forward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        sparse: &R,
        layers: &[R],
        outputs: &mut [f32],
    ) {
        let margin = self.machine.margin(isa, example, sparse);
        self.pool(isa, example, sparse);
        outputs[0] = margin + self.network(isa, layers);
    }

    #[inline(always)]
    fn backward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        errors: &[f32],
        sparse: &mut R,
        layers: &mut [R],
    ) {
        self.back(isa, errors[0], layers);
        let (by_input, factors) = (&self.errors[0], self.factors);
        let by_vector = |i: usize| {
            let field = if by_input.len() == factors { Some(0) } else { example.field(i) };
            field.map(|field| &by_input[field * factors..][..factors])
        };
        self.machine.descend(example, errors[0], by_vector, sparse);
    }
}
