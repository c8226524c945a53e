//! The growth of the index: a group of k buckets becomes one of k + 1, as part of the step that inserts a row.
//!
//! The entries move into new chains that are built beside the old ones. The overflow buckets of the new chains
//! come from the free list, or from the buckets after those in use. Until the new chains are linked, the
//! contents of these buckets have no meaning. So they have no undo record, and a kill leaves them as they are.
//! The journal records only the words that make the buckets part of the index: the primary buckets of the
//! group, and the links where a chain ends or begins. Their number is constant, however long the chains are.

use crate::hash::hash;
use crate::image::bucket::{ENTRIES, FULL, entries};
use crate::image::journal::Journal;
use crate::image::layout::*;
use crate::image::owned_image::Image;
use crate::index::geometry::Geometry;
use crate::index::hash_index::{linked, overflow_at, spare};
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Rows for every ten buckets (of ten entries each) above which a group is expanded: 67% full.
const ROWS_PER_TEN_BUCKETS: u64 = 67;
/// The most entries for which buffers stay allocated from one expansion to the next.
const MOVED_KEPT: usize = 1024;

/// Buffers that expansions reuse.
#[derive(Default)]
pub(crate) struct ExpansionBuffers {
    /// Entries that move: (bucket of the group, tag, slot).
    entries: Vec<(u8, u16, u32)>,
    /// Numbers of the overflow buckets that they need: those of the chain of the group's bucket 0, then those
    /// of bucket 1, and so on.
    buckets: Vec<u32>,
}

/// A group before and after its expansion.
struct BucketGroup {
    /// The first and last overflow bucket of each old bucket; 0 where it has none.
    old: [(u32, u32); 3],
    /// The overflow buckets of each new bucket, as a range of [`ExpansionBuffers::buckets`].
    new: [Range<usize>; 4],
}

/// Expands one group when the index is too full. This is part of an armed step; the journal has its hot words.
/// A group that cannot grow now (no space) is not changed, which is slower but correct.
pub(crate) fn expand_if_full(
    image: &mut Image,
    journal: &mut Journal,
    geometry: &mut Geometry,
    moved: &mut ExpansionBuffers,
) {
    let rows = image.word(LIVE_ROWS).load(Relaxed);
    if rows * 10 > ROWS_PER_TEN_BUCKETS * geometry.buckets() {
        expand(image, journal, geometry, moved);
        moved.entries.shrink_to(MOVED_KEPT);
        moved.buckets.shrink_to(MOVED_KEPT);
    }
}

/// Bucket `i` of the group that is expanded next.
fn primary(geometry: &Geometry, i: usize) -> usize {
    (geometry.split + ((i as u64) << geometry.level)) as usize
}

fn expand(image: &mut Image, journal: &mut Journal, geometry: &mut Geometry, moved: &mut ExpansionBuffers) {
    let members = 2 + geometry.stage as usize;
    let Some(group) = collect(image, geometry, members, moved) else { return };
    let needed = group.new[members].end;
    let rest = take_free(image, needed, &mut moved.buckets);
    if image.grow(Region::Index, (primary(geometry, members) + 1) * 64).is_err()
        || spare(image, needed - moved.buckets.len()).is_err()
    {
        return;
    }
    let used = image.word(OVERFLOW_USED).load(Relaxed) as u32;
    let fresh = (needed - moved.buckets.len()) as u32;
    moved.buckets.extend(used + 1..=used + fresh);

    for i in 0..members {
        journal.log(image, INDEX + primary(geometry, i) * 64, 64);
    }
    for &(_, last) in group.old.iter().filter(|chain| chain.1 != 0) {
        journal.log(image, overflow_at(last), 64);
    }
    link(image, journal, &group, &moved.buckets, used);
    fill(image, geometry, members, &group, moved);
    release(image, &group, rest);
    image.word(OVERFLOW_USED).store(u64::from(used + fresh), Release);
    crate::kill_point!();
    advance_expansion(image, geometry);
}

