//! Weights of the two classes of labels: how often an example counts in the training.

use crate::read::block::Block;
use std::fmt;
use std::str::FromStr;

/// How often an example of each class counts. Its importance is multiplied by the weight of its label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassWeights {
    /// The weight of examples with the label 1: finite, and above 0.
    pub positive: f32,
    /// That of all others.
    pub negative: f32,
}

impl ClassWeights {
    /// Weights with which both classes count alike, and all together as often as before: `n / (2 n_c)` for the `n_c` of
    /// `n` examples of a class, as scikit-learn has it. `None`: one class has no examples.
    ///
    /// ```
    /// use gannet_train::ClassWeights;
    ///
    /// let weights = ClassWeights::balanced(1.0, 3.0).unwrap();
    /// assert_eq!(weights.to_string(), "2:0.6666667");
    /// assert_eq!(ClassWeights::balanced(0.0, 3.0), None);
    /// ```
    pub fn balanced(positives: f64, negatives: f64) -> Option<ClassWeights> {
        let of = |count: f64| ((positives + negatives) / (2.0 * count)) as f32;
        let both = positives > 0.0 && negatives > 0.0;
        both.then(|| ClassWeights { positive: of(positives), negative: of(negatives) })
    }

    /// Multiplies the importances of a block.
    pub(crate) fn apply(self, block: &mut Block) {
        block.importances.resize(block.labels.len(), 1.0);
        for (importance, &label) in block.importances.iter_mut().zip(&block.labels) {
            *importance *= if label == 1.0 { self.positive } else { self.negative };
        }
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.positive, self.negative)
    }
}

impl FromStr for ClassWeights {
    type Err = String;

    /// Reads `POSITIVE:NEGATIVE`, such as `10:1`.
    fn from_str(text: &str) -> Result<ClassWeights, String> {
        let number =
            |text: &str| text.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
        let two = text.split_once(':');
        let two = two.and_then(|(positive, negative)| Some((number(positive)?, number(negative)?)));
        let (positive, negative) = two.ok_or(
            "two numbers above 0 are wanted, such as 10:1: the weight of the label 1, and of the others",
        )?;
        Ok(ClassWeights { positive, negative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_multiply_importances() {
        let mut block = Block { labels: vec![1.0, 0.0, 1.0], importances: vec![2.0], ..Block::default() };
        "3:0.5".parse::<ClassWeights>().unwrap().apply(&mut block);
        assert_eq!(block.importances, [6.0, 0.5, 3.0]);
    }

    #[test]
    fn texts_that_are_no_weights_are_refused() {
        for text in ["", "1", "1:", "0:1", "1:-1", "nan:1", "1:inf", "1:2:3", "a:b"] {
            assert!(text.parse::<ClassWeights>().unwrap_err().contains("such as 10:1"), "{text}");
        }
    }
}
