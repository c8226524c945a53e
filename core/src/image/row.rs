//! A row in its slot: version word, key, floats.
//!
//! The version word is `counter << 2 | live << 1 | writing`. It is odd while the row is being written, and bit
//! 1 is set while the row is live. In a free slot the key word links to the next free slot (slot + 1; 0 at the
//! end). row_version.rs has the order of stores on which readers of the image rely.
#![allow(unsafe_code)]

use crate::image::row_version;
use crate::image::row_version::LIVE;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, compiler_fence};

/// A row, as its owner accesses it.
pub(crate) struct Row<'a> {
    at: *mut u8,
    floats: usize,
    image: PhantomData<&'a mut u8>,
}

impl<'a> Row<'a> {
    /// # Safety
    /// `at` is the start of an allocated slot of `stride` bytes, 8-byte aligned, that nothing else accesses for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8, stride: usize) -> Row<'a> {
        Row { at, floats: (stride - 16) / 4, image: PhantomData }
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64; 2] {
        // SAFETY: the first 16 bytes of the slot, aligned (contract of `new`), only accessed as atomics.
        unsafe { &*self.at.cast::<[AtomicU64; 2]>() }
    }

    /// The version word.
    #[inline(always)]
    pub(crate) fn version(&self) -> u64 {
        self.words()[0].load(Relaxed)
    }

    /// The key, or the link of a free slot.
    #[inline(always)]
    pub(crate) fn key(&self) -> u64 {
        self.words()[1].load(Relaxed)
    }

    /// Whether this is the live row of `key`.
    #[inline(always)]
    pub(crate) fn is(&self, key: u64) -> bool {
        self.version() & LIVE != 0 && self.key() == key
    }

    /// The first `n` floats of the row.
    #[inline(always)]
    pub(crate) fn floats(&self, n: usize) -> &[f32] {
        assert!(n <= self.floats);
        // SAFETY: n floats follow the two words inside the slot (checked), and nobody writes while `self` lives.
        unsafe { std::slice::from_raw_parts(self.at.add(16).cast(), n) }
    }

    /// Writes the first `n` floats with `write` under an odd version, then makes the row live with version `counter`.
    #[inline(always)]
    pub(crate) fn write(&mut self, n: usize, counter: u64, write: impl FnOnce(&mut [f32])) {
        assert!(n <= self.floats);
        row_version::begin_row_write(&self.words()[0], counter);
        compiler_fence(SeqCst);
        crate::kill_point!();
        // SAFETY: n floats follow the two words inside the slot (checked); `&mut self` is the only access.
        write(unsafe { std::slice::from_raw_parts_mut(self.at.add(16).cast(), n) });
        crate::kill_point!();
        row_version::end_row_write(&self.words()[0], counter);
        compiler_fence(SeqCst);
    }

    /// Puts a key into a slot that is not live yet (a `write` makes it live).
    pub(crate) fn set_key(&mut self, key: u64) {
        self.words()[1].store(key, Release);
    }

    /// Makes the slot free, linking to `next` (slot + 1, or 0).
    pub(crate) fn free(&mut self, counter: u64, next: u64) {
        let [version, key] = self.words();
        row_version::free(version, key, counter, next);
    }
}
