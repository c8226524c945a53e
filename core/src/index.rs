//! The index of a shard: from hash to slot, grown a bucket at a time.
//!
//! Linear hashing (Litwin 1980) with two partial expansions (Larson 1982): the buckets stand in groups, and a round
//! takes every group from 2 buckets to 3, then every group from 3 to 4, when groups of 4 count as twice as many groups
//! of 2. A bucket that waits for its turn is at most 1.5 times as full as one that had it (plain linear hashing: 2),
//! which is what lets buckets of ten stay 67% full with few overflows.
//!
//! ```text
//! level L, G = 2^L groups; group g has buckets g, g+G, g+2G, g+3G (k of them)
//! g = low L bits of the hash;  a = bit L;  c = bit L+1;  t = two thirds of the hashes
//! k = 2: bucket a        k = 3: bucket 2 if c and t, else a        k = 4: bucket a + 2c
//! ```
//! expansion.rs takes a group from k buckets to k + 1.

use crate::error::GrowError;
use crate::hash::tag;
use crate::image::Image;
use crate::journal::Journal;
use crate::layout::*;
use crate::slot::{Bucket, FULL, entries};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// How far the index has grown: the image's words, kept at hand.
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

    /// Of words that may not be sound, or not be of one moment: a home is then any bucket.
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

/// Checks what every search relies on, in one pass over the buckets. Links lead to overflow buckets in use and no two
/// of them to one, so every chain ends; slots are of rows. What is wrong, if anything.
pub(crate) fn check_links(image: &Image, geometry: Geometry) -> Result<(), String> {
    let used = image.word(OVERFLOW_USED).load(Relaxed) as usize;
    let high = image.word(HIGH_WATER).load(Relaxed);
    let mut linked = vec![false; used];
    let mut follow = |link: u64| match linked.get_mut((link as usize).wrapping_sub(1)) {
        _ if link == 0 => Ok(()),
        Some(linked) if *linked => Err(format!("overflow bucket {link} is linked twice")),
        Some(linked) => {
            *linked = true;
            Ok(())
        }
        None => Err(format!("overflow bucket {link} is linked and {used} are in use")),
    };
    // What stands in buckets of the free list says nothing, their links apart.
    let mut free = vec![false; used];
    let mut next = image.word(OVERFLOW_FREE).load(Relaxed);
    follow(next)?;
    while next != 0 {
        free[next as usize - 1] = true;
        next = u64::from(image.overflow(next as usize - 1).link());
        follow(next)?;
    }
    let primary = (0..geometry.buckets() as usize).map(|i| image.bucket(i));
    let overflow = (0..used).filter(|&i| !free[i]).map(|i| image.overflow(i));
    for bucket in primary.chain(overflow) {
        follow(u64::from(bucket.link()))?;
        let mut taken = entries(!bucket.matches(0) & FULL);
        if let Some(entry) = taken.find(|&entry| u64::from(bucket.slot(entry)) >= high) {
            return Err(format!("its index names slot {} and {high} were ever used", bucket.slot(entry)));
        }
    }
    Ok(())
}

/// The bucket behind a link.
#[inline]
pub(crate) fn linked(image: &Image, link: u32) -> Option<&Bucket> {
    (link != 0 && link as usize <= image.overflow_buckets()).then(|| image.overflow(link as usize - 1))
}

/// The first slot in the home bucket whose tag fits; `NONE` when there is none: then the first overflow bucket, if
/// there is one, is asked for, so that a later [`find`] meets it in the cache.
#[inline(always)]
pub(crate) fn candidate(image: &Image, home: usize, hash: u64) -> u32 {
    let bucket = image.bucket(home);
    let mask = bucket.matches(tag(hash));
    if mask != 0 {
        return bucket.slot(mask.trailing_zeros() as usize);
    }
    if bucket.link() != 0 {
        image.prefetch_overflow(bucket.link() as usize - 1);
    }
    NONE
}

/// Second look for a key without a candidate: the first overflow bucket, asked for by [`candidate`].
#[inline(always)]
pub(crate) fn second_candidate(image: &Image, home: usize, hash: u64) -> u32 {
    let Some(bucket) = linked(image, image.bucket(home).link()) else { return NONE };
    let mask = bucket.matches(tag(hash));
    if mask == 0 { NONE } else { bucket.slot(mask.trailing_zeros() as usize) }
}

/// The slot of `key`, by the whole chain.
#[cold]
#[inline(never)]
pub(crate) fn find(image: &Image, home: usize, hash: u64, key: u64) -> u32 {
    let mut bucket = image.bucket(home);
    loop {
        for entry in entries(bucket.matches(tag(hash))) {
            let slot = bucket.slot(entry);
            if image.peek(slot).is_some_and(|(version, k)| version & crate::row::LIVE != 0 && k == key) {
                return slot;
            }
        }
        match linked(image, bucket.link()) {
            Some(next) => bucket = next,
            None => return NONE,
        }
    }
}

