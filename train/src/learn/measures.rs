//! Objectives: the kind of outputs, their loss, and measures over many examples.

use crate::learn::metrics::{Metrics, Quality, log_loss, sigmoid};
use crate::read::block::Block;
use crate::read::formats::labels::Labels;

/// What a model predicts, and how far off a prediction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Whether a label is 1. One output, the margin; the loss is log loss.
    Click,
    /// Whether a label is 1. One output, the margin, whose sign decides; the loss is the hinge loss
    /// `max(0, 1 - s margin)`, where s is 1 for label 1 and -1 for label 0.
    Separation,
    /// A number. One output.
    Number(NumberLoss),
    /// One of so many classes. One output for each class, the logits. The loss is the cross-entropy of their softmax.
    Class(usize),
}

/// The loss of a predicted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberLoss {
    /// Half the square of the error.
    Squared,
    /// Half the deviance of a Poisson distribution, whose mean is the exponential of the output. For counts.
    Poisson,
    /// The pinball loss of Koenker and Bassett ("Regression quantiles", 1978). The prediction is this quantile of the
    /// labels, in millionths: 900,000 is the value that nine labels of ten do not exceed.
    Quantile(u32),
}

impl NumberLoss {
    /// The share of labels below the predicted quantile.
    fn share(millionths: u32) -> f64 {
        f64::from(millionths) / 1e6
    }

    /// The predicted number.
    fn prediction(self, output: f32) -> f32 {
        if self == NumberLoss::Poisson { output.exp() } else { output }
    }

    /// The derivative of the loss by the output.
    fn error(self, output: f32, label: f32) -> f32 {
        match self {
            NumberLoss::Squared | NumberLoss::Poisson => self.prediction(output) - label,
            // An output that is not finite has a derivative that is not.
            NumberLoss::Quantile(of) => {
                (f64::from(u8::from(output > label)) - NumberLoss::share(of)) as f32 + output * 0.0
            }
        }
    }

    fn loss(self, output: f32, label: f32) -> f64 {
        match self {
            NumberLoss::Squared => f64::from(output - label).powi(2) / 2.0,
            NumberLoss::Poisson => {
                // In logarithms, so that a prediction that rounds to 0 has a finite loss.
                let (y, margin) = (f64::from(label), f64::from(output));
                let entropy = if y > 0.0 { y * (y.ln() - margin) } else { 0.0 };
                entropy - y + margin.exp()
            }
            NumberLoss::Quantile(of) => {
                let (share, under) = (NumberLoss::share(of), f64::from(label - output));
                (share * under).max((share - 1.0) * under)
            }
        }
    }

    /// The mean loss as reports show it: the root of the mean squared error, the mean deviance, the mean pinball loss.
    fn shown(self, mean: f64) -> f64 {
        match self {
            NumberLoss::Squared => (2.0 * mean).sqrt(),
            NumberLoss::Poisson => 2.0 * mean,
            NumberLoss::Quantile(_) => mean,
        }
    }
}

/// 1 for label 1, and -1 for label 0.
fn side(label: f32) -> f32 {
    if label > 0.0 { 1.0 } else { -1.0 }
}

impl Objective {
    /// The number of outputs of an example.
    pub fn outputs(self) -> usize {
        if let Objective::Class(classes) = self { classes } else { 1 }
    }

    /// Whether labels are 1 and 0.
    pub fn is_of_two(self) -> bool {
        matches!(self, Objective::Click | Objective::Separation)
    }

    /// The kind of labels.
    pub fn labels(self) -> Labels {
        match self {
            Objective::Click | Objective::Separation => Labels::Signs,
            Objective::Number(NumberLoss::Poisson) => Labels::Counts,
            Objective::Number(_) => Labels::Numbers,
            Objective::Class(classes) => Labels::Classes(classes as u32),
        }
    }

    /// Replaces the outputs by the derivatives of the example's loss. For log loss, squared loss, deviance and
    /// cross-entropy they are prediction minus label.
    pub fn errors(self, outputs: &mut [f32], label: f32) {
        match self {
            Objective::Click => outputs[0] = sigmoid(outputs[0]) - label,
            Objective::Separation => {
                let side = side(label);
                // A margin that is not finite has a derivative that is not.
                outputs[0] = if side * outputs[0] < 1.0 { -side } else { outputs[0] * 0.0 };
            }
            Objective::Number(loss) => outputs[0] = loss.error(outputs[0], label),
            Objective::Class(_) => {
                softmax(outputs);
                outputs[label as usize] -= 1.0;
            }
        }
    }

    /// The mean loss as reports show it: the root of the mean squared error where numbers are predicted by least
    /// squares, and the deviance where they are counts.
    pub fn mean(self, loss: f64) -> f64 {
        if let Objective::Number(of) = self { of.shown(loss) } else { loss }
    }

