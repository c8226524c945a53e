//! Softmax regression (multinomial logistic regression): the logit of class c is w_c . x, with the intercept among
//! the features. A feature's row has a weight for each class (Bishop, Pattern Recognition and Machine Learning, 2006,
//! section 4.3.4). A register holds some classes; a logit adds its features in their order.

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::learned_rows::{LearnedRows, ScaledVector};
use super::{BatchRows, Example, Model, ModelSettings, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::Schema;
use gannet_optim::Isa;

/// Softmax regression.
pub struct Softmax {
    settings: ModelSettings,
    classes: usize,
}

impl Softmax {
    /// A model for so many classes.
    pub fn new(settings: ModelSettings, classes: usize) -> Softmax {
        Softmax { settings, classes }
    }
}

/// The sums of w x over the features, for the `N` registers of coordinates from `from` on. The last register ends at
/// the last coordinate, and may overlap the one before it. With `WHOLE` a row has at least as many weights as a
/// register.
#[inline(always)]
fn sum_features<I: Isa, R: LearnedRows<I>, const N: usize, const WHOLE: bool>(
    isa: I,
    example: Example<'_>,
    rows: &R,
    from: usize,
    sums: &mut [f32],
) {
    let dim = sums.len();
    let n = if WHOLE { I::LANES } else { dim };
    let (mut starts, mut lanes) = ([0; N], [isa.splat(0.0); N]);
    for (k, start) in starts.iter_mut().enumerate() {
        *start = (from + k * I::LANES).min(dim - n);
    }
    for (at, x, _) in example.features() {
        let (row, x) = (rows.weights(at, 0), isa.splat(x));
        for (sum, &start) in lanes.iter_mut().zip(&starts) {
            *sum = *sum + isa.load(&row[start..][..n]) * x;
        }
    }
    for (sum, &start) in lanes.into_iter().zip(&starts) {
        isa.store(sum, &mut sums[start..][..n]);
    }
}

impl Model for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn task(&self) -> Objective {
        Objective::Class(self.classes)
    }

    fn sparse(&self) -> Schema {
        self.settings.in_row_type(self.settings.zeros(self.name(), self.classes))
    }

    fn learn(&mut self, step: BatchStep<'_>) -> Result<(), BackendError> {
        learn(self, step)
    }

    fn score(&mut self, batch: &Batch, rows: &mut [BatchRows], each: &mut dyn FnMut(usize, &mut [f32])) {
        score(self, batch, rows, each);
    }

    fn explain(&mut self, batch: &Batch, i: usize, rows: &mut [BatchRows]) -> Contributions {
        let rows = contributions::to_read(rows);
        let of = |output| contributions::linear(batch, i, &rows[0], output);
        let logit = |output| of(output).iter().sum::<f64>();
        let higher = |a: usize, b: usize| if logit(b) > logit(a) { b } else { a };
        let output = (1..self.classes).fold(0, higher);
        Contributions { output, features: of(output), rest: 0.0 }
    }
}

impl Passes for Softmax {
    fn task(&self) -> Objective {
        Objective::Class(self.classes)
    }

    fn lane_dim(&self) -> usize {
        self.classes
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
        let dim = outputs.len();
        if dim < I::LANES {
            return sum_features::<I, R, 1, false>(isa, example, rows, 0, outputs);
        }
        let mut from = 0;
        while from < dim {
            match (dim - from).div_ceil(I::LANES) {
                1 => sum_features::<I, R, 1, true>(isa, example, rows, from, outputs),
                2 => sum_features::<I, R, 2, true>(isa, example, rows, from, outputs),
                _ => sum_features::<I, R, 4, true>(isa, example, rows, from, outputs),
            }
            from += 4 * I::LANES;
        }
    }

    /// The derivative by a weight of class c is error_c * x.
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
            rows.descend(at, 0, &ScaledVector { factor: x, vector: errors, l2 });
        }
    }
}
