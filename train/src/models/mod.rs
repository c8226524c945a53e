//! Models beside logistic regression, each a small file over [`Tables`](crate::Tables): a forward pass from an
//! example's rows to its outputs, and a backward pass from the errors of the outputs to the rows' gradients.
//! [`fit`](fn@fit) trains them, [`score`](fn@score) and [`forecast`] score; [`Lda`], which learns no gradient, has a
//! loop of its own.

mod deepfm;
mod fit;
mod fitted;
mod fm;
mod gamma;
mod lda;
mod linear;
mod measures;
mod mf;
mod rows;
mod score;
mod softmax;

pub use deepfm::DeepFm;
pub use fit::{FitWatch, fit, fit_watched, push_of};
pub use fitted::{Fitted, Fitting};
pub use fm::FactorizationMachine;
pub use lda::{Lda, Sampled, Sampling, Topics};
pub use linear::Linear;
pub use measures::{Classified, Estimated, Measured, Measures, Objective};
pub use mf::Factorization;
pub use rows::BatchRows;
pub use score::{Forecast, forecast, score};
pub use softmax::Softmax;

use crate::batch::Batch;
use crate::read::block::INTERCEPT_KEY;
use gannet_core::{Admission, Init, Schema, Segment};
use gannet_optim::{GradientTransform, Rule};

/// An example as a model sees it: feature `i` has key `keys[i]`, whose row is `places[i]` of the batch's, and value
/// `values[i]`; no key twice.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a> {
    /// Keys of its features.
    pub keys: &'a [u64],
    /// Where their rows are among the batch's.
    pub places: &'a [u32],
    /// Their values.
    pub values: &'a [f32],
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
        Example { keys, places: &batch.local[range], values }
    }

    /// Its features: where the row is, the value, and whether it is the intercept.
    #[inline(always)]
    pub fn features(self) -> impl Iterator<Item = (usize, f32, bool)> + 'a {
        let places = self.places.iter().zip(self.values);
        places.zip(self.keys).map(|((&at, &x), &key)| (at as usize, x, key == INTERCEPT_KEY))
    }
}

/// What is learned from examples with labels by gradients.
pub trait Model {
    /// What `--model` calls it; its tables' names begin so.
    fn name(&self) -> &'static str;

    /// What its outputs are.
    fn task(&self) -> Objective;

    /// The table whose rows are named by the examples' keys.
    fn sparse(&self) -> Schema;

    /// Tables of which every example needs all rows, keys 0 to one below the number.
    fn dense(&self) -> Vec<(Schema, u64)> {
        Vec::new()
    }

    /// Whether an example is of the shape that the model needs.
    ///
    /// # Errors
    /// What it must be.
    fn check(&self, example: Example<'_>) -> Result<(), String> {
        let _ = example;
        Ok(())
    }

    /// The outputs of an example, [`Objective::outputs`] of them. `rows[0]` are the batch's rows, the others those of
    /// [`dense`](Self::dense), in order.
    fn forward(&mut self, example: Example<'_>, rows: &[BatchRows], outputs: &mut [f32]);

    /// Descends along the gradients of the example that [`forward`](Self::forward) saw last, `errors` being those of
    /// its loss with respect to the outputs.
    fn backward(&mut self, example: Example<'_>, errors: &[f32], rows: &mut [BatchRows]);
}

/// What the tables of a model are made with.
#[derive(Clone, Copy, Debug)]
pub struct ModelSettings {
    /// The update rule, of all tables.
    pub rule: Rule,
    /// What stands before the rule.
    pub shaping: GradientTransform,
    /// Which push of a key creates its row.
    pub admission: Admission,
    /// Seed of initial values.
    pub seed: u64,
    /// Standard deviation of the initial factors.
    pub deviation: f32,
    /// The gradient of a weight gets `l2` times the weight, in each example that has it; intercepts do not.
    pub l2: f32,
}

impl ModelSettings {
    /// A table of `dim` weights a row, all 0 at first.
    fn zeros(&self, name: &str, dim: usize) -> Schema {
        let ModelSettings { shaping, admission, seed, .. } = *self;
        let dim = dim as u32;
        Schema { dim, shaping, admission, seed, ..Schema::scalar(name, self.rule) }
    }

    /// A table of one weight, 0 at first, and `factors` factors by chance.
    fn factors(&self, name: &str, factors: usize) -> Schema {
        let ModelSettings { rule, shaping, deviation, .. } = *self;
        let init = Init::Normal { mean: 0.0, deviation };
        let segment = Segment { dim: factors as u32, rule, shaping, init };
        Schema { more: vec![segment], ..self.zeros(name, 1) }
    }
}

#[cfg(test)]
mod gradients;
