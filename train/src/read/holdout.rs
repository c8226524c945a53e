//! A share of data that is held out of the training, to validate the model with it. What an example has decides on
//! which side it is, so every process and every pass agrees, and no example is on both sides.

use crate::read::block::Block;
use gannet_core::mix;

/// One side of data of which a share is held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holdout {
    share: f64,
    is_validation: bool,
}

impl Holdout {
    /// The side that is trained, where this share is held out: above 0 and below 1. `None`: it is not that.
    pub fn of(share: f64) -> Option<Holdout> {
        (share > 0.0 && share < 1.0).then_some(Holdout { share, is_validation: false })
    }

    /// The side that is held out.
    pub fn validation(self) -> Holdout {
        Holdout { is_validation: true, ..self }
    }

    /// The share that is held out.
    pub fn share(self) -> f64 {
        self.share
    }

    /// Drops the examples of the other side. Returns whether none is left to learn.
    pub(crate) fn apply(self, block: &mut Block) -> bool {
        let most = (self.share * u64::MAX as f64) as u64;
        let kept: Vec<bool> = (0..block.len())
            .map(|i| {
                let label = mix(u64::from(block.labels[i].to_bits()) ^ 0x686F_6C64);
                let feature = |at: usize| mix(block.keys[at]) ^ u64::from(block.values[at].to_bits());
                let content = block.range(i).fold(label, |all, at| all.wrapping_add(mix(feature(at))));
                (mix(content) <= most) == self.is_validation
            })
            .collect();
        if self.is_validation {
            block.retain(|i| kept[i]);
            false
        } else {
            block.sample(&kept)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_on_one_side_whatever_its_batch() {
        let block = |from: u64, rows: u64| {
            let mut block = Block::default();
            block.clear();
            for i in from..from + rows {
                block.keys.extend([i % 7, i]);
                block.values.extend([1.0, 0.5]);
                block.end(f32::from(u8::from(i % 3 == 0)));
            }
            block
        };
        let train = Holdout::of(0.2).unwrap();
        let (mut trained, mut held_out) = (block(0, 5000), block(0, 5000));
        train.apply(&mut trained);
        train.validation().apply(&mut held_out);
        let ids = |block: &Block| (0..block.len()).map(|i| block.keys[block.range(i)][1]).collect::<Vec<_>>();
        let mut both = [ids(&trained), ids(&held_out)].concat();
        both.sort_unstable();
        assert_eq!(both, (0..5000).collect::<Vec<_>>());
        assert!((900..1100).contains(&held_out.len()), "{}", held_out.len());
        let parts = [(0, 1), (1, 4000), (4001, 999)].map(|(from, rows)| {
            let mut part = block(from, rows);
            train.validation().apply(&mut part);
            ids(&part)
        });
        assert_eq!(parts.concat(), ids(&held_out));
    }
}
