//! The version protocol of a row: how its owner stamps it, and how anybody else reads it. The words of a row are its
//! version, its key, and its floats, two a word.
//!
//! ```text
//! owner                                   reader
//!   version = odd (relaxed)                 v = version (acquire); odd: again
//!   fence(release)                          key, floats (relaxed)
//!   key or floats                           fence(acquire)
//!   version = even, new (release)           version = v? what was read is one state of the row
//! ```
//! A reader that saw a new float sees, behind its fence, that the version is odd or new. Versions of a slot only grow
//! (freeing it and using it again count too), so an equal version means that nothing was written in between.
//! The functions are generic over the atomic word: the model in here runs these very functions under loom.

use crate::row::{LIVE, WRITING};
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// An atomic word: the machine's, or the model's.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);
    /// The owner is in the middle of something.
    fn pause();
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline(always)]
    fn pause() {
        std::hint::spin_loop();
    }
}

/// Before the owner writes the floats of a row that will have `counter`.
#[inline(always)]
pub(crate) fn begin<W: Word>(version: &W, counter: u64) {
    version.store(counter << 2 | LIVE | WRITING, Relaxed);
    W::fence(Release);
}

/// After that.
#[inline(always)]
pub(crate) fn end<W: Word>(version: &W, counter: u64) {
    version.store(counter << 2 | LIVE, Release);
}

/// Makes a row's slot free, its key word a link to the next free slot. Each store is a release, so that who sees one sees
/// those before it.
pub(crate) fn free<W: Word>(version: &W, key: &W, counter: u64, next: u64) {
    version.store(counter << 2 | WRITING, Release);
    crate::kill_point!();
    key.store(next, Release);
    crate::kill_point!();
    version.store(counter << 2, Release);
}

/// Reads the row of `key` at `words`, which somebody else may be writing: `copy` gets the words of the floats, and loads
/// what it wants of them as it likes, once or several times. `false`: there is no such row here, or it was being written
/// at each of `tries` looks; what `copy` made is then worth nothing.
#[inline(always)]
pub(crate) fn read<W: Word>(words: &[W], key: u64, tries: u32, mut copy: impl FnMut(&[W])) -> bool {
    let [version, own, floats @ ..] = words else { return false };
    for _ in 0..tries {
        let before = version.load(Acquire);
        if before & LIVE == 0 || own.load(Relaxed) != key {
            return false;
        }
        if before & WRITING == 0 {
            copy(floats);
            W::fence(Acquire);
            if version.load(Relaxed) == before {
                return true;
            }
        }
        W::pause();
    }
    false
}
