//! Surveys how large the values of each feature are in the first examples.

use crate::limits::SURVEYED_LENGTH_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::normalization::{
    InterceptStart, Normalization, NormalizedFeature, SurveyQuestions, all_ones,
};
use gannet_core::hash;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes keys as the tables do.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = hash(key);
    }
}

/// Something of each feature, by its key.
type Features<T> = HashMap<u64, T, BuildHasherDefault<KeyHasher>>;

/// The values of a feature.
#[derive(Clone, Copy, Default)]
struct FeatureSizes {
    examples: u32,
    /// The last example that had the feature, from 1.
    last: u32,
    /// Values that are not 0.
    others: u32,
    /// Their first size, and whether one of them has another.
    first: f32,
    differ: bool,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
    values: u32,
}

impl FeatureSizes {
    fn add(&mut self, example: u32, x: f32) {
        self.examples += u32::from(self.last != example);
        self.last = example;
        if x != 0.0 {
            self.others += 1;
            self.differ |= self.others > 1 && x.abs() != self.first;
            self.first = x.abs();
        }
        self.values += 1;
        let (x, before) = (f64::from(x), self.mean);
        self.mean += (x - before) / f64::from(self.values);
        self.squares += (x - before) * (x - self.mean);
    }

    /// The center and the size of the values of a feature whose values differ in size. `examples`: all of them.
    fn sizes(&self, examples: u32) -> (f64, f64) {
        let variance = self.squares / f64::from(self.values);
        match self.examples == examples {
            true => (self.mean, variance.sqrt()),
            // An example without the feature stands for 0, which must stay 0.
            false => {
                let all = (variance + self.mean * self.mean) * f64::from(self.values);
                (0.0, (all / f64::from(self.others)).sqrt())
            }
        }
    }
}

/// The skewness from which values become logarithms.
const SKEWNESS: f64 = 1.0;

/// The share of values below the unit of their logarithm: it is a small value, whatever the very smallest ones are.
const UNIT_QUANTILE: f64 = 0.05;

/// The skewness of values, and 0 where all are one.
fn skewness(values: &[f32]) -> f64 {
    let n = values.len() as f64;
    let moment = |center: f64, power: i32| {
        values.iter().map(|&x| (f64::from(x) - center).powi(power)).sum::<f64>() / n
    };
    let mean = moment(0.0, 1);
    let variance = moment(mean, 2);
    if variance > 0.0 { moment(mean, 3) / variance.powf(1.5) } else { 0.0 }
}

/// The unit of the logarithm of skewed values. `None`: they stay as they are.
fn logarithm_unit(values: &[f32]) -> Option<f32> {
    if skewness(values).is_nan() || skewness(values) < SKEWNESS {
        return None;
    }
    let mut sizes: Vec<f32> = values.iter().map(|x| x.abs()).filter(|&x| x > 0.0).collect();
    sizes.sort_unstable_by(f32::total_cmp);
    Some(sizes[(sizes.len() as f64 * UNIT_QUANTILE) as usize])
}

/// The log odds from which the intercept starts there, on either side of 0: one label in 21 is the rare one. Nearer to
/// 0 it is soon learned, and on 27 tables of ours the loss of one pass was the same, or a little lower from 0.
const START_ODDS: f64 = 3.0;

/// The log odds of the labels of these examples. 0 where neither label is rare, or one is missing, and where the data
/// has bases: they say where each example starts. Each label 0 stands for `of_one` of them.
fn log_odds<'b>(blocks: impl Iterator<Item = (&'b Block, usize)>, of_one: f64) -> f32 {
    let (mut ones, mut zeros) = (0.0, 0.0);
    for (block, take) in blocks {
        if block.bases.iter().any(|&base| base != 0.0) {
            return 0.0;
        }
        for (i, &label) in block.labels[..take].iter().enumerate() {
            let importance = f64::from(block.importance(i));
            match label {
                1.0 => ones += importance,
                0.0 => zeros += importance * of_one,
                _ => {}
            }
        }
    }
    let odds = f64::ln(ones / zeros);
    if odds.is_finite() && odds.abs() >= START_ODDS { odds as f32 } else { 0.0 }
}

/// What `of` says of the labels and importances of these examples. 0 where the data has bases, and where it is no
/// finite number.
fn number<'b>(
    blocks: impl Iterator<Item = (&'b Block, usize)>,
    of: impl Fn(&mut [(f32, f64)]) -> f64,
) -> f32 {
    let mut labels = Vec::new();
    for (block, take) in blocks {
        if block.bases.iter().any(|&base| base != 0.0) {
            return 0.0;
        }
        let all = block.labels[..take].iter().enumerate().filter(|(_, label)| !label.is_nan());
        labels.extend(all.map(|(i, &label)| (label, f64::from(block.importance(i)))));
    }
    let start = of(&mut labels) as f32;
    if start.is_finite() { start } else { 0.0 }
}

