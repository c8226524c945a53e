//! The index of a shard: from hash to slot. It grows one bucket at a time.
//!
//! geometry.rs says which bucket a hash belongs to. expansion.rs adds buckets.

use crate::error::GrowError;
use crate::hash::tag;
use crate::image::bucket::{Bucket, FULL, entries};
use crate::image::journal::Journal;
use crate::image::layout::*;
use crate::image::owned_image::Image;
use crate::image::row_version::LIVE;
use crate::index::geometry::Geometry;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Checks in one pass over the buckets what every search relies on. Links lead to overflow buckets in use, and
/// no two links to the same one, so every chain ends. Slots belong to rows. The error says which of these is
/// violated.
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
        None => Err(format!("overflow bucket {link} is linked, but only {used} are in use")),
    };
    // The contents of buckets on the free list have no meaning, except for their links.
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
            return Err(format!(
                "its index names slot {}, but only {high} were ever used",
                bucket.slot(entry)
            ));
        }
    }
    Ok(())
}

/// The bucket behind a link.
#[inline]
pub(crate) fn linked(image: &Image, link: u32) -> Option<&Bucket> {
    (link != 0 && link as usize <= image.overflow_buckets()).then(|| image.overflow(link as usize - 1))
}

/// The first slot in the home bucket whose tag fits, or `NONE`. If there is none, prefetches the first overflow
/// bucket for a later [`find_slot`].
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

/// Looks for a key without a candidate in the first overflow bucket, which [`candidate`] prefetched.
#[inline(always)]
pub(crate) fn second_candidate(image: &Image, home: usize, hash: u64) -> u32 {
    let Some(bucket) = linked(image, image.bucket(home).link()) else { return NONE };
    let mask = bucket.matches(tag(hash));
    if mask == 0 { NONE } else { bucket.slot(mask.trailing_zeros() as usize) }
}

/// The slot of `key`, found by searching the whole chain.
#[cold]
#[inline(never)]
pub(crate) fn find_slot(image: &Image, home: usize, hash: u64, key: u64) -> u32 {
    let mut bucket = image.bucket(home);
    loop {
        for entry in entries(bucket.matches(tag(hash))) {
            let slot = bucket.slot(entry);
            if image.peek(slot).is_some_and(|(version, k)| version & LIVE != 0 && k == key) {
                return slot;
            }
        }
        match linked(image, bucket.link()) {
            Some(next) => bucket = next,
            None => return NONE,
        }
    }
}

/// Makes sure that an insertion at `home` finds space.
///
/// # Errors
/// The overflow region cannot grow. Nothing has changed.
pub(crate) fn prepare_insert(image: &mut Image, home: usize) -> Result<(), GrowError> {
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

/// Makes sure that there are `n` overflow buckets after those in use.
pub(crate) fn spare(image: &mut Image, n: usize) -> Result<(), GrowError> {
    let used = image.word(OVERFLOW_USED).load(Relaxed) as usize;
    image.grow(Region::Overflow, (used + n) * 64)
}

/// Inserts an entry. [`prepare_insert`] has made space, the step is armed and the hot words are logged.
pub(crate) fn insert_key(image: &mut Image, journal: &mut Journal, home: usize, hash: u64, slot: u32) {
    journal.log(image, INDEX + home * 64, 64);
    place_in_bucket(image, journal, home, tag(hash), slot);
}

/// Puts an entry into the first free place of a chain. The chain's primary bucket has been logged.
fn place_in_bucket(image: &mut Image, journal: &mut Journal, home: usize, tag: u16, slot: u32) {
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

/// The offset of overflow bucket `number`.
pub(crate) fn overflow_at(number: u32) -> usize {
    OVERFLOW + (number as usize - 1) * 64
}

/// An empty overflow bucket, from the free list or never used before.
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

/// Removes the entry of `slot`, in an armed step. Returns `false` when there is none.
pub(crate) fn remove_key(
    image: &mut Image,
    journal: &mut Journal,
    home: usize,
    hash: u64,
    slot: u32,
) -> bool {
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
