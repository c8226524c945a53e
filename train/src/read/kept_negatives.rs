//! Negative down-sampling: of the examples with the label 0 a share is learned, and the margin of each example is moved
//! so that predictions are those of all examples (King and Zeng, "Logistic regression in rare events data", 2001: the
//! correction of the intercept by the logarithm of the share).

use crate::read::block::Block;
use gannet_core::mix;

/// The share of the examples with the label 0 that is learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptNegatives {
    share: f64,
}

impl KeptNegatives {
    /// Keeps this share, above 0 and at most 1. `None`: it is not that.
    pub fn new(share: f64) -> Option<KeptNegatives> {
        (share > 0.0 && share <= 1.0).then_some(KeptNegatives { share })
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.share
    }

    /// What is added to the margin of each example that is learned: among them the odds of the label 1 are
    /// 1 / share times those among all.
    pub(crate) fn base(self) -> f32 {
        -self.share.ln() as f32
    }

    /// Drops examples of the batch with this number. What an example has and where it is decide, so every worker and
    /// every pass keeps the same ones. Returns whether none is left.
    pub(crate) fn apply(self, block: &mut Block, batch: u64) -> bool {
        if self.share >= 1.0 {
            return false;
        }
        let most = (self.share * u64::MAX as f64) as u64;
        let keeps = |block: &Block, i: usize| {
            let content = block.range(i).fold(mix(batch), |all, at| all ^ mix(block.keys[at] ^ i as u64));
            block.labels[i] != 0.0 || mix(content) <= most
        };
        let kept: Vec<bool> = (0..block.len()).map(|i| keeps(block, i)).collect();
        block.sample(&kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(rows: u64) -> Block {
        let mut block = Block::default();
        block.clear();
        for i in 0..rows {
            block.keys.extend([i % 7, 100 + i]);
            block.values.extend([1.0, i as f32]);
            block.fields.extend([1, 2]);
            block.end_with(f32::from(u8::from(i % 10 == 3)), 1.0 + i as f32, i as f32);
        }
        block
    }

    #[test]
    fn a_share_of_the_negatives_stays_whole() {
        let (all, mut some) = (block(20_000), block(20_000));
        let kept = KeptNegatives::new(0.2).unwrap();
        kept.apply(&mut some, 5);
        let negatives = some.labels.iter().filter(|&&label| label == 0.0).count();
        assert_eq!(some.len() - negatives, 2000, "every positive is kept");
        assert!((3300..3900).contains(&negatives), "{negatives} of 18,000");
        for i in 0..some.len() {
            let was = some.base(i) as usize;
            assert_eq!(some.keys[some.range(i)], all.keys[all.range(was)]);
            assert_eq!(some.values[some.range(i)], all.values[all.range(was)]);
            assert_eq!(some.fields[some.range(i)], [1, 2]);
            assert_eq!((some.labels[i], some.importance(i)), (all.labels[was], all.importance(was)));
        }
        let (mut again, mut other) = (block(20_000), block(20_000));
        kept.apply(&mut again, 5);
        kept.apply(&mut other, 6);
        assert_eq!(again, some, "the same ones stay in each pass");
        assert_ne!(other.labels.len(), some.labels.len(), "another batch drops others");
    }

    #[test]
    fn a_block_keeps_an_example_that_does_not_count() {
        let mut block = block(3);
        KeptNegatives::new(1e-12).unwrap().apply(&mut block, 0);
        assert_eq!((block.len(), block.importance(0), block.keys.len()), (1, 0.0, 2));
        for share in [0.0, -1.0, 1.1, f64::NAN] {
            assert_eq!(KeptNegatives::new(share), None);
        }
    }
}
