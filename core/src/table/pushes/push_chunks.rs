//! Cuts a long push into parts, each with the row number that names it.

use crate::hash::{hash, shard_of};
use std::ops::Range;

/// Divides the keys of a push, which are in shard order, into parts of at most `most` keys. `shards` is the
/// table's number of shards. Yields for each part the range of its keys, and how many rows of its first key's
/// shard come before it ([`PushName::row`](crate::PushName)).
///
/// # Panics
/// When `most` is 0.
pub fn push_parts(keys: &[u64], most: usize, shards: u32) -> impl Iterator<Item = (Range<usize>, u32)> + '_ {
    assert!(most > 0, "parts of no keys");
    let shard = move |at: usize| shard_of(hash(keys[at]), shards);
    let mut begin = 0;
    (0..keys.len()).step_by(most).map(move |from| {
        // Where the run of the part's first key begins.
        if from > 0 && shard(from) != shard(from - 1) {
            begin = from;
        }
        let row = (from - begin) as u32;
        let to = keys.len().min(from + most);
        let run = (from..to).rev().take_while(|&at| shard(at) == shard(to - 1)).count();
        if run < to - from {
            begin = to - run;
        }
        (from..to, row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_is_named_by_the_rows_before_it(keys in prop::collection::vec(any::<u64>(), 0..200), most in 1usize..50) {
            let shard = |key: &u64| shard_of(hash(*key), 4);
            let mut keys = keys;
            keys.sort_by_key(shard);
            let mut next = 0;
            for (range, row) in push_parts(&keys, most, 4) {
                prop_assert!(range.start == next && !range.is_empty() && range.len() <= most);
                let before = keys[..next].iter().filter(|key| shard(key) == shard(&keys[next])).count();
                prop_assert_eq!(row as usize, before);
                next = range.end;
            }
            prop_assert_eq!(next, keys.len());
        }
    }
}