fn log_mean(labels: &mut [(f32, f64)]) -> f64 {
    let sum: f64 = labels.iter().map(|(label, importance)| f64::from(*label) * importance).sum();
    (sum / labels.iter().map(|(_, importance)| importance).sum::<f64>()).ln()
}

/// The least label that a share of the labels, in millionths, does not exceed.
fn quantile(labels: &mut [(f32, f64)], millionths: u32) -> f64 {
    labels.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let share = f64::from(millionths) / 1e6 * labels.iter().map(|(_, importance)| importance).sum::<f64>();
    let mut below = 0.0;
    let at = labels.iter().find(|(_, importance)| {
        below += importance;
        below >= share
    });
    at.map_or(0.0, |(label, _)| f64::from(*label))
}

/// The normalization that the first `most` examples of these blocks give. Each label 0 stands for `of_one` of them.
/// One-hot data costs hardly any time.
pub(crate) fn survey<'b>(
    blocks: impl Iterator<Item = &'b Block> + Clone,
    most: usize,
    asks: SurveyQuestions,
    of_one: f64,
) -> Normalization {
    let firsts = || {
        let mut left = most;
        blocks.clone().map_while(move |block| {
            let take = block.len().min(left);
            left -= take;
            (take > 0).then_some((block, take))
        })
    };
    let mut sizes: Features<FeatureSizes> = HashMap::default();
    for (block, take) in firsts() {
        let end = block.offsets[take] as usize;
        if all_ones(&block.values[..end]) {
            continue;
        }
        for (&key, &x) in block.keys.iter().zip(&block.values[..end]) {
            if x != 1.0 && x != 0.0 {
                sizes.entry(key).or_default();
            }
        }
    }
    let start = match asks.start {
        InterceptStart::Zero => 0.0,
        InterceptStart::OddsOfRare => log_odds(firsts(), of_one),
        InterceptStart::LogMean => number(firsts(), log_mean),
        InterceptStart::Quantile(of) => number(firsts(), |labels| quantile(labels, of)),
    };
    let intercept = NormalizedFeature { key: INTERCEPT_KEY, center: start, factor: 1.0, unit: 0.0 };
    if sizes.is_empty() {
        return Normalization::new(vec![intercept]);
    }
    let examples = measure(firsts(), &mut sizes, &HashMap::default());
    let units = if asks.logarithms { units_of(firsts(), &sizes) } else { HashMap::default() };
    if !units.is_empty() {
        sizes.values_mut().for_each(|of| *of = FeatureSizes::default());
        measure(firsts(), &mut sizes, &units);
    }
    let numbers = || sizes.iter().filter(|(_, sizes)| sizes.differ);
    // Each such value becomes 1 in the square on average.
    let length = numbers().map(|(_, sizes)| f64::from(sizes.others)).sum::<f64>() / f64::from(examples);
    let shrink = (SURVEYED_LENGTH_MAX / length).sqrt().min(1.0);
    let features = numbers().map(|(&key, sizes)| {
        let (center, size) = sizes.sizes(examples);
        let factor = (shrink / size).clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
        let unit = units.get(&key).copied().unwrap_or(0.0);
        NormalizedFeature { key, center: center as f32, factor: factor as f32, unit }
    });
    Normalization::new(features.chain([intercept]).collect())
}

/// Measures the features of `sizes` in these blocks. Returns how many examples there are.
fn measure<'b>(
    blocks: impl Iterator<Item = (&'b Block, usize)>,
    sizes: &mut Features<FeatureSizes>,
    units: &Features<f32>,
) -> u32 {
    let mut examples = 0;
    for (block, take) in blocks {
        for i in 0..take {
            examples += 1;
            for at in block.range(i) {
                let key = block.keys[at];
                if let Some(sizes) = sizes.get_mut(&key) {
                    let unit = units.get(&key).copied().unwrap_or(0.0);
                    sizes.add(examples, NormalizedFeature::compressed(unit, block.values[at]));
                }
            }
        }
    }
    examples
}

/// The units of the features whose values become logarithms.
fn units_of<'b>(
    blocks: impl Iterator<Item = (&'b Block, usize)>,
    sizes: &Features<FeatureSizes>,
) -> Features<f32> {
    let numbers = sizes.iter().filter(|(_, of)| of.differ);
    let mut values: Features<Vec<f32>> =
        numbers.map(|(&key, of)| (key, Vec::with_capacity(of.values as usize))).collect();
    for (block, take) in blocks {
        for at in 0..block.offsets[take] as usize {
            if let Some(values) = values.get_mut(&block.keys[at]) {
                values.push(block.values[at]);
            }
        }
    }
    values.into_iter().filter_map(|(key, values)| Some((key, logarithm_unit(&values)?))).collect()
}
