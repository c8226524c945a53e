//! Measures of predictions: log loss, accuracy, calibration and AUC of a stream of (margin, label). Means weigh an
//! example by its importance. The AUC and the reliability table count examples.

use crate::learn::auc::Auc;
use crate::learn::grouped_auc::{GroupedAuc, GroupedQuality};
use crate::read::block::Block;

/// The probability of a margin.
#[inline(always)]
pub fn sigmoid(margin: f32) -> f32 {
    1.0 / (1.0 + (-margin).exp())
}

/// Log loss of one example from its margin, in nats: `ln(1 + e^-m)` where `m` is the margin, negated for label 0.
/// Written so that no exponential overflows. NaN for a NaN margin.
#[inline(always)]
pub fn log_loss(margin: f32, label: f32) -> f64 {
    let m = f64::from(if label > 0.5 { margin } else { -margin });
    // `max` would turn NaN into 0.
    let linear = if m > 0.0 { 0.0 } else { -m };
    linear + (-m.abs()).exp().ln_1p()
}

/// Bins of the reliability table.
pub const BINS: usize = 10;

/// One tenth of the range of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Examples whose prediction is in this bin.
    pub examples: u64,
    /// The sum of their predictions.
    pub predicted: f64,
    /// How many of them are positive.
    pub positive: u64,
}

/// The quality of predictions, measured against labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// Examples with a label.
    pub examples: u64,
    /// Mean log loss in nats. Like the other means, it weighs examples by their importance.
    pub log_loss: f64,
    /// AUC. `None` while all examples have the same label.
    pub auc: Option<f64>,
    /// The largest error of the AUC (0: exact).
    pub auc_error: f64,
    /// Share of the examples whose prediction is on the label's side of 1/2.
    pub accuracy: f64,
    /// Mean prediction.
    pub mean_predicted: f64,
    /// Mean label.
    pub mean_label: f64,
    /// The mean AUC within groups, where examples have groups.
    pub grouped: Option<GroupedQuality>,
    /// The ROC curve, from (0, 0) to (1, 1): the shares of negatives and of positives above each threshold. A few
    /// hundred points; empty while all examples have the same label.
    pub roc: Vec<(f64, f64)>,
    /// The reliability table, by tenths of the prediction.
    pub reliability: [Bin; BINS],
}

impl Quality {
    /// Mean prediction divided by mean label: 1 is calibrated. `None` without a positive example.
    pub fn calibration(&self) -> Option<f64> {
        (self.mean_label > 0.0).then(|| self.mean_predicted / self.mean_label)
    }

    /// The log loss divided by that of a constant prediction of the mean label (He et al. 2014): below 1 the
    /// predictions say more than the mean. `None` if all examples have one label.
    pub fn normalized_entropy(&self) -> Option<f64> {
        let mean = self.loss_of_mean();
        (mean > 0.0).then(|| self.log_loss / mean)
    }

    /// The label of all examples, if all have the same.
    pub fn one_class(&self) -> Option<u8> {
        match self.mean_label {
            0.0 => Some(0),
            1.0 => Some(1),
            _ => None,
        }
    }

    /// The log loss of a constant prediction of the mean label.
    pub fn loss_of_mean(&self) -> f64 {
        let term = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
        term(self.mean_label) + term(1.0 - self.mean_label)
    }
}

/// Sums over a stream of predictions.
pub struct Metrics {
    examples: u64,
    /// The sum of the importance. The sums from here to `positive` weigh examples by it.
    mass: f64,
    loss: f64,
    right: f64,
    predicted: f64,
    positive: f64,
    bins: [Bin; BINS],
    auc: Auc,
    groups: GroupedAuc,
}

impl Metrics {
    /// Metrics with an exact AUC, for test sets.
    pub fn exact() -> Metrics {
        let (mass, loss, right, predicted, positive) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let bins = [Bin::default(); BINS];
        let (auc, groups) = (Auc::exact(), GroupedAuc::default());
        Metrics { examples: 0, mass, loss, right, predicted, positive, bins, auc, groups }
    }

    /// Metrics in constant memory, for training.
    pub fn streaming() -> Metrics {
        Metrics { auc: Auc::histogram(), ..Metrics::exact() }
    }

    /// Adds one example of this importance. An example without a label (NaN) does not count.
    #[inline(always)]
    pub fn add(&mut self, margin: f32, label: f32, importance: f32) {
        if !label.is_nan() {
            self.add_predicted(margin, sigmoid(margin), label, importance);
        }
    }

