//! Surveys how large the values of each feature are in the first examples.

use crate::limits::SURVEYED_LENGTH_MAX;
use crate::read::block::Block;
use crate::read::normalization::{Normalization, NormalizedFeature, all_ones};
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

/// The normalization that the first `most` examples of these blocks give. One-hot data costs hardly any time.
pub(crate) fn survey<'b>(blocks: impl Iterator<Item = &'b Block> + Clone, most: usize) -> Normalization {
    let mut sizes: HashMap<u64, FeatureSizes, BuildHasherDefault<KeyHasher>> = HashMap::default();
    let firsts = || {
        let mut left = most;
        blocks.clone().map_while(move |block| {
            let take = block.len().min(left);
            left -= take;
            (take > 0).then_some((block, take))
        })
    };
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
    if sizes.is_empty() {
        return Normalization::default();
    }
    let mut examples = 0;
    for (block, take) in firsts() {
        for i in 0..take {
            examples += 1;
            for at in block.range(i) {
                if let Some(sizes) = sizes.get_mut(&block.keys[at]) {
                    sizes.add(examples, block.values[at]);
                }
            }
        }
    }
    let numbers = || sizes.iter().filter(|(_, sizes)| sizes.differ);
    // Each such value becomes 1 in the square on average.
    let length = numbers().map(|(_, sizes)| f64::from(sizes.others)).sum::<f64>() / f64::from(examples);
    let shrink = (SURVEYED_LENGTH_MAX / length).sqrt().min(1.0);
    let features = numbers().map(|(&key, sizes)| {
        let (center, size) = sizes.sizes(examples);
        let factor = (shrink / size).clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
        NormalizedFeature { key, center: center as f32, factor: factor as f32 }
    });
    Normalization::new(features.collect())
}
