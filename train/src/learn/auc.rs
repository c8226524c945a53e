//! The area under the ROC curve: the chance that a positive example scores above a negative one, where a tie counts
//! half. It is exact when the scores are kept and sorted. A histogram of the scores needs constant memory and has a
//! known error.

use crate::limits::EXACT_AUC_MAX;

/// Bits of a score's size that choose its bucket, from the top: 8 of the exponent, 11 of the mantissa.
const SHIFT: u32 = 12;
/// Sizes from 2^-16 to 2^8 have buckets of their own. Smaller and larger sizes share the outermost buckets.
const LOW: u32 = (127 - 16) << (23 - SHIFT);
const HIGH: u32 = (127 + 8) << (23 - SHIFT);
/// Buckets of one sign.
const HALF: usize = (HIGH - LOW + 1) as usize;

/// The bucket of a score by its [`order`].
#[inline(always)]
fn bucket(order: u32) -> usize {
    let negative = order >> 31 == 0;
    let size = (if negative { !order } else { order }) & 0x7fff_ffff;
    let of_sign = ((size >> SHIFT).clamp(LOW, HIGH) - LOW) as usize;
    if negative { HALF - 1 - of_sign } else { HALF + of_sign }
}

/// The rank of an f32 in the order of all f32, with -0 as 0 and NaN last.
#[inline(always)]
pub(super) fn order(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    bits ^ ((bits as i32 >> 31) as u32 | 0x8000_0000)
}

/// AUC of a stream of (score, label).
pub enum Auc {
    /// Keeps every score, up to [`EXACT_AUC_MAX`]. With more scores it becomes a histogram.
    Exact(Vec<(u32, bool)>),
    /// Negatives and positives for each bucket. Two scores share a bucket when they agree in their sign and to 2^-11
    /// of their size, or when both are within 2^-16 of 0 or beyond 2^8.
    Histogram(Vec<[u64; 2]>),
}

impl Auc {
    /// An exact AUC, for up to [`EXACT_AUC_MAX`] examples.
    pub fn exact() -> Auc {
        Auc::Exact(Vec::new())
    }

    /// An AUC in constant memory (1.5 MiB).
    pub fn histogram() -> Auc {
        Auc::Histogram(vec![[0; 2]; 2 * HALF])
    }

    /// Counts one example.
    #[inline(always)]
    pub fn add(&mut self, score: f32, positive: bool) {
        match self {
            Auc::Histogram(buckets) => {
                buckets[bucket(order(score))][usize::from(positive)] += 1;
            }
            Auc::Exact(scores) => {
                scores.push((order(score), positive));
                if scores.len() > EXACT_AUC_MAX {
                    self.spill();
                }
            }
        }
    }

    #[cold]
    fn spill(&mut self) {
        if let Auc::Exact(scores) = std::mem::replace(self, Auc::histogram())
            && let Auc::Histogram(buckets) = self
        {
            for (order, positive) in scores {
                buckets[bucket(order)][usize::from(positive)] += 1;
            }
        }
    }

    /// The ROC curve, as [`Quality::roc`](crate::Quality::roc) has it.
    pub fn curve(&mut self) -> Vec<(f64, f64)> {
        match self {
            Auc::Histogram(buckets) => curve(buckets.iter().copied()),
            Auc::Exact(scores) => {
                scores.sort_unstable();
                let ties = scores.chunk_by(|a, b| a.0 == b.0).map(|tie| {
                    let positives = tie.iter().filter(|s| s.1).count() as u64;
                    [tie.len() as u64 - positives, positives]
                });
                curve(ties)
            }
        }
    }

    /// The AUC and its largest error (0 when exact). `None` while all examples have the same label.
    pub fn value(&mut self) -> Option<(f64, f64)> {
        match self {
            Auc::Exact(scores) => {
                scores.sort_unstable();
                area_of(scores.iter().copied()).map(|auc| (auc, 0.0))
            }
            Auc::Histogram(buckets) => area(buckets.iter().copied()),
        }
    }
}

/// Most points of a curve.
const CURVE_POINTS: usize = 256;

