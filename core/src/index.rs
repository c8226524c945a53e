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

use crate::error::GrowError;
use crate::hash::{hash, tag};
use crate::image::Image;
use crate::journal::Journal;
use crate::layout::*;
use crate::limits::EXPANSION_BUCKETS_MAX;
use crate::slot::{Bucket, ENTRIES, entries};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// Rows for every ten buckets (of ten entries) before a group is expanded: 67% full.
const ROWS_PER_TEN_BUCKETS: u64 = 67;

/// How far the index has grown: the image's words, kept at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    split: u64,
    level: u32,
    stage: u32,
}

/// An entry on its way to another bucket: (bucket of the group, tag, slot).
pub(crate) type Moved = Vec<(u8, u16, u32)>;

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

    fn buckets(self) -> u64 {
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
    fn member(hash: u64, level: u32, buckets: u64) -> u64 {
        let a = hash >> level & 1;
        let c = hash >> (level + 1) & 1;
        let third = c & u64::from((hash >> 40 & 255) < 171) & u64::from(buckets == 3);
        let fourth = c & (buckets >> 2);
        if third != 0 { 2 } else { a + 2 * fourth }
    }
}

/// The bucket behind a link.
#[inline]
fn linked(image: &Image, link: u32) -> Option<&Bucket> {
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
fn spare(image: &mut Image, n: usize) -> Result<(), GrowError> {
    let used = image.word(OVERFLOW_USED).load(Relaxed) as usize;
    image.grow(Region::Overflow, (used + n) * 64)
}

/// Inserts an entry; room was made by [`prepare`], the step is armed and the hot words are logged.
pub(crate) fn insert(image: &mut Image, journal: &mut Journal, home: usize, hash: u64, slot: u32) {
    journal.log(image, INDEX + home * 64, 64);
    place(image, journal, home, tag(hash), slot, true);
}

/// Puts an entry into the first free place of a chain whose primary bucket is logged (or new). `log`: the chain's
/// overflow buckets are not logged yet (those that this step took from the free list are).
fn place(image: &mut Image, journal: &mut Journal, home: usize, tag: u16, slot: u32, log: bool) {
    let mut at = None; // None: the primary; Some(n): overflow bucket number n
    loop {
        let bucket = at.map_or_else(|| image.bucket(home), |n: u32| image.overflow(n as usize - 1));
        let free = bucket.matches(0);
        if free != 0 {
            if let (Some(n), true) = (at, log) {
                journal.log(image, OVERFLOW + (n as usize - 1) * 64, 64);
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
    if let (Some(n), true) = (at, log) {
        journal.log(image, OVERFLOW + (n as usize - 1) * 64, 64);
    }
    image.overflow(number as usize - 1).fill(0, tag, slot);
    crate::kill_point!();
    at.map_or_else(|| image.bucket(home), |n| image.overflow(n as usize - 1)).set_link(number);
}

/// An empty overflow bucket, from the free list or fresh.
fn take_overflow(image: &mut Image, journal: &mut Journal) -> u32 {
    let free = image.word(OVERFLOW_FREE).load(Relaxed) as u32;
    if free != 0 {
        journal.log(image, OVERFLOW + (free as usize - 1) * 64, 64);
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
            journal.log(image, at.map_or(INDEX + home * 64, |n| OVERFLOW + (n as usize - 1) * 64), 64);
            at.map_or_else(|| image.bucket(home), |n| image.overflow(n as usize - 1)).clear(entry);
            return true;
        }
        if linked(image, link).is_none() {
            return false;
        }
        at = Some(link);
    }
}

/// Expands one group when the index is fuller than it should be; part of an armed step whose hot words are logged.
/// A group that cannot grow now (no space, too long a chain) stays as it is, which is slower but right.
pub(crate) fn expand_if_full(
    image: &mut Image,
    journal: &mut Journal,
    geometry: &mut Geometry,
    moved: &mut Moved,
) {
    let rows = image.word(LIVE_ROWS).load(Relaxed);
    if rows * 10 > ROWS_PER_TEN_BUCKETS * geometry.buckets() {
        expand(image, journal, geometry, moved);
    }
}

fn expand(image: &mut Image, journal: &mut Journal, geometry: &mut Geometry, moved: &mut Moved) {
    let buckets = 2 + u64::from(geometry.stage);
    let primary = |i: u64| (geometry.split + (i << geometry.level)) as usize;
    let Some((overflow, needed)) = collect(image, *geometry, buckets, moved) else { return };
    if overflow.len() + buckets as usize > EXPANSION_BUCKETS_MAX
        || image.grow(Region::Index, (primary(buckets) + 1) * 64).is_err()
        || spare(image, needed.saturating_sub(overflow.len())).is_err()
    {
        return;
    }
    for i in 0..buckets {
        journal.log(image, INDEX + primary(i) * 64, 64);
    }
    for &n in &overflow {
        journal.log(image, OVERFLOW + (n as usize - 1) * 64, 64);
    }
    for i in 0..=buckets {
        image.bucket(primary(i)).reset();
        crate::kill_point!();
    }
    for &n in &overflow {
        let free = image.word(OVERFLOW_FREE).load(Relaxed);
        image.overflow(n as usize - 1).set_link(free as u32);
        image.word(OVERFLOW_FREE).store(u64::from(n), Release);
        crate::kill_point!();
    }
    let mut filled = [0usize; 4];
    for &(i, tag, slot) in moved.iter() {
        let at = &mut filled[usize::from(i) % 4];
        if *at < ENTRIES {
            image.bucket(primary(u64::from(i))).fill(*at, tag, slot);
        } else {
            place(image, journal, primary(u64::from(i)), tag, slot, false);
        }
        *at += 1;
    }
    geometry.split += 1;
    if geometry.split == 1 << geometry.level {
        geometry.split = 0;
        geometry.stage += 1;
        if geometry.stage == 2 {
            geometry.stage = 0;
            geometry.level += 1;
        }
    }
    image.word(SPLIT).store(geometry.split, Release);
    crate::kill_point!();
    image.word(STAGE).store(u64::from(geometry.stage), Release);
    image.word(LEVEL).store(u64::from(geometry.level), Release);
}

/// Gathers the entries of the group to expand with their new places: (overflow buckets in use, overflow buckets needed).
fn collect(image: &Image, geometry: Geometry, buckets: u64, moved: &mut Moved) -> Option<(Vec<u32>, usize)> {
    moved.clear();
    let mut overflow = Vec::new();
    for i in 0..buckets {
        let mut bucket = image.bucket((geometry.split + (i << geometry.level)) as usize);
        loop {
            for entry in entries(!bucket.matches(0) & ((1 << ENTRIES) - 1)) {
                image.prefetch_key(bucket.slot(entry));
                moved.push((0, bucket.tag(entry), bucket.slot(entry)));
            }
            let link = bucket.link();
            let Some(next) = linked(image, link) else { break };
            overflow.push(link);
            bucket = next;
        }
    }
    let mut counts = [0usize; 4];
    for (member, _, slot) in moved.iter_mut() {
        let (_, key) = image.peek(*slot)?;
        *member = Geometry::member(hash(key), geometry.level, buckets + 1) as u8;
        counts[*member as usize] += 1;
    }
    Some((overflow, counts.iter().map(|&c| c.saturating_sub(ENTRIES).div_ceil(ENTRIES)).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
