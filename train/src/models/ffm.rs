//! A field-aware factorization machine (Juan, Zhuang, Chin, Lin, "Field-aware factorization machines for CTR
//! prediction", 2016). A feature has a vector for each field. The margin is sum w_i x_i + the sum over pairs of
//! (v_i,f(j) . v_j,f(i)) x_i x_j, where f(i) is the field of feature i. A feature of a field that the model does not
//! know has a weight only, as the intercept has.
//!
//! Pairs are not looked at one by one. Let S(a, b) be the sum of v_i,b x_i over the features i of field a. Then the
//! second sum is half of the sum of S(a, b) . S(b, a) over all a and b, minus half of the sum of |v_i,f(i) x_i|^2. So
//! an example costs as many products as its features have factors. The derivative by v_i,b is x_i S(b, a), where a is
//! the field of i; for b = a it is x_i (S(a, a) - v_i,a x_i).

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::fm::{FACTORS, WEIGHT};
use super::learned_rows::LearnedRows;
use super::{BatchRows, Example, Model, ModelSettings, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::Schema;
use gannet_optim::{GradientLanes, Isa, add_scaled, dot};

/// Fields on a side of a part of the sums that is turned at once.
const TILE: usize = 32;

/// A field-aware factorization machine.
pub struct FieldAwareMachine {
    settings: ModelSettings,
    task: Objective,
    fields: usize,
    /// Factors of a feature for one field.
    factors: usize,
    /// S(a, b) of the latest example, a row a field; only the rows of its fields are current.
    sums: Vec<f32>,
    /// The same, the other way round: in row a, S(b, a). It has zeros for fields that the example lacks. On the
    /// diagonal it has zeros where the field has one feature, which makes no pair.
    across: Vec<f32>,
    /// The fields of the latest example, and how many features of each it has.
    present: Vec<usize>,
    /// Those of the example before.
    before: Vec<usize>,
    counts: Vec<u32>,
    /// For each factor of a feature the L2 coefficient: that of the settings for the fields of the example, else 0.
    l2: Vec<f32>,
    /// The row of `across` for one feature.
    others: Vec<f32>,
}

/// The gradient of a feature's factors: error x others + l2 v.
struct FieldGradient<'a> {
    error: f32,
    others: &'a [f32],
    l2: &'a [f32],
}

impl<I: Isa> GradientLanes<I> for FieldGradient<'_> {
    #[inline(always)]
    fn lanes(&self, isa: I, at: usize, n: usize, v: I::Lanes) -> I::Lanes {
        isa.splat(self.error) * isa.load(&self.others[at..][..n]) + isa.load(&self.l2[at..][..n]) * v
    }
}

impl FieldAwareMachine {
    /// A machine for data with so many fields, with so many factors of a feature for each field.
    ///
    /// # Panics
    /// Without a field.
    pub fn new(settings: ModelSettings, fields: usize, factors: usize) -> FieldAwareMachine {
        assert!(fields > 0, "a field-aware machine needs fields");
        let (row, table) = (vec![0.0; fields * factors], vec![0.0; fields * fields * factors]);
        FieldAwareMachine {
            settings,
            task: Objective::Click,
            fields,
            factors,
            sums: table.clone(),
            across: table,
            present: Vec::new(),
            before: Vec::new(),
            counts: vec![0; fields],
            l2: row.clone(),
            others: row,
        }
    }

    /// The machine with another objective, of one output.
    pub fn with_objective(self, task: Objective) -> FieldAwareMachine {
        FieldAwareMachine { task, ..self }
    }

    /// The factors of a row.
    fn width(&self) -> usize {
        self.fields * self.factors
    }

    /// Takes the fields of an example. Most examples have those of the one before: then what is across is written
    /// anew, and need not be cleared.
    fn take_fields(&mut self, example: Example<'_>) {
        let (width, factors) = (self.width(), self.factors);
        self.present.iter().for_each(|&field| self.counts[field] = 0);
        std::mem::swap(&mut self.present, &mut self.before);
        self.present.clear();
        for i in 0..example.values.len() {
            let Some(field) = example.field(i) else { continue };
            if self.counts[field] == 0 {
                self.present.push(field);
                self.sums[field * width..][..width].fill(0.0);
            }
            self.counts[field] += 1;
        }
        if self.present == self.before {
            return;
        }
        for &a in &self.before {
            for &b in &self.before {
                self.across[a * width + b * factors..][..factors].fill(0.0);
            }
            self.l2[a * factors..][..factors].fill(0.0);
        }
        self.present.iter().for_each(|&field| self.l2[field * factors..][..factors].fill(self.settings.l2));
    }

