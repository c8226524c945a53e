//! Where a hash belongs in the index, which grows one bucket at a time.
//!
//! This is linear hashing (Litwin 1980) with two partial expansions (Larson 1982). The buckets form groups. A
//! round takes every group from 2 buckets to 3, then every group from 3 to 4. Then each group of 4 counts as
//! two groups of 2. A bucket of a group that has not grown in this round is at most 1.5 times as full as one of
//! a group that has (in plain linear hashing, 2 times). So buckets of ten entries can stay 67% full with few
//! overflows.
//!
//! ```text
//! level L, G = 2^L groups; group g has buckets g, g+G, g+2G, g+3G (k of them)
//! g = low L bits of the hash;  a = bit L;  c = bit L+1;  t = two thirds of the hashes
//! k = 2: bucket a        k = 3: bucket 2 if c and t, else a        k = 4: bucket a + 2c
//! ```
//! expansion.rs takes a group from k buckets to k + 1.

use crate::image::layout::*;
use crate::image::owned_image::Image;
use std::sync::atomic::Ordering::Relaxed;

/// How far the index has grown: a copy of the image's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) split: u64,
    pub(crate) level: u32,
    pub(crate) stage: u32,
}

impl Geometry {
    pub(crate) fn load(image: &Image) -> Geometry {
        let word = |at| image.word(at).load(Relaxed);
        Geometry { split: word(SPLIT), level: word(LEVEL) as u32, stage: word(STAGE) as u32 }
    }

    /// The geometry of words that may be damaged, or loaded at different moments. A home is then some bucket,
    /// perhaps a wrong one.
    pub(crate) fn of(level: u64, stage: u64, split: u64) -> Geometry {
        Geometry { split, level: level.min(29) as u32, stage: (stage & 1) as u32 }
    }

    /// What is wrong with these words, if anything.
    pub(crate) fn check(self, image: &Image) -> Result<(), String> {
        let sound = self.level < 30 && self.stage < 2 && self.split < 1 << self.level;
        if !sound || self.buckets() as usize > image.buckets() {
            return Err(format!("index words {self:?} do not fit {} buckets", image.buckets()));
        }
        Ok(())
    }

    /// Primary buckets.
    pub(crate) fn buckets(self) -> u64 {
        ((2 + u64::from(self.stage)) << self.level) + self.split
    }

    /// The bucket where `hash` belongs.
    #[inline(always)]
    pub(crate) fn home(self, hash: u64) -> usize {
        let group = hash & ((1 << self.level) - 1);
        let buckets = 2 + u64::from(self.stage) + u64::from(group < self.split);
        (group + (Self::member(hash, self.level, buckets) << self.level)) as usize
    }

    /// Which of a group's `buckets` a hash belongs to.
    #[inline(always)]
    pub(crate) fn member(hash: u64, level: u32, buckets: u64) -> u64 {
        let a = hash >> level & 1;
        let c = hash >> (level + 1) & 1;
        let third = c & u64::from((hash >> 40 & 255) < 171) & u64::from(buckets == 3);
        let fourth = c & (buckets >> 2);
        if third != 0 { 2 } else { a + 2 * fourth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash;

    /// When a group grows, entries move only to where `home` finds them, and every bucket gets the same share.
    #[test]
    fn homes_are_even_at_every_size() {
        for (level, stage) in [(0, 0), (0, 1), (3, 0), (3, 1)] {
            for split in [0, (1 << level) / 2] {
                let geometry = Geometry { level, stage, split };
                let mut counts = vec![0u32; geometry.buckets() as usize];
                let n = 60_000 * counts.len();
                (0..n as u64).for_each(|k| counts[geometry.home(hash(k))] += 1);
                for (bucket, &c) in counts.iter().enumerate() {
                    let group = bucket as u64 & ((1 << level) - 1);
                    let members = 2 + u64::from(stage) + u64::from(group < split);
                    let fair = n as f64 / (1u64 << level) as f64 / members as f64;
                    assert!(
                        (f64::from(c) / fair - 1.0).abs() < 0.05,
                        "{geometry:?} bucket {bucket}: {c} of {fair}"
                    );
                }
            }
        }
    }

    /// The end of a round is the start of the next one: both descriptions give the same homes.
    #[test]
    fn a_full_round_renames_nothing() {
        for level in 0..6 {
            let end = Geometry { level, stage: 1, split: 1 << level };
            let start = Geometry { level: level + 1, stage: 0, split: 0 };
            assert!((0..10_000).all(|k| end.home(hash(k)) == start.home(hash(k))));
        }
    }
}