/// Collects the entries of the group with their new buckets. `None` if an entry names no slot.
fn collect(
    image: &Image,
    geometry: &Geometry,
    members: usize,
    moved: &mut ExpansionBuffers,
) -> Option<BucketGroup> {
    moved.entries.clear();
    let mut old = [(0, 0); 3];
    for (i, chain) in old.iter_mut().enumerate().take(members) {
        let mut bucket = image.bucket(primary(geometry, i));
        loop {
            for entry in entries(!bucket.matches(0) & FULL) {
                image.prefetch_key(bucket.slot(entry));
                moved.entries.push((0, bucket.tag(entry), bucket.slot(entry)));
            }
            let link = bucket.link();
            let Some(next) = linked(image, link) else { break };
            *chain = (if chain.0 == 0 { link } else { chain.0 }, link);
            bucket = next;
        }
    }
    let mut counts = [0usize; 4];
    for (member, _, slot) in &mut moved.entries {
        let (_, key) = image.peek(*slot)?;
        *member = Geometry::member(hash(key), geometry.level, members as u64 + 1) as u8;
        counts[usize::from(*member)] += 1;
    }
    let mut end = 0;
    let new = counts.map(|count| {
        let start = end;
        end += count.saturating_sub(ENTRIES).div_ceil(ENTRIES);
        start..end
    });
    Some(BucketGroup { old, new })
}

/// Lists the first buckets of the free list, at most `most`. Returns the list's rest. Changes nothing.
fn take_free(image: &Image, most: usize, buckets: &mut Vec<u32>) -> u32 {
    buckets.clear();
    let mut next = image.word(OVERFLOW_FREE).load(Relaxed) as u32;
    while buckets.len() < most && next != 0 {
        buckets.push(next);
        next = image.overflow(next as usize - 1).link();
    }
    next
}

/// Links the new chains. Buckets of the free list are already linked to each other. So only the ends of chains,
/// and the end of the list, are changed and logged. The buckets after the first `used` belong to no chain yet.
fn link(image: &mut Image, journal: &mut Journal, group: &BucketGroup, buckets: &[u32], used: u32) {
    for chain in &group.new {
        for at in chain.clone() {
            let number = buckets[at];
            let next = if at + 1 < chain.end { buckets[at + 1] } else { 0 };
            if image.overflow(number as usize - 1).link() == next {
                continue;
            }
            if number <= used {
                journal.log(image, overflow_at(number), 64);
            }
            image.overflow(number as usize - 1).set_link(next);
            crate::kill_point!();
        }
    }
}

/// Writes the entries into the new chains, and attaches the chains to the primary buckets.
fn fill(
    image: &mut Image,
    geometry: &Geometry,
    members: usize,
    group: &BucketGroup,
    moved: &ExpansionBuffers,
) {
    for &number in &moved.buckets {
        image.overflow(number as usize - 1).clear_all();
    }
    for (i, chain) in group.new.iter().enumerate().take(members + 1) {
        let bucket = image.bucket(primary(geometry, i));
        bucket.reset();
        crate::kill_point!();
        if !chain.is_empty() {
            bucket.set_link(moved.buckets[chain.start]);
        }
    }
    let mut filled = [0usize; 4];
    for &(i, tag, slot) in &moved.entries {
        let (i, at) = (usize::from(i) % 4, filled[usize::from(i) % 4]);
        match at.checked_sub(ENTRIES) {
            None => image.bucket(primary(geometry, i)).fill(at, tag, slot),
            Some(behind) => {
                let number = moved.buckets[group.new[i].start + behind / ENTRIES];
                image.overflow(number as usize - 1).fill(behind % ENTRIES, tag, slot);
            }
        }
        filled[i] += 1;
    }
}

/// Puts the old chains on the free list, before `rest`. Their entries are not cleared, because readers may
/// still be following them.
fn release(image: &mut Image, group: &BucketGroup, mut rest: u32) {
    for &(first, last) in group.old.iter().filter(|chain| chain.1 != 0) {
        image.overflow(last as usize - 1).set_link(rest);
        crate::kill_point!();
        rest = first;
    }
    image.word(OVERFLOW_FREE).store(u64::from(rest), Release);
    crate::kill_point!();
}

/// Moves on to the next group.
fn advance_expansion(image: &mut Image, geometry: &mut Geometry) {
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