    /// Writes the sums across, for some rows and columns at a time: rows of many fields do not fit into a cache.
    fn turn(&mut self) {
        let (width, factors) = (self.width(), self.factors);
        for rows in self.present.chunks(TILE) {
            for columns in self.present.chunks(TILE) {
                for (&a, &b) in rows.iter().flat_map(|a| columns.iter().map(move |b| (a, b))) {
                    let across = &mut self.across[a * width + b * factors..][..factors];
                    if a != b || self.counts[a] > 1 {
                        across.copy_from_slice(&self.sums[b * width + a * factors..][..factors]);
                    } else {
                        across.fill(0.0);
                    }
                }
            }
        }
    }

    /// Computes the sums of the example's fields. Returns the sum of |v_i,f(i) x_i|^2 over the features of fields that
    /// have several.
    #[inline(always)]
    fn sum_fields<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, example: Example<'_>, rows: &R) -> f32 {
        let (width, factors) = (self.width(), self.factors);
        self.take_fields(example);
        let mut squares = 0.0;
        for (i, (at, x, _)) in example.features().enumerate() {
            let Some(field) = example.field(i) else { continue };
            let vectors = rows.weights(at, FACTORS);
            add_scaled(isa, x, vectors, &mut self.sums[field * width..][..width]);
            if self.counts[field] > 1 {
                let own = &vectors[field * factors..][..factors];
                squares += x * x * dot(isa, own, own);
            }
        }
        self.turn();
        squares
    }

    /// The margin of an example.
    #[inline(always)]
    fn margin<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, example: Example<'_>, rows: &R) -> f32 {
        let squares = self.sum_fields(isa, example, rows);
        let width = self.width();
        let mut pairs = 0.0;
        for &a in &self.present {
            pairs += dot(isa, &self.sums[a * width..][..width], &self.across[a * width..][..width]);
        }
        let mut linear = 0.0;
        for (at, x, _) in example.features() {
            linear += rows.weights(at, WEIGHT)[0] * x;
        }
        linear + 0.5 * (pairs - squares)
    }

    #[inline(always)]
    fn descend<I: Isa, R: LearnedRows<I>>(&mut self, isa: I, example: Example<'_>, error: f32, rows: &mut R) {
        let (width, factors) = (self.width(), self.factors);
        for (i, (at, x, intercept)) in example.features().enumerate() {
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            rows.step(at, WEIGHT, error * x + l2 * rows.weights(at, WEIGHT)[0]);
            let Some(field) = example.field(i) else { continue };
            self.others.copy_from_slice(&self.across[field * width..][..width]);
            if self.counts[field] > 1 {
                let own = field * factors..(field + 1) * factors;
                let vector = &rows.weights(at, FACTORS)[own.clone()];
                add_scaled(isa, -x, vector, &mut self.others[own]);
            }
            let gradient = FieldGradient { error: error * x, others: &self.others, l2: &self.l2 };
            rows.descend(at, FACTORS, &gradient);
        }
    }
}

impl Model for FieldAwareMachine {
    fn name(&self) -> &'static str {
        "ffm"
    }

    fn task(&self) -> Objective {
        self.task
    }

    fn sparse(&self) -> Schema {
        self.settings.in_row_type(self.settings.factors(Model::name(self), self.width()))
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
        let mut features = contributions::linear(batch, i, &rows[0], 0);
        let known = || {
            let all = example.features().enumerate();
            all.filter_map(|(i, (at, x, _))| Some((i, at, f64::from(x), example.field(i)?)))
        };
        // Features meet once: each gets half of what they say together.
        for (i, at, x, field) in known() {
            let mut others = vec![0.0; self.width()];
            for (j, other, y, of) in known() {
                if i != j {
                    let vector = &rows[0].weights(other, FACTORS)[field * factors..][..factors];
                    contributions::add(&mut others[of * factors..][..factors], y, vector);
                }
            }
            features[i] += 0.5 * x * contributions::product(rows[0].weights(at, FACTORS), &others);
        }
        Contributions { features, ..Contributions::default() }
    }
}

impl Passes for FieldAwareMachine {
    fn task(&self) -> Objective {
        self.task
    }

    fn lane_dim(&self) -> usize {
        self.width()
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
        isa: I,
        example: Example<'_>,
        errors: &[f32],
        rows: &mut R,
        _: &mut [R],
    ) {
        self.descend(isa, example, errors[0], rows);
    }
}
