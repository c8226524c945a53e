//! Memory that the kernel reads and writes while an operation is in flight. Buffers have one size and never
//! move. At any time a buffer belongs either to this process's code or to the kernel. A ring provides buffers
//! for receives.
//!
//! Two rules make this sound. A slice is made only of a buffer that belongs to us. Memory is never freed while
//! one of its buffers may still belong to the kernel.
#![allow(unsafe_code)]

use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

const PAGE: usize = 4096;

/// Zeroed pages, freed only by [`Pages::free`].
struct Pages {
    base: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.max(1), PAGE).expect("a few MiB");
        // SAFETY: the layout's size is at least one.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        Pages { base: base.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn free(&mut self) {
        // SAFETY: allocated in `new` with this layout; the owner calls this once, from its drop.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: plain memory, reached only through its owner.
unsafe impl Send for Pages {}

/// Buffers of one size. The type records which of them the kernel has; those cannot be accessed.
pub(super) struct Buffers {
    pages: Pages,
    bytes: usize,
    lent: Vec<bool>,
    lent_count: usize,
}

impl Buffers {
    /// `count` buffers of `bytes` each. All belong to us.
    pub(super) fn new(count: u16, bytes: usize) -> Buffers {
        let lent = vec![false; usize::from(count)];
        Buffers { pages: Pages::new(usize::from(count) * bytes), bytes, lent, lent_count: 0 }
    }

    /// The content of a buffer that belongs to us.
    ///
    /// # Panics
    /// When the kernel has it.
    pub(super) fn bytes(&self, buffer: u16) -> &[u8] {
        let at = self.own(buffer);
        // SAFETY: in bounds (`own` indexes `lent`), initialised (zeroed at first), and not lent: nobody writes
        // it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), self.bytes) }
    }

    /// The content of a buffer that belongs to us, to write.
    ///
    /// # Panics
    /// When the kernel has it.
    pub(super) fn bytes_mut(&mut self, buffer: u16) -> &mut [u8] {
        let at = self.own(buffer);
        // SAFETY: as in `bytes`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), self.bytes) }
    }

    fn own(&self, buffer: u16) -> NonNull<u8> {
        assert!(!self.lent[usize::from(buffer)], "buffer {buffer} is the kernel's");
        // SAFETY: `lent` has an entry for each buffer of the allocation, so this one lies within it.
        unsafe { self.pages.base.add(usize::from(buffer) * self.bytes) }
    }

    /// Lends a buffer to the kernel. Returns its address.
    pub(super) fn lend(&mut self, buffer: u16) -> *mut u8 {
        let at = self.own(buffer);
        self.lent[usize::from(buffer)] = true;
        self.lent_count += 1;
        at.as_ptr()
    }

    /// The kernel has finished with a buffer.
    pub(super) fn take_back(&mut self, buffer: u16) {
        assert!(std::mem::replace(&mut self.lent[usize::from(buffer)], false), "buffer {buffer} was ours");
        self.lent_count -= 1;
    }

    /// Records that the kernel has no buffer any more.
    fn take_all_back(&mut self) {
        self.lent.fill(false);
        self.lent_count = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.lent_count == 0 {
            self.pages.free();
        } else {
            tracing::debug!(buffers = self.lent_count, "memory that the kernel may still use is never freed");
        }
    }
}

/// Buffers that the kernel receives into. When bytes arrive, it takes a buffer from a ring of those that it may take.
pub(super) struct Provided {
    ring: Pages,
    buffers: Buffers,
    mask: u16,
    tail: u16,
    registered: bool,
}

impl Provided {
    /// `count` buffers (a power of two), none of them provided yet.
    pub(super) fn new(count: u16, bytes: usize) -> Provided {
        assert!(count.is_power_of_two());
        let ring = Pages::new(usize::from(count) * size_of::<BufRingEntry>());
        Provided { ring, buffers: Buffers::new(count, bytes), mask: count - 1, tail: 0, registered: true }
    }

    /// The ring's address for its registration, and its number of entries.
    pub(super) fn ring(&self) -> (u64, u16) {
        (self.ring.base.as_ptr() as u64, self.mask + 1)
    }

    /// Provides every buffer.
    pub(super) fn provide_all(&mut self) {
        (0..=self.mask).for_each(|buffer| self.provide(buffer));
    }

    /// Provides a buffer that belongs to us.
    pub(super) fn provide(&mut self, buffer: u16) {
        let (at, bytes) = (self.buffers.lend(buffer), self.buffers.bytes);
        let base = self.ring.base.cast::<BufRingEntry>();
        // SAFETY: the index is masked to the ring's entries; the memory is zeroed, page-aligned and large enough. The
        // kernel reads no entry at or behind the tail, and there are no more buffers than entries.
        let entry = unsafe { base.add(usize::from(self.tail & self.mask)).as_mut() };
        entry.set_addr(at as u64);
        entry.set_len(bytes as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned u16 within the first entry, written by nobody else; the kernel reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Records that the kernel has put bytes into a buffer and has finished with it.
    pub(super) fn take(&mut self, buffer: u16) {
        self.buffers.take_back(buffer);
    }

    /// A buffer that was taken and not yet provided again.
    pub(super) fn bytes(&self, buffer: u16) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    /// Call it after the ring was unregistered, when no receive is in flight: the memory then belongs to us.
    pub(super) fn retire(&mut self) {
        self.buffers.take_all_back();
        self.registered = false;
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        if !self.registered {
            self.ring.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_stand_apart_and_the_kernels_cannot_be_looked_at() {
        let mut buffers = Buffers::new(4, 100);
        for i in 0..4 {
            buffers.bytes_mut(i).fill(i as u8 + 1);
        }
        for i in 0..4 {
            assert_eq!(buffers.bytes(i), [i as u8 + 1; 100]);
        }
        let at = buffers.lend(2);
        assert_eq!(at as usize - buffers.bytes(0).as_ptr() as usize, 200);
        assert!(std::panic::catch_unwind(|| buffers.bytes(2).len()).is_err());
        buffers.take_back(2);
        assert_eq!(buffers.bytes(2), [3; 100]);
        assert!(std::panic::catch_unwind(|| buffers.bytes(4).len()).is_err());
    }
}
