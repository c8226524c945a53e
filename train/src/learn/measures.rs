//! Objectives: the kind of outputs, their loss, and measures over many examples.

use crate::learn::metrics::{Metrics, Quality, log_loss, sigmoid};
use crate::read::formats::labels::Labels;

/// What a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Whether a label is 1. One output, the margin; the loss is log loss.
    Click,
    /// A number. One output; the loss is half the square of the error.
    Number,
    /// One of so many classes. One output for each class, the logits. The loss is the cross-entropy of their softmax.
    Class(usize),
}

impl Objective {
    /// The number of outputs of an example.
    pub fn outputs(self) -> usize {
        match self {
            Objective::Click | Objective::Number => 1,
            Objective::Class(classes) => classes,
        }
    }

    /// The kind of labels.
    pub fn labels(self) -> Labels {
        match self {
            Objective::Click => Labels::Signs,
            Objective::Number => Labels::Numbers,
            Objective::Class(classes) => Labels::Classes(classes as u32),
        }
    }

    /// Replaces the outputs by the derivatives of the example's loss. For all three losses they are prediction minus
    /// label.
    pub fn errors(self, outputs: &mut [f32], label: f32) {
        match self {
            Objective::Click => outputs[0] = sigmoid(outputs[0]) - label,
            Objective::Number => outputs[0] -= label,
            Objective::Class(_) => {
                softmax(outputs);
                outputs[label as usize] -= 1.0;
            }
        }
    }

    /// The mean loss as reports show it: the root of the mean squared error where numbers are predicted.
    pub fn mean(self, loss: f64) -> f64 {
        if self == Objective::Number { (2.0 * loss).sqrt() } else { loss }
    }

    /// The loss of an example, in nats where the outputs are probabilities.
    pub fn loss(self, outputs: &[f32], label: f32) -> f64 {
        match self {
            Objective::Click => log_loss(outputs[0], label),
            Objective::Number => f64::from(outputs[0] - label).powi(2) / 2.0,
            Objective::Class(_) => {
                let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = outputs.iter().map(|&o| f64::from(o - most).exp()).sum();
                sum.ln() - f64::from(outputs[label as usize] - most)
            }
        }
    }
}

/// Turns logits into probabilities. Returns the highest logit, and the sum of the exponentials of the distances from
/// it.
pub(crate) fn softmax(logits: &mut [f32]) -> (f32, f32) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter_mut().for_each(|o| *o = (*o - most).exp());
    let sum: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|o| *o /= sum);
    (most, sum)
}

/// The class of the highest output, the first one among equals.
pub(crate) fn highest(outputs: &[f32]) -> usize {
    (1..outputs.len()).fold(0, |best, at| if outputs[at] > outputs[best] { at } else { best })
}

/// The quality of predicted numbers. Means weigh examples by their importance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// Examples with a label.
    pub examples: u64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// The standard deviation of the labels: the error of a constant prediction of their mean.
    pub deviation: f64,
}

/// The quality of predicted classes. Means weigh examples by their importance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Classified {
    /// Examples with a label.
    pub examples: u64,
    /// Mean cross-entropy, nats.
    pub log_loss: f64,
    /// Share of examples whose class has the highest output.
    pub accuracy: f64,
}

/// The quality of predictions.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// Of click predictions.
    Click(Box<Quality>),
    /// Of predicted numbers.
    Number(Estimated),
    /// Of predicted classes.
    Class(Classified),
}

impl Measured {
    /// The quality of predictions of clicks, if it is that.
    pub fn click(&self) -> Option<&Quality> {
        match self {
            Measured::Click(quality) => Some(quality),
            _ => None,
        }
    }

    /// The measure that training makes small: log loss, or the root of the mean squared error.
    pub fn loss(&self) -> f64 {
        match self {
            Measured::Click(q) => q.log_loss,
            Measured::Number(q) => q.rmse,
            Measured::Class(q) => q.log_loss,
        }
    }
}