    /// The loss of an example, in nats where the outputs are probabilities.
    pub fn loss(self, outputs: &[f32], label: f32) -> f64 {
        match self {
            Objective::Click => log_loss(outputs[0], label),
            Objective::Separation => f64::from(1.0 - side(label) * outputs[0]).max(0.0),
            Objective::Number(loss) => loss.loss(outputs[0], label),
            Objective::Class(_) => {
                let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = outputs.iter().map(|&o| f64::from(o - most).exp()).sum();
                sum.ln() - f64::from(outputs[label as usize] - most)
            }
        }
    }

    /// The number that an output predicts: a count for [`NumberLoss::Poisson`], else the output.
    pub fn number(self, output: f32) -> f32 {
        if let Objective::Number(loss) = self { loss.prediction(output) } else { output }
    }

    /// Makes predictions of the outputs of an example: the probability of label 1, that of each class, or the number. A
    /// margin of the hinge loss stays.
    pub fn predict(self, outputs: &mut [f32]) {
        match self {
            Objective::Click => outputs[0] = sigmoid(outputs[0]),
            Objective::Separation => {}
            Objective::Number(_) => outputs[0] = self.number(outputs[0]),
            Objective::Class(_) => drop(softmax(outputs)),
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
    /// The kind of loss.
    pub of: NumberLoss,
    /// The mean of that loss: the root of the mean squared error, the mean deviance, or the mean pinball loss.
    pub loss: f64,
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

/// The quality of margins whose sign predicts the label. Means weigh examples by their importance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Separated {
    /// Examples with a label.
    pub examples: u64,
    /// Mean hinge loss.
    pub hinge: f64,
    /// Area under the ROC curve. `None` when all labels are the same.
    pub auc: Option<f64>,
    /// Share of examples whose margin has the sign of the label.
    pub accuracy: f64,
}

/// The quality of predictions.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// Of click predictions.
    Click(Box<Quality>),
    /// Of margins.
    Separation(Separated),
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

    /// The measure that training makes small, as reports show it.
    pub fn loss(&self) -> f64 {
        match self {
            Measured::Click(q) => q.log_loss,
            Measured::Separation(q) => q.hinge,
            Measured::Number(q) => q.loss,
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
    squares: f64,
    right: f64,
    /// The labels' mean so far, and the sum of their squared distances from it.
    labels: (f64, f64),
}

impl Measures {
    /// Measures for an objective. With `exact` the AUC is exact, for test sets. Otherwise it needs constant memory,
    /// for training.
    pub fn new(task: Objective, exact: bool) -> Measures {
        let metrics = if exact { Metrics::exact } else { Metrics::streaming };
        let clicks = task.is_of_two().then(metrics);
        let (mass, loss, absolute, squares, right, labels) = (0.0, 0.0, 0.0, 0.0, 0.0, (0.0, 0.0));
        Measures { task, clicks, examples: 0, mass, loss, absolute, squares, right, labels }
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

    /// Adds an example of a block that was scored.
    pub(crate) fn add_scored(&mut self, block: &Block, i: usize, outputs: &[f32]) {
        match (self.task, &mut self.clicks) {
            (Objective::Click, Some(clicks)) => {
                clicks.add_scored(block, i, outputs[0]);
                self.examples += u64::from(!block.labels[i].is_nan());
                (self.mass, self.loss) = clicks.sums();
            }
            _ => self.add(outputs, block.labels[i], block.importance(i)),
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
            if self.task == Objective::Click {
                (self.mass, self.loss) = clicks.sums();
                return;
            }
        }
        let mass = f64::from(importance);
        self.mass += mass;
        self.loss += mass * self.task.loss(outputs, label);
        match self.task {
            Objective::Click => {}
            Objective::Separation => {
                self.right += if (outputs[0] > 0.0) == (label > 0.0) { mass } else { 0.0 }
            }
            Objective::Number(_) => {
                let error = f64::from(self.task.number(outputs[0]) - label);
                self.absolute += mass * error.abs();
                self.squares += mass * error * error;
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
        let Measures { examples, mass, absolute, squares, right, .. } = *self;
        if mass <= 0.0 {
            return None;
        }
        let loss = self.loss();
        match self.task {
            Objective::Click => {
                self.clicks.as_mut()?.quality().map(|quality| Measured::Click(Box::new(quality)))
            }
            Objective::Separation => {
                let auc = self.clicks.as_mut()?.quality().and_then(|quality| quality.auc);
                Some(Measured::Separation(Separated { examples, hinge: loss, auc, accuracy: right / mass }))
            }
            Objective::Number(of) => {
                let rmse = if of == NumberLoss::Squared { loss } else { (squares / mass).sqrt() };
                let deviation = (self.labels.1 / mass).sqrt();
                Some(Measured::Number(Estimated {
                    examples,
                    of,
                    loss,
                    rmse,
                    mae: absolute / mass,
                    deviation,
                }))
            }
            Objective::Class(_) => {
                Some(Measured::Class(Classified { examples, log_loss: loss, accuracy: right / mass }))
            }
        }
    }
}