/// Makes sure that an insertion at `home` will find room.
///
/// # Errors
/// The overflow region cannot grow; nothing changed.
pub(crate) fn prepare(image: &mut Image, home: usize) -> Result<(), GrowError> {
    let mut bucket = image.bucket(home);
    loop {
        if bucket.matches(0) != 0 {
            return Ok(());
        }
        match linked(image, bucket.link()) {
            Some(next) => bucket = next,
            None => break,
        }
    }
    spare(image, 1)
}

/// Makes sure of `n` overflow buckets beyond those in use.
pub(crate) fn spare(image: &mut Image, n: usize) -> Result<(), GrowError> {
    let used = image.word(OVERFLOW_USED).load(Relaxed) as usize;
    image.grow(Region::Overflow, (used + n) * 64)
}

/// Inserts an entry; room was made by [`prepare`], the step is armed and the hot words are logged.
pub(crate) fn insert(image: &mut Image, journal: &mut Journal, home: usize, hash: u64, slot: u32) {
    journal.log(image, INDEX + home * 64, 64);
    place(image, journal, home, tag(hash), slot);
}

/// Puts an entry into the first free place of a chain whose primary bucket is logged.
fn place(image: &mut Image, journal: &mut Journal, home: usize, tag: u16, slot: u32) {
    let mut at = None; // None: the primary; Some(n): overflow bucket number n
    loop {
        let bucket = at.map_or_else(|| image.bucket(home), |n: u32| image.overflow(n as usize - 1));
        let free = bucket.matches(0);
        if free != 0 {
            if let Some(n) = at {
                journal.log(image, overflow_at(n), 64);
            }
            let bucket = at.map_or_else(|| image.bucket(home), |n| image.overflow(n as usize - 1));
            bucket.fill(free.trailing_zeros() as usize, tag, slot);
            return;
        }
        match bucket.link() {
            0 => break,
            n => at = Some(n),
        }
    }
    let number = take_overflow(image, journal);
    if let Some(n) = at {
        journal.log(image, overflow_at(n), 64);
    }
    image.overflow(number as usize - 1).fill(0, tag, slot);
    crate::kill_point!();
    at.map_or_else(|| image.bucket(home), |n| image.overflow(n as usize - 1)).set_link(number);
}

/// Where overflow bucket `number` stands.
pub(crate) fn overflow_at(number: u32) -> usize {
    OVERFLOW + (number as usize - 1) * 64
}

/// An empty overflow bucket, from the free list or fresh.
fn take_overflow(image: &mut Image, journal: &mut Journal) -> u32 {
    let free = image.word(OVERFLOW_FREE).load(Relaxed) as u32;
    if free != 0 {
        journal.log(image, overflow_at(free), 64);
        let bucket = image.overflow(free as usize - 1);
        image.word(OVERFLOW_FREE).store(u64::from(bucket.link()), Release);
        bucket.reset();
        return free;
    }
    let used = image.word(OVERFLOW_USED).load(Relaxed);
    image.overflow(used as usize).reset();
    image.word(OVERFLOW_USED).store(used + 1, Release);
    used as u32 + 1
}

/// Removes the entry of `slot`; the step is armed. `false` when there is none.
pub(crate) fn remove(image: &mut Image, journal: &mut Journal, home: usize, hash: u64, slot: u32) -> bool {
    let mut at = None;
    loop {
        let bucket = at.map_or_else(|| image.bucket(home), |n: u32| image.overflow(n as usize - 1));
        let link = bucket.link();
        if let Some(entry) = entries(bucket.matches(tag(hash))).find(|&e| bucket.slot(e) == slot) {
            journal.log(image, at.map_or(INDEX + home * 64, overflow_at), 64);
            at.map_or_else(|| image.bucket(home), |n| image.overflow(n as usize - 1)).clear(entry);
            return true;
        }
        if linked(image, link).is_none() {
            return false;
        }
        at = Some(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash;

    /// Growing a group moves an entry only to where `home` looks for it, and shares are even.
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

    /// A round that ends is the start of the next one: the same homes under both descriptions.
    #[test]
    fn a_full_round_renames_nothing() {
        for level in 0..6 {
            let end = Geometry { level, stage: 1, split: 1 << level };
            let start = Geometry { level: level + 1, stage: 0, split: 0 };
            assert!((0..10_000).all(|k| end.home(hash(k)) == start.home(hash(k))));
        }
    }
}
