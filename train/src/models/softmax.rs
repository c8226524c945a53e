//! Softmax regression (multinomial logistic regression): the logit of class c is w_c . x, with the intercept among
//! the features. A feature's row has a weight for each class (Bishop, Pattern Recognition and Machine Learning, 2006,
//! section 4.3.4).

use super::{BatchRows, Example, Model, ModelSettings, Objective};
use gannet_core::Schema;

/// Softmax regression.
pub struct Softmax {
    settings: ModelSettings,
    classes: usize,
    gradient: Vec<f32>,
}

impl Softmax {
    /// A model for so many classes.
    pub fn new(settings: ModelSettings, classes: usize) -> Softmax {
        Softmax { settings, classes, gradient: vec![0.0; classes] }
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
        self.settings.zeros(self.name(), self.classes)
    }

    fn forward(&mut self, example: Example<'_>, rows: &[BatchRows], outputs: &mut [f32]) {
        outputs.fill(0.0);
        for (at, x, _) in example.features() {
            outputs.iter_mut().zip(rows[0].weights(at)).for_each(|(logit, w)| *logit += w * x);
        }
    }

    /// The derivative by a weight of class c is error_c * x.
    fn backward(&mut self, example: Example<'_>, errors: &[f32], rows: &mut [BatchRows]) {
        for (at, x, intercept) in example.features() {
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            let weights = rows[0].weights(at).iter().zip(errors);
            self.gradient.iter_mut().zip(weights).for_each(|(g, (w, e))| *g = e * x + l2 * w);
            rows[0].descend(at, &self.gradient);
        }
    }
}
