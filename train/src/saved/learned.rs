//! What the features of a saved model have learned.

/// What the row of a feature says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedFeature {
    /// Its key.
    pub key: u64,
    /// Its weight; of several classes the one that is farthest from 0.
    pub weight: f32,
    /// The class of that weight; 0 where there are no classes.
    pub class: usize,
    /// The length of its vector of factors; 0 without one.
    pub length: f32,
}

impl LearnedFeature {
    /// What a row of weights says. `is_of_classes`: they are the weights of several classes.
    pub(super) fn of(key: u64, weights: &[f32], is_of_classes: bool) -> LearnedFeature {
        if is_of_classes {
            let farther = |a: usize, b: usize| if weights[b].abs() > weights[a].abs() { b } else { a };
            let class = (1..weights.len()).fold(0, farther);
            return LearnedFeature { key, weight: weights[class], class, length: 0.0 };
        }
        let length = weights[1..].iter().fold(0.0, |sum, v| sum + v * v).sqrt();
        LearnedFeature { key, weight: weights[0], class: 0, length }
    }

    /// How much the feature can matter: the size of its weight or of its factors.
    pub fn size(&self) -> f32 {
        self.weight.abs().max(self.length)
    }
}
