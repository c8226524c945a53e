//! A bucket of the index: ten (tag, slot) entries and a link in one cache line.
//!
//! ```text
//! 0        20       24                 64
//! | 10 x u16 tag | u32 link | 10 x u32 slot |
//! ```
//! An entry with tag 0 is empty. The owner writes an entry's slot first and its tag last. The link is the
//! number of an overflow bucket (counted from 1), or 0.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

/// Entries of a bucket.
pub(crate) const ENTRIES: usize = 10;
/// A mask with a bit for each entry.
pub(crate) const FULL: u32 = (1 << ENTRIES) - 1;

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

    /// Fills entry `i`: the slot first, then the tag, which makes the entry valid.
    pub(crate) fn fill(&self, i: usize, tag: u16, slot: u32) {
        self.slots[i].store(slot, Relaxed);
        crate::kill_point!();
        self.tags[i].store(tag, Release);
    }

    /// Empties entry `i`.
    pub(crate) fn clear(&self, i: usize) {
        self.tags[i].store(0, Release);
    }

    /// Empties every entry.
    pub(crate) fn clear_all(&self) {
        (0..ENTRIES).for_each(|i| self.clear(i));
    }

    /// Empties every entry and the link.
    pub(crate) fn reset(&self) {
        self.clear_all();
        self.set_link(0);
    }
}

/// A bucket that its owner may be writing. Its words are loaded one by one, as atomics, so they may be from
/// different moments, and only a row's key proves a hit.
#[derive(Clone, Copy)]
pub(crate) struct SharedBucket<'a>(&'a [AtomicU64; 8]);

impl<'a> SharedBucket<'a> {
    pub(crate) fn new(words: &'a [AtomicU64; 8]) -> SharedBucket<'a> {
        SharedBucket(words)
    }

    /// A bit for each entry whose tag is `tag`, and the link to the overflow bucket.
    #[inline(always)]
    pub(crate) fn matches(self, tag: u16) -> (u32, u32) {
        let [a, b, c] = [0, 1, 2].map(|word: usize| self.0[word].load(Relaxed));
        let link = (c >> 32) as u32;
        #[cfg(target_arch = "x86_64")]
        let mask = {
            use std::arch::x86_64::*;
            // SAFETY: SSE2 is part of x86_64; these are operations on registers.
            unsafe {
                let want = _mm_set1_epi16(tag as i16);
                let low = _mm_cmpeq_epi16(_mm_set_epi64x(b as i64, a as i64), want);
                let high = _mm_cmpeq_epi16(_mm_cvtsi64_si128(c as i64), want);
                _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let mask = {
            let of = |word: u64, from: usize| {
                (0..4)
                    .filter(|i| (word >> (16 * i)) as u16 == tag)
                    .fold(0u32, |mask, i| mask | 1 << (from + i))
            };
            of(a, 0) | of(b, 4) | of(c, 8)
        };
        (mask & ((1 << ENTRIES) - 1), link)
    }

    /// Slot of entry `i`.
    #[inline(always)]
    pub(crate) fn slot(self, i: usize) -> u32 {
        (self.0[3 + i / 2].load(Relaxed) >> (32 * (i & 1))) as u32
    }
}

/// The entries of a mask that [`Bucket::matches`] returned.
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
                bucket.fill(i, (crate::hash::mix(seed * 16 + i as u64) % 4) as u16, u32::from(u16::MAX) << i);
            }
            // SAFETY: a bucket is 64 bytes of atomics, aligned, and nobody writes it here.
            let words = unsafe { &*std::ptr::from_ref(&bucket).cast::<[AtomicU64; 8]>() };
            let seen = SharedBucket::new(words);
            assert!((0..ENTRIES).all(|i| seen.slot(i) == bucket.slot(i)));
            for tag in 0..5u16 {
                assert_eq!(seen.matches(tag), (bucket.matches(tag), u32::MAX));
                let naive: Vec<usize> = (0..ENTRIES).filter(|&i| bucket.tag(i) == tag).collect();
                assert_eq!(entries(bucket.matches(tag)).collect::<Vec<_>>(), naive);
            }
        }
    }
}