/// The ROC curve over groups of (negatives, positives) in ascending order of score.
fn curve(groups: impl DoubleEndedIterator<Item = [u64; 2]> + Clone) -> Vec<(f64, f64)> {
    let all = groups.clone().fold([0, 0], |sum: [u64; 2], of| [sum[0] + of[0], sum[1] + of[1]]);
    if all.contains(&0) {
        return Vec::new();
    }
    let (mut above, mut points) = ([0u64; 2], vec![(0.0, 0.0)]);
    let mut last = 0.0;
    for group in groups.rev().filter(|group| *group != [0, 0]) {
        above = [above[0] + group[0], above[1] + group[1]];
        let point = (above[0] as f64 / all[0] as f64, above[1] as f64 / all[1] as f64);
        // The sum of both shares grows along the curve, from 0 to 2.
        if point.0 + point.1 - last >= 2.0 / CURVE_POINTS as f64 || above == all {
            last = point.0 + point.1;
            points.push(point);
        }
    }
    points
}

/// The exact area of scores by their [`order`], which ascend. `None`: all labels are the same.
pub(super) fn area_of(scores: impl Iterator<Item = (u32, bool)>) -> Option<f64> {
    let mut scores = scores.peekable();
    let ties = std::iter::from_fn(|| {
        let (order, positive) = scores.next()?;
        let mut tie = [0; 2];
        tie[usize::from(positive)] += 1;
        while let Some((_, positive)) = scores.next_if(|score| score.0 == order) {
            tie[usize::from(positive)] += 1;
        }
        Some(tie)
    });
    area(ties).map(|(auc, _)| auc)
}

/// The area over groups of (negatives, positives) in ascending order of score. The second number is its error: half
/// the share of the pairs within one group, whose order is unknown.
fn area(groups: impl Iterator<Item = [u64; 2]>) -> Option<(f64, f64)> {
    let (mut below, mut positives, mut won, mut tied) = (0u64, 0u64, 0.0f64, 0.0f64);
    for [negative, positive] in groups {
        won += positive as f64 * below as f64;
        tied += 0.5 * positive as f64 * negative as f64;
        below += negative;
        positives += positive;
    }
    let pairs = below as f64 * positives as f64;
    (pairs > 0.0).then(|| ((won + tied) / pairs, tied / pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(scores: &[(f32, bool)]) -> Option<f64> {
        let (mut won, mut pairs) = (0.0, 0.0);
        for p in scores.iter().filter(|s| s.1) {
            for n in scores.iter().filter(|s| !s.1) {
                pairs += 1.0;
                won += if p.0 > n.0 { 1.0 } else { f64::from(u8::from(p.0 == n.0)) / 2.0 };
            }
        }
        (pairs > 0.0).then(|| won / pairs)
    }

    proptest! {
        #[test]
        fn like_counting_pairs(scores in prop::collection::vec(
            (prop_oneof![-3.0f32..3.0, (-4i8..4).prop_map(f32::from), Just(-0.0)], any::<bool>()), 0..120)) {
            let (mut exact, mut rough) = (Auc::exact(), Auc::histogram());
            for &(score, positive) in &scores {
                exact.add(score, positive);
                rough.add(score, positive);
            }
            match naive(&scores) {
                None => prop_assert_eq!((exact.value(), rough.value()), (None, None)),
                Some(want) => {
                    prop_assert!((exact.value().unwrap().0 - want).abs() < 1e-12);
                    let (got, error) = rough.value().unwrap();
                    prop_assert!((got - want).abs() <= error + 1e-12, "{got} {want} {error}");
                    // The area below the curve, by trapezoids, is the AUC as far as all points are there.
                    let area: f64 = exact.curve().windows(2).map(|w| (w[1].0 - w[0].0) * (w[0].1 + w[1].1) / 2.0).sum();
                    prop_assert!((area - want).abs() < 0.02, "{area} {want}");
                }
            }
            exact.spill();
            prop_assert_eq!(exact.value(), rough.value());
        }
    }

    #[test]
    fn the_order_is_total() {
        let ascending = [f32::NEG_INFINITY, -2.0, -1e-30, 0.0, 1e-30, 2.0, f32::INFINITY, f32::NAN];
        assert!(ascending.windows(2).all(|w| order(w[0]) < order(w[1])));
        assert_eq!(order(-0.0), order(0.0));
        let buckets = ascending[..7].iter().map(|&s| bucket(order(s))).collect::<Vec<_>>();
        assert!(buckets.is_sorted() && buckets[0] == 0 && buckets[6] == 2 * HALF - 1, "{buckets:?}");
        assert!(buckets[1] < buckets[2] && buckets[2] < buckets[3] && buckets[4] < buckets[5]);
    }
}
