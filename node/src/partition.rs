//! Which shards belong to which server and thread: contiguous ranges, as equal as possible, in ascending order.

use std::ops::Range;

/// Part `index` of `parts` of a range.
///
/// # Panics
/// When `index` is not below `parts`.
pub fn share(range: Range<u32>, index: u32, parts: u32) -> Range<u32> {
    assert!(index < parts, "part {index} of {parts}");
    let length = u64::from(range.end - range.start);
    let at = |i: u32| range.start + (u64::from(i) * length / u64::from(parts)) as u32;
    at(index)..at(index + 1)
}

/// A range of shards as text, for messages.
pub(crate) fn in_words(shards: &Range<u32>) -> String {
    match shards.len() {
        0 => "no shards".to_owned(),
        1 => format!("shard {}", shards.start),
        _ => format!("shards {} to {}", shards.start, shards.end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_the_range_in_order() {
        for (shards, servers, threads) in [(64, 1, 1), (64, 3, 2), (2, 3, 4), (4096, 7, 5), (1, 1, 8)] {
            let mut next = 0;
            for server in 0..servers {
                let own = share(0..shards, server, servers);
                for thread in 0..threads {
                    let part = share(own.clone(), thread, threads);
                    assert_eq!(part.start, next);
                    assert!(part.len() as u32 <= shards / servers / threads + 2);
                    next = part.end;
                }
            }
            assert_eq!(next, shards);
        }
    }
}
