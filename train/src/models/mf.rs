//! Matrix factorization with biases: the rating of user u for item i is mu + b_u + b_i + p_u . q_i (Koren, Bell,
//! Volinsky, "Matrix factorization techniques for recommender systems", 2009). An example has two features of value
//! 1, the user and the item. The intercept is mu. A row has a bias and the factors, in two segments.

use super::{BatchRows, Example, Model, ModelSettings, Objective};
use gannet_core::Schema;

/// Matrix factorization.
pub struct Factorization {
    settings: ModelSettings,
    factors: usize,
    /// The gradient of the user's row and of the item's row: the bias, then the factors.
    gradients: [Vec<f32>; 2],
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
        let gradients = [vec![0.0; 1 + factors], vec![0.0; 1 + factors]];
        Factorization { settings, factors, gradients }
    }

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
        Objective::Number
    }

    fn sparse(&self) -> Schema {
        self.settings.factors(self.name(), self.factors)
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

    fn forward(&mut self, example: Example<'_>, rows: &[BatchRows], outputs: &mut [f32]) {
        let UserItem { sides, intercept } = Factorization::pair(example);
        let [user, item] = sides.map(|at| rows[0].weights(at));
        let mean = intercept.map_or(0.0, |at| rows[0].weights(at)[0]);
        let product: f32 = user[1..].iter().zip(&item[1..]).map(|(p, q)| p * q).sum();
        outputs[0] = mean + user[0] + item[0] + product;
    }

    /// The derivative by a bias is the error, by p_u it is error * q_i, and by q_i it is error * p_u. Each weight
    /// adds its own `l2` term.
    fn backward(&mut self, example: Example<'_>, errors: &[f32], rows: &mut [BatchRows]) {
        let (UserItem { sides, intercept }, error) = (Factorization::pair(example), errors[0]);
        for (side, gradient) in self.gradients.iter_mut().enumerate() {
            let (own, other) = (rows[0].weights(sides[side]), rows[0].weights(sides[1 - side]));
            gradient[0] = error;
            gradient[1..].copy_from_slice(&other[1..]);
            gradient[1..].iter_mut().for_each(|g| *g *= error);
            gradient.iter_mut().zip(own).for_each(|(g, w)| *g += self.settings.l2 * w);
        }
        for (&at, gradient) in sides.iter().zip(&self.gradients) {
            rows[0].descend(at, gradient);
        }
        if let Some(at) = intercept {
            let gradient = &mut self.gradients[0];
            gradient.fill(0.0);
            gradient[0] = error;
            rows[0].descend(at, gradient);
        }
    }
}