/// Sums over a stream of outputs.
pub struct Measures {
    task: Objective,
    clicks: Option<Metrics>,
    examples: u64,
    mass: f64,
    loss: f64,
    absolute: f64,
    right: f64,
    /// The labels' mean so far, and the sum of their squared distances from it.
    labels: (f64, f64),
}

impl Measures {
    /// Measures for an objective. With `exact` the AUC is exact, for test sets. Otherwise it needs constant memory,
    /// for training.
    pub fn new(task: Objective, exact: bool) -> Measures {
        let metrics = if exact { Metrics::exact } else { Metrics::streaming };
        let clicks = (task == Objective::Click).then(metrics);
        let (mass, loss, absolute, right, labels) = (0.0, 0.0, 0.0, 0.0, (0.0, 0.0));
        Measures { task, clicks, examples: 0, mass, loss, absolute, right, labels }
    }

    /// [`add`](Self::add), and then [`Objective::errors`]: both need the exponentials of the outputs.
    pub(crate) fn add_and_derive(&mut self, outputs: &mut [f32], label: f32, importance: f32) {
        let mass = f64::from(importance);
        match (self.task, &mut self.clicks) {
            _ if label.is_nan() => self.task.errors(outputs, label),
            (Objective::Click, Some(clicks)) => {
                let predicted = sigmoid(outputs[0]);
                clicks.add_predicted(outputs[0], predicted, label, importance);
                self.examples += 1;
                (self.mass, self.loss) = clicks.sums();
                outputs[0] = predicted - label;
            }
            (Objective::Class(_), _) => {
                let (class, output) = (highest(outputs), outputs[label as usize]);
                let (most, sum) = softmax(outputs);
                self.examples += 1;
                self.mass += mass;
                self.loss += mass * (f64::from(sum).ln() - f64::from(output - most));
                self.right += if class == label as usize { mass } else { 0.0 };
                outputs[label as usize] -= 1.0;
            }
            _ => {
                self.add(outputs, label, importance);
                self.task.errors(outputs, label);
            }
        }
    }

    /// Adds one example of this importance. An example without a label (NaN) does not count.
    pub fn add(&mut self, outputs: &[f32], label: f32, importance: f32) {
        if label.is_nan() {
            return;
        }
        self.examples += 1;
        if let Some(clicks) = &mut self.clicks {
            clicks.add(outputs[0], label, importance);
            (self.mass, self.loss) = clicks.sums();
            return;
        }
        let mass = f64::from(importance);
        self.mass += mass;
        self.loss += mass * self.task.loss(outputs, label);
        match self.task {
            Objective::Click => {}
            Objective::Number => {
                self.absolute += mass * f64::from((outputs[0] - label).abs());
                let (label, (mean, squares)) = (f64::from(label), self.labels);
                let next = if self.mass > 0.0 { mean + (label - mean) * mass / self.mass } else { mean };
                self.labels = (next, squares + mass * (label - mean) * (label - next));
            }
            Objective::Class(_) => self.right += if highest(outputs) == label as usize { mass } else { 0.0 },
        }
    }

    /// The sum of the examples' importance, and the sum of their losses times it, so far.
    pub(crate) fn sums(&self) -> (f64, f64) {
        (self.mass, self.loss)
    }

    /// The measure that training makes small, so far. NaN without examples. Cheap to compute.
    pub fn loss(&self) -> f64 {
        self.task.mean(self.loss / self.mass)
    }

    /// All measures. `None` when the importance of all examples sums to 0.
    pub fn measured(&mut self) -> Option<Measured> {
        let Measures { examples, mass, absolute, right, .. } = *self;
        if mass <= 0.0 {
            return None;
        }
        let loss = self.loss();
        match self.task {
            Objective::Click => {
                self.clicks.as_mut()?.quality().map(|quality| Measured::Click(Box::new(quality)))
            }
            Objective::Number => {
                let deviation = (self.labels.1 / mass).sqrt();
                Some(Measured::Number(Estimated { examples, rmse: loss, mae: absolute / mass, deviation }))
            }
            Objective::Class(_) => {
                Some(Measured::Class(Classified { examples, log_loss: loss, accuracy: right / mass }))
            }
        }
    }
}
