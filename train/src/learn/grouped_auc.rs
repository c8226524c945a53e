//! GAUC: the AUC within each group of examples, such as those of one user, and the mean of them (Zhou et al., "Deep
//! interest network for click-through rate prediction", 2018). A group counts as often as it has examples. One whose
//! labels are all the same has no AUC, and does not count.

use crate::learn::auc::{area_of, order};
use crate::limits::EXACT_AUC_MAX;

/// The mean AUC of groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedQuality {
    /// The mean of the groups' AUC, weighted by their examples.
    pub auc: f64,
    /// Groups with both labels.
    pub groups: u64,
    /// The examples of those groups.
    pub examples: u64,
}

/// Scores of examples in groups, each a group, the order of the score, and whether the label is 1.
#[derive(Default)]
pub struct GroupedAuc {
    scores: Vec<(u64, u32, bool)>,
    /// There were more examples than are kept.
    is_over: bool,
}

impl GroupedAuc {
    /// Counts an example. Beyond the most scores that are kept, there is no result.
    pub fn add(&mut self, group: u64, score: f32, positive: bool) {
        self.is_over |= self.scores.len() >= EXACT_AUC_MAX;
        if self.is_over {
            self.scores = Vec::new();
        } else {
            self.scores.push((group, order(score), positive));
        }
    }

    /// The mean over the groups. `None`: no group has both labels, or there were too many examples.
    pub fn value(&mut self) -> Option<GroupedQuality> {
        self.scores.sort_unstable();
        let (mut sum, mut groups, mut examples) = (0.0, 0, 0);
        for group in self.scores.chunk_by(|a, b| a.0 == b.0) {
            let scores = group.iter().map(|&(_, order, positive)| (order, positive));
            if let Some(auc) = area_of(scores) {
                let n = group.len() as u64;
                (sum, groups, examples) = (sum + auc * n as f64, groups + 1, examples + n);
            }
        }
        (examples > 0).then(|| GroupedQuality { auc: sum / examples as f64, groups, examples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::auc::Auc;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_the_auc_of_each_group(scores in prop::collection::vec((0u64..5, -3i8..4, any::<bool>()), 0..80)) {
            let mut grouped = GroupedAuc::default();
            scores.iter().for_each(|&(group, score, label)| grouped.add(group, f32::from(score), label));
            let (mut sum, mut groups, mut examples) = (0.0, 0, 0);
            for group in 0..5 {
                let own: Vec<_> = scores.iter().filter(|of| of.0 == group).collect();
                let mut auc = Auc::exact();
                own.iter().for_each(|(_, score, label)| auc.add(f32::from(*score), *label));
                if let Some((value, _)) = auc.value() {
                    sum += value * own.len() as f64;
                    groups += 1;
                    examples += own.len() as u64;
                }
            }
            match grouped.value() {
                None => prop_assert_eq!(groups, 0),
                Some(of) => {
                    prop_assert_eq!((of.groups, of.examples), (groups, examples));
                    prop_assert!((of.auc - sum / examples as f64).abs() < 1e-12);
                }
            }
        }
    }
}
