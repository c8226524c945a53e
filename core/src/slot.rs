//! A bucket of the index: ten (tag, slot) entries and a link in one cache line.
//!
//! ```text
//! 0        20       24                 64
//! | 10 x u16 tag | u32 link | 10 x u32 slot |
//! ```
//! An entry is empty when its tag is 0. An entry is written slot first, tag last. The link is the number of an overflow
//! bucket (counted from 1), 0 for none.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed, Ordering::Release};

/// Entries of a bucket.
pub(crate) const ENTRIES: usize = 10;

/// One bucket. Written by the owner thread alone.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    tags: [AtomicU16; ENTRIES],
    link: AtomicU32,
    slots: [AtomicU32; ENTRIES],
}

const _: () = assert!(std::mem::size_of::<Bucket>() == 64);

impl Bucket {
    /// A bit for each entry whose tag is `tag`.
    #[inline(always)]
    pub(crate) fn matches(&self, tag: u16) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            // SAFETY: both loads lie inside the 64-byte bucket; SSE2 is part of x86_64; the only writer is the thread
            // that owns the image, which is the one that reads here.
            let mask = unsafe {
                let p = std::ptr::from_ref(self).cast::<__m128i>();
                let want = _mm_set1_epi16(tag as i16);
                let low = _mm_cmpeq_epi16(_mm_load_si128(p), want);
                let high = _mm_cmpeq_epi16(_mm_load_si128(p.add(1)), want);
                _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
            };
            mask & ((1 << ENTRIES) - 1)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            (0..ENTRIES).filter(|&i| self.tag(i) == tag).fold(0, |m, i| m | 1 << i)
        }
    }

    /// Tag of entry `i`; 0: empty.
    #[inline(always)]
    pub(crate) fn tag(&self, i: usize) -> u16 {
        self.tags[i].load(Relaxed)
    }

    /// Slot of entry `i`.
    #[inline(always)]
    pub(crate) fn slot(&self, i: usize) -> u32 {
        self.slots[i].load(Relaxed)
    }

    /// The overflow bucket's number; 0: none.
    #[inline(always)]
    pub(crate) fn link(&self) -> u32 {
        self.link.load(Relaxed)
    }

    /// Links an overflow bucket.
    pub(crate) fn set_link(&self, number: u32) {
        self.link.store(number, Release);
    }

    /// Fills entry `i`: the slot first, then the tag that makes it count.
    pub(crate) fn fill(&self, i: usize, tag: u16, slot: u32) {
        self.slots[i].store(slot, Relaxed);
        crate::kill_point!();
        self.tags[i].store(tag, Release);
    }

    /// Empties entry `i`.
    pub(crate) fn clear(&self, i: usize) {
        self.tags[i].store(0, Release);
    }

    /// Empties every entry and the link.
    pub(crate) fn reset(&self) {
        (0..ENTRIES).for_each(|i| self.clear(i));
        self.set_link(0);
    }
}

/// The entries that a mask of [`Bucket::matches`] names.
pub(crate) fn entries(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let i = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            i
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_like_a_loop() {
        for seed in 0..2000u64 {
            let bucket = Bucket {
                tags: Default::default(),
                link: AtomicU32::new(u32::MAX),
                slots: Default::default(),
            };
            for i in 0..ENTRIES {
                bucket.fill(i, (crate::hash::mix(seed * 16 + i as u64) % 4) as u16, u32::from(u16::MAX));
            }
            for tag in 0..5u16 {
                let naive: Vec<usize> = (0..ENTRIES).filter(|&i| bucket.tag(i) == tag).collect();
                assert_eq!(entries(bucket.matches(tag)).collect::<Vec<_>>(), naive);
            }
        }
    }
}
