//! Matrix factorization with biases: the rating of user u for item i is mu + b_u + b_i + p_u . q_i (Koren, Bell,
//! Volinsky, "Matrix factorization techniques for recommender systems", 2009). An example has two features of value
//! 1, the user and the item. The intercept is mu. A row has a bias and the factors, in two segments.

use super::batch_learner::{BatchStep, Passes, learn, score};
use super::contributions::{self, Contributions};
use super::learned_rows::{LearnedRows, ScaledVector};
use super::{BatchRows, Example, Model, ModelSettings, NumberLoss, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_core::Schema;
use gannet_optim::{Isa, dot};

/// The segments of a row.
const BIAS: usize = 0;
const FACTORS: usize = 1;

/// Matrix factorization.
pub struct Factorization {
    settings: ModelSettings,
    factors: usize,
    /// The factors of the user and of the item of the latest example, before its step.
    before: [Vec<f32>; 2],
}

/// The rows of an example.
struct UserItem {
    /// The user's row and the item's row.
    sides: [usize; 2],
    intercept: Option<usize>,
}

impl Factorization {
    /// A model with so many factors a user and an item.
    pub fn new(settings: ModelSettings, factors: usize) -> Factorization {
        Factorization { settings, factors, before: [vec![0.0; factors], vec![0.0; factors]] }
    }

    #[inline(always)]
    fn pair(example: Example<'_>) -> UserItem {
        let mut pair = UserItem { sides: [0; 2], intercept: None };
        let mut side = 0;
        for (at, _, intercept) in example.features() {
            if intercept {
                pair.intercept = Some(at);
            } else {
                pair.sides[side.min(1)] = at;
                side += 1;
            }
        }
        pair
    }
}

impl Model for Factorization {
    fn name(&self) -> &'static str {
        "mf"
    }

    fn task(&self) -> Objective {
        Objective::Number(NumberLoss::Squared)
    }

    fn sparse(&self) -> Schema {
        self.settings.in_row_type(self.settings.factors(self.name(), self.factors))
    }

    fn check(&self, example: Example<'_>) -> Result<(), String> {
        let features = example.features().filter(|f| !f.2);
        let (count, ones) = features.fold((0, true), |(n, ones), (_, x, _)| (n + 1, ones && x == 1.0));
        if count == 2 && ones {
            return Ok(());
        }
        Err(format!(
            "matrix factorization needs two features of value 1, a user and an item, and there are {count} (in CSV name the \
             two columns: --categorical USER,ITEM)"
        ))
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

impl Passes for Factorization {
    fn task(&self) -> Objective {
        Objective::Number(NumberLoss::Squared)
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
        let UserItem { sides: [user, item], intercept } = Factorization::pair(example);
        let mean = intercept.map_or(0.0, |at| rows.weights(at, BIAS)[0]);
        let product = dot(isa, rows.weights(user, FACTORS), rows.weights(item, FACTORS));
        outputs[0] = mean + rows.weights(user, BIAS)[0] + rows.weights(item, BIAS)[0] + product;
    }

    /// The derivative by a bias is the error, by p_u it is error * q_i, and by q_i it is error * p_u. Each weight
    /// adds its own `l2` term.
    #[inline(always)]
    fn backward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        _: I,
        example: Example<'_>,
        errors: &[f32],
        rows: &mut R,
        _: &mut [R],
    ) {
        let (UserItem { sides, intercept }, error) = (Factorization::pair(example), errors[0]);
        for (before, &at) in self.before.iter_mut().zip(&sides) {
            before.copy_from_slice(rows.weights(at, FACTORS));
        }
        let l2 = self.settings.l2;
        for (&at, other) in sides.iter().zip(self.before.iter().rev()) {
            rows.step(at, BIAS, error + l2 * rows.weights(at, BIAS)[0]);
            rows.descend(at, FACTORS, &ScaledVector { factor: error, vector: other, l2 });
        }
        if let Some(at) = intercept {
            rows.step(at, BIAS, error);
        }
    }
}
