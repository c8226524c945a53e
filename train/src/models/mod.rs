//! Models other than logistic regression, each in a small file. A model works on [`Tables`](crate::Tables). Its
//! forward pass computes an example's outputs from its rows, and its backward pass computes the rows' gradients from
//! the errors of the outputs. `batch_learner` runs both over a batch, in registers. [`fit`](fn@fit) trains models;
//! [`score`](fn@score) and [`outputs`] score with them. [`Lda`] learns no gradients and has its own loop.

mod batch_learner;
mod contributions;
mod deepfm;
mod ffm;
mod fit;
mod fm;
mod gamma;
mod lda;
mod learned_rows;
mod linear;
mod mf;
mod rows;
mod score;
mod side_by_side;
mod softmax;

pub use crate::learn::measures::{
    Classified, Estimated, Measured, Measures, NumberLoss, Objective, Separated,
};
pub use batch_learner::BatchStep;
pub use contributions::Contributions;
pub use deepfm::DeepFm;
pub use ffm::FieldAwareMachine;
pub use fit::{FitWatch, fit, fit_watched, push_of, sizes};
pub use fm::FactorizationMachine;
pub use lda::{Lda, Sampled, Sampling, Topics};
pub use linear::Linear;
pub use mf::Factorization;
pub use rows::BatchRows;
pub use score::{Explained, Forecast, explain, outputs, score};
pub use side_by_side::{SideBySide, TrialResult};
pub use softmax::Softmax;

use crate::backend::error::BackendError;
use crate::batch::Batch;
use crate::read::block::INTERCEPT_KEY;
use crate::read::fields::field_places::NO_FIELD;
use gannet_core::{Admission, Init, RowType, Schema, SchemaError, Segment};
use gannet_optim::{GradientTransform, Rule};

/// An example for a model. Feature `i` has key `keys[i]` and value `values[i]`, and its row is row `places[i]` of the
/// batch. No key is there twice.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a> {
    /// The keys of its features.
    pub keys: &'a [u64],
    /// The indices of their rows in the batch.
    pub places: &'a [u32],
    /// Their values.
    pub values: &'a [f32],
    /// The [places](crate::FieldPlaces) of their fields. Empty: the data says none.
    pub fields: &'a [u64],
}

impl<'a> Example<'a> {
    /// Example `i` of a batch.
    ///
    /// # Panics
    /// When there is no such example.
    #[inline(always)]
    pub fn of(batch: &'a Batch, i: usize) -> Example<'a> {
        let range = batch.block.range(i);
        let (keys, values) = (&batch.block.keys[range.clone()], &batch.block.values[range.clone()]);
        let fields = batch.block.fields.get(range.clone()).unwrap_or_default();
        Example { keys, places: &batch.local[range], values, fields }
    }

    /// The place of the field of its feature with this index. `None`: the model does not know the field.
    #[inline(always)]
    pub(crate) fn field(self, i: usize) -> Option<usize> {
        self.fields.get(i).filter(|&&place| place != NO_FIELD).map(|&place| place as usize)
    }

    /// Its features: the index of the row, the value, and whether it is the intercept.
    #[inline(always)]
    pub fn features(self) -> impl Iterator<Item = (usize, f32, bool)> + 'a {
        let places = self.places.iter().zip(self.values);
        places.zip(self.keys).map(|((&at, &x), &key)| (at as usize, x, key == INTERCEPT_KEY))
    }
}

/// A model that learns by gradients from examples with labels.
pub trait Model {
    /// The model's name in `--model`. The names of its tables begin with it.
    fn name(&self) -> &'static str;

    /// The kind of its outputs.
    fn task(&self) -> Objective;

    /// The table with a row for each feature key.
    fn sparse(&self) -> Schema;

    /// Tables whose rows every example needs, with their numbers of rows. The keys of a table with n rows are 0 to n
    /// - 1.
    fn dense(&self) -> Vec<(Schema, u64)> {
        Vec::new()
    }

    /// Checks that an example has the shape that the model needs.
    ///
    /// # Errors
    /// What the example must be.
    fn check(&self, example: Example<'_>) -> Result<(), String> {
        let _ = example;
        Ok(())
    }

    /// Learns a batch: predicts each example, and then descends along the gradients of its loss.
    ///
    /// # Errors
    /// The rows are to be replayed, and their rule cannot replay.
    fn learn(&mut self, step: BatchStep<'_>) -> Result<(), BackendError>;

    /// Calls `each` with the number and the outputs ([`Objective::outputs`] of them) of every example of a batch.
    /// `rows` are those of a [`BatchStep`].
    fn score(&mut self, batch: &Batch, rows: &mut [BatchRows], each: &mut dyn FnMut(usize, &mut [f32]));

    /// What the features of example `i` of a batch contribute to its output. `rows` are those of a [`BatchStep`].
    fn explain(&mut self, batch: &Batch, i: usize, rows: &mut [BatchRows]) -> Contributions;
}

/// Settings of a model's tables.
#[derive(Clone, Copy, Debug)]
pub struct ModelSettings {
    /// The update rule of all tables.
    pub rule: Rule,
    /// How the rows of features store their weights. The layers of a network are always f32.
    pub row_type: RowType,
    /// The transform of gradients before the rule.
    pub shaping: GradientTransform,
    /// Which push of a key creates its row.
    pub admission: Admission,
    /// Seed of initial values.
    pub seed: u64,
    /// Standard deviation of the initial factors.
    pub deviation: f32,
    /// Each example that has a weight adds `l2` times the weight to its gradient. Intercepts have no such term.
    pub l2: f32,
}

impl ModelSettings {
    /// Checks that rows of features can have the [row type](Self::row_type): `schema` is that of a model with these
    /// settings.
    ///
    /// # Errors
    /// The rule stores no weights, or no segment of a row has more than one.
    pub fn check_row_type(&self, schema: &Schema) -> Result<(), SchemaError> {
        schema.with_row_type(self.row_type).map(drop)
    }

    /// The schema with the [row type](Self::row_type), if it can have it.
    fn in_row_type(&self, schema: Schema) -> Schema {
        schema.with_row_type(self.row_type).unwrap_or(schema)
    }

    /// A table of `dim` weights a row, initially 0.
    fn zeros(&self, name: &str, dim: usize) -> Schema {
        let ModelSettings { shaping, admission, seed, .. } = *self;
        let dim = dim as u32;
        Schema { dim, shaping, admission, seed, ..Schema::scalar(name, self.rule) }
    }

    /// A table of one weight, initially 0, and `factors` random factors.
    fn factors(&self, name: &str, factors: usize) -> Schema {
        let ModelSettings { rule, shaping, deviation, .. } = *self;
        let init = Init::Normal { mean: 0.0, deviation };
        let segment = Segment { dim: factors as u32, rule, shaping, init };
        Schema { more: vec![segment], ..self.zeros(name, 1) }
    }
}

#[cfg(test)]
mod gradients;