    /// Adds an example of a block that was scored.
    pub(crate) fn add_scored(&mut self, block: &Block, i: usize, margin: f32) {
        let label = block.labels[i];
        self.add(margin, label, block.importance(i));
        if let (Some(&group), false) = (block.groups.get(i), label.is_nan()) {
            self.groups.add(group, margin, label > 0.5);
        }
    }

    /// [`add`](Self::add) of an example that has a label, where the probability of its margin is known.
    #[inline(always)]
    pub(crate) fn add_predicted(&mut self, margin: f32, predicted: f32, label: f32, importance: f32) {
        let positive = label > 0.5;
        let mass = f64::from(importance);
        self.examples += 1;
        self.mass += mass;
        self.loss += mass * log_loss(margin, label);
        self.right += if (margin > 0.0) == positive { mass } else { 0.0 };
        self.predicted += mass * f64::from(predicted);
        self.positive += if positive { mass } else { 0.0 };
        let bin = &mut self.bins[((predicted * BINS as f32) as usize).min(BINS - 1)];
        bin.examples += 1;
        bin.predicted += f64::from(predicted);
        bin.positive += u64::from(positive);
        self.auc.add(margin, positive);
    }

    /// Examples added so far.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Mean log loss so far, NaN without examples. Costs one division.
    pub fn log_loss(&self) -> f64 {
        self.loss / self.mass
    }

    /// The sum of the examples' importance, and the sum of their log losses times it, so far.
    pub(crate) fn sums(&self) -> (f64, f64) {
        (self.mass, self.loss)
    }

    /// AUC so far. It costs a tenth of a millisecond when streaming, and a sort when exact.
    pub fn auc(&mut self) -> Option<f64> {
        self.auc.value().map(|auc| auc.0)
    }

    /// All measures. `None` when the importance of all examples sums to 0.
    pub fn quality(&mut self) -> Option<Quality> {
        let auc = self.auc.value();
        (self.mass > 0.0).then(|| Quality {
            examples: self.examples,
            log_loss: self.loss / self.mass,
            auc: auc.map(|a| a.0),
            auc_error: auc.map_or(0.0, |a| a.1),
            accuracy: self.right / self.mass,
            mean_predicted: self.predicted / self.mass,
            mean_label: self.positive / self.mass,
            grouped: self.groups.value(),
            roc: self.auc.curve(),
            reliability: self.bins,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_the_definitions(examples in prop::collection::vec((-8.0f32..8.0, any::<bool>(), 1u8..5), 1..200), weigh: bool) {
            let mut metrics = Metrics::exact();
            let importance = |i: u8| if weigh { f32::from(i) / 2.0 } else { 1.0 };
            for &(margin, positive, i) in &examples {
                metrics.add(margin, f32::from(u8::from(positive)), importance(i));
            }
            metrics.add(3.0, f32::NAN, 1.0);
            // An example of importance k/2 counts as k examples of importance 1/2.
            let examples: Vec<(f32, bool)> = examples.iter()
                .flat_map(|&(m, y, i)| std::iter::repeat_n((m, y), if weigh { i.into() } else { 1 })).collect();
            let n = examples.len() as f64;
            let p = |m: f32| 1.0 / (1.0 + f64::from(-m).exp());
            let loss: f64 = examples.iter().map(|&(m, y)| -(if y { p(m) } else { 1.0 - p(m) }).ln()).sum();
            let q = metrics.quality().unwrap();
            prop_assert!((q.log_loss - loss / n).abs() < 1e-9);
            let mean = examples.iter().map(|&(m, _)| p(m)).sum::<f64>() / n;
            prop_assert!((q.mean_predicted - mean).abs() < 1e-6);
            let positives = examples.iter().filter(|e| e.1).count() as f64;
            prop_assert!((q.mean_label - positives / n).abs() < 1e-12);
            let right = examples.iter().filter(|&&(m, y)| (m > 0.0) == y).count() as f64;
            prop_assert!((q.accuracy - right / n).abs() < 1e-12);
            prop_assert_eq!(q.reliability.iter().map(|b| b.examples).sum::<u64>(), q.examples);
            prop_assert!(weigh || q.examples == examples.len() as u64);
        }
    }

    #[test]
    fn extremes_stay_finite() {
        assert_eq!(log_loss(1e30, 1.0), 0.0);
        assert!((log_loss(1000.0, 0.0) - 1000.0).abs() < 1e-9);
        assert!((log_loss(0.0, 1.0) - std::f64::consts::LN_2).abs() < 1e-15);
        assert!(log_loss(f32::NAN, 1.0).is_nan());
        assert!(Metrics::streaming().quality().is_none());
    }
}
