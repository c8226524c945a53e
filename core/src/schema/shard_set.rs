//! Some shards of a table, by their numbers: those that a thread owns, a server holds, or a file is about.

use crate::limits::SHARDS_MAX;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Numbers of shards: distinct, in ascending order. A clone is cheap.
///
/// ```
/// use gannet_core::ShardSet;
///
/// let own = ShardSet::of([12, 0, 1, 2, 3]);
/// assert_eq!(own.numbers(), [0, 1, 2, 3, 12]);
/// assert_eq!(own.to_string(), "shards 0 to 3, 12");
/// assert_eq!(ShardSet::from(4..6).numbers(), [4, 5]);
/// assert!(own.contains(12) && !own.contains(4));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ShardSet(Arc<[u32]>);

impl ShardSet {
    /// The set of these numbers, in any order. A number that occurs twice counts once.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> ShardSet {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        ShardSet(numbers.into())
    }

    /// The numbers, in ascending order.
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// The numbers, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The number of shards.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no shard in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this shard is in it.
    pub fn contains(&self, shard: u32) -> bool {
        self.0.binary_search(&shard).is_ok()
    }

    /// The position of this shard among the numbers.
    pub fn position(&self, shard: u32) -> Option<usize> {
        self.0.binary_search(&shard).ok()
    }

    /// The numbers as runs without gaps, in ascending order.
    pub fn runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for shard in self.iter() {
            match runs.last_mut() {
                Some(run) if run.end == shard => run.end += 1,
                _ => runs.push(shard..shard + 1),
            }
        }
        runs
    }
}

impl Default for ShardSet {
    /// No shards.
    fn default() -> ShardSet {
        ShardSet::of([])
    }
}

impl From<Range<u32>> for ShardSet {
    fn from(range: Range<u32>) -> ShardSet {
        ShardSet(range.collect())
    }
}

impl fmt::Display for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.len() {
            0 => return f.write_str("no shards"),
            1 => "shard ",
            _ => "shards ",
        })?;
        for (at, run) in self.runs().into_iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            match run.len() {
                1 => write!(f, "{}", run.start)?,
                _ => write!(f, "{} to {}", run.start, run.end - 1)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where each shard of a table is among the shards of a set. The hot paths look here, so there is no search, and no
/// check of a bound.
#[derive(Clone, Debug)]
pub(crate) struct ShardPlaces {
    shards: u32,
    places: Box<[u16; SHARDS_MAX as usize]>,
}

const _: () = assert!(SHARDS_MAX.is_power_of_two() && SHARDS_MAX < u16::MAX as u32);

impl ShardPlaces {
    /// The places in a table of `shards` shards.
    pub(crate) fn of(set: &ShardSet, shards: u32) -> ShardPlaces {
        let mut places = Box::new([u16::MAX; SHARDS_MAX as usize]);
        for (place, shard) in set.iter().enumerate() {
            places[shard as usize] = place as u16;
        }
        ShardPlaces { shards, places }
    }

    /// The place of a shard of the table. A number that is no place, and too high for any, if it is not in the set.
    #[inline(always)]
    pub(crate) fn place(&self, shard: u32) -> u32 {
        u32::from(self.places[(shard % SHARDS_MAX) as usize])
    }

    /// Number of shards of the table.
    #[inline(always)]
    pub(crate) fn table(&self) -> u32 {
        self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_is_its_runs_and_its_places(numbers in prop::collection::vec(0u32..64, 0..80)) {
            let set = ShardSet::of(numbers.iter().copied());
            prop_assert!(set.numbers().is_sorted_by(|a, b| a < b));
            prop_assert_eq!(set.runs().into_iter().flatten().collect::<Vec<_>>(), set.numbers());
            let places = ShardPlaces::of(&set, 64);
            for shard in 0..70 {
                let place = set.position(shard);
                prop_assert_eq!((place.is_some(), set.contains(shard)), (numbers.contains(&shard), place.is_some()));
                prop_assert_eq!(places.place(shard), place.map_or(u32::from(u16::MAX), |place| place as u32));
            }
        }
    }

    #[test]
    fn sets_in_words() {
        let texts =
            [vec![], vec![7], vec![3, 4], vec![9, 0, 1, 2, 5, 6]].map(|n| ShardSet::of(n).to_string());
        assert_eq!(texts, ["no shards", "shard 7", "shards 3 to 4", "shards 0 to 2, 5 to 6, 9"]);
    }
}
