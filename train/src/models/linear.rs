//! Linear regression by least squares: y = w . x, with the intercept among the features. A row is one weight.

use super::{BatchRows, Example, Model, ModelSettings, Objective};
use gannet_core::Schema;

/// Linear regression.
pub struct Linear {
    settings: ModelSettings,
}

impl Linear {
    /// A model with these settings.
    pub fn new(settings: ModelSettings) -> Linear {
        Linear { settings }
    }
}

impl Model for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn task(&self) -> Objective {
        Objective::Number
    }

    fn sparse(&self) -> Schema {
        self.settings.zeros(self.name(), 1)
    }

    fn forward(&mut self, example: Example<'_>, rows: &[BatchRows], outputs: &mut [f32]) {
        outputs[0] = example.features().map(|(at, x, _)| rows[0].weights(at)[0] * x).sum();
    }

    /// The derivative by a weight is error * x.
    fn backward(&mut self, example: Example<'_>, errors: &[f32], rows: &mut [BatchRows]) {
        for (at, x, intercept) in example.features() {
            let l2 = if intercept { 0.0 } else { self.settings.l2 };
            let gradient = errors[0] * x + l2 * rows[0].weights(at)[0];
            rows[0].descend(at, &[gradient]);
        }
    }
}
