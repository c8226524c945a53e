//! The memory of a shard: a file (memfd, tmpfs or disk) at a reserved address range. Parts of the file are mapped
//! there as the regions grow. A larger range takes its place when the rows need more addresses. All addresses are
//! offsets from the base. Bounds are checked here, so the rest of the crate is safe code.
//!
//! A region grows by chunks of 2 MiB of file, and inside its last chunk by steps: allocate (a full disk is an
//! error, never a SIGBUS), populate, publish. extents.rs has the state that the owner shares with the grower.
//! The grower allocates and populates before the owner needs the bytes. When a chunk is full, the grower
//! collapses it into a huge page (memfd and tmpfs).
#![allow(unsafe_code)]

use crate::error::GrowError;
use crate::image::bucket::Bucket;
use crate::image::checksums::Checksums;
use crate::image::files::filesystem::Medium;
use crate::image::layout::*;
use crate::image::memory::extents::Extents;
use crate::image::memory::grower::{Grower, Growth, growth_step};
use crate::image::memory::prefetch::prefetch;
use crate::image::row::Row;
use crate::limits::*;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// One shard's memory. One thread owns it: `Send`, not `Sync`.
pub(crate) struct Image {
    base: *mut u8,
    stride: usize,
    slots: u32,     // slots that are published
    buckets: usize, // index buckets that are published
    overflow_buckets: usize,
    header: usize, // the sketch included
    sketch: usize,
    growth: Growth,
    grower: Arc<Grower>,
    /// Owns the memory at `base`. The grower shares it, and prepares bytes after the published ones.
    extents: Arc<Extents>,
}

// SAFETY: the base points into a mapping that `extents` owns; nothing in it belongs to one thread.
unsafe impl Send for Image {}

impl Image {
    /// Reserves the address range and maps the header of `file`, which must hold at least a header.
    pub(crate) fn map(
        file: File,
        stride: usize,
        sketch: usize,
        medium: Medium,
        journaled: bool,
        grower: &Arc<Grower>,
    ) -> io::Result<Image> {
        let header = header_bytes(stride) + sketch;
        assert!(header <= CHUNK_BYTES, "the header, with its sketch, must fit into one chunk");
        // Without a journal the undo halves are never touched.
        let counted = |pushers| held_bytes(stride, journaled, pushers) + sketch;
        let extents = Arc::new(Extents::map(file, counted, medium, grower.budget.clone())?);
        Ok(Image {
            base: extents.base(),
            stride,
            slots: 0,
            buckets: 0,
            overflow_buckets: 0,
            header,
            sketch,
            growth: Growth::default(),
            grower: grower.clone(),
            extents,
        })
    }

    /// Makes a new image's header: allocated, zeroed, mapped.
    pub(crate) fn create(
        file: File,
        stride: usize,
        sketch: usize,
        medium: Medium,
        journaled: bool,
        grower: &Arc<Grower>,
    ) -> io::Result<Image> {
        ftruncate(&file, CHUNK_BYTES as u64)?;
        fallocate(&file, FallocateFlags::empty(), 0, TOUCHED as u64)?;
        if journaled {
            let halves = header_bytes(stride) - UNDO;
            fallocate(&file, FallocateFlags::empty(), UNDO as u64, halves as u64)?;
        }
        if sketch > 0 {
            fallocate(&file, FallocateFlags::empty(), sketch_at(stride) as u64, sketch as u64)?;
        }
        Image::map(file, stride, sketch, medium, journaled, grower)
    }

    /// Allocates file space for entry `i` of the pushers, if it is the first entry of its allocation step.
    ///
    /// # Errors
    /// No space, or the memory limit.
    pub(crate) fn hold_pusher(&self, i: usize) -> Result<(), GrowError> {
        let at = PUSHERS + i * PUSHER_BYTES;
        if at < TOUCHED || !at.is_multiple_of(PUSHERS_STEP) {
            Ok(())
        } else {
            self.extents.hold(at, PUSHERS_STEP)
        }
    }

    /// Allocates file space for entry `i` of the ring of deletions, if it is the first entry of its allocation step.
    ///
    /// # Errors
    /// No space, or the memory limit.
    pub(crate) fn hold_deletion(&self, i: usize) -> Result<(), GrowError> {
        let at = DELETIONS + i * DELETION_BYTES;
        if at.is_multiple_of(DELETIONS_STEP) { self.extents.hold(at, DELETIONS_STEP) } else { Ok(()) }
    }

    /// The key and the command of entry `i` of the ring of deletions, which must have file space.
    pub(crate) fn deletion(&self, i: usize) -> [&AtomicU64; 2] {
        assert!(i < DELETIONS_MAX);
        let at = DELETIONS + i * DELETION_BYTES;
        // SAFETY: inside the mapped chunk of the header (checked) and aligned; words here are only accessed as atomics
        // or through `copy`, which needs `&mut self`.
        [0, 8].map(|word| unsafe { &*self.base.add(at + word).cast::<AtomicU64>() })
    }

    /// Maps the extents of the directory, which was checked against the file's length.
    pub(crate) fn map_extents(&mut self) -> io::Result<()> {
        self.extents.map_all()?;
        self.count();
        Ok(())
    }

    /// Checks the directory of a file of `length` bytes. The error says what is wrong.
    pub(crate) fn check_extents(&self, length: u64) -> Result<(), String> {
        self.extents.check(length)
    }

    /// Uses the address range in use, and what is published of it.
    fn count(&mut self) {
        let base = self.extents.base();
        if base != self.base {
            self.base = base;
            self.extents.leave_former_ranges();
        }
        let [index, overflow, slab] =
            REGIONS.map(|r| self.word(REGION_BYTES + 8 * r as usize).load(Relaxed) as usize);
        self.slots = (slab / self.stride).min(SLOTS_MAX as usize) as u32;
        self.buckets = index / 64;
        self.overflow_buckets = overflow / 64;
    }

    /// Grows `region` until it has at least `bytes`.
    ///
    /// # Errors
    /// No space, no memory, or a limit. The image is unchanged, except for space that was taken before the error.
    #[inline]
    pub(crate) fn grow(&mut self, region: Region, bytes: usize) -> Result<(), GrowError> {
        let have = self.word(REGION_BYTES + 8 * region as usize).load(Relaxed) as usize;
        if have >= bytes { Ok(()) } else { self.publish(region, have, bytes) }
    }

    /// Publishes the next step of a region that has `have` bytes, and requests the step after it from the
    /// grower. If the grower is late or had no request, this makes the step ready itself.
    #[cold]
    fn publish(&mut self, region: Region, have: usize, bytes: usize) -> Result<(), GrowError> {
        let start = self.grower.now();
        let step = growth_step(have);
        if self.extents.ready(region) < bytes {
            let page = bytes.next_multiple_of(GROWTH_STEP_BYTES_MIN);
            let more = page.max((have + step.min(GROWTH_LATE_BYTES)).min(region.bytes_max()));
            // Near a limit, the last pages are taken one at a time.
            self.extents.prepare(region, more).or_else(|_| self.extents.prepare(region, page))?;
            self.growth.by_owner += 1;
        } else {
            self.growth.by_grower += 1;
        }
        let ready = self.extents.ready(region);
        let next = ready.min(bytes.max(have + step));
        self.word(REGION_BYTES + 8 * region as usize).store(next as u64, Release);
        self.count();
        if next >= GROWTH_AHEAD_BYTES_MIN && ready - next < step {
            self.extents.want(region, (next + 2 * step).min(region.bytes_max()));
            self.grower.request(&self.extents);
        }
        if let (Some(start), Some(now)) = (start, self.grower.now()) {
            self.growth.record(now.saturating_sub(start));
        }
        Ok(())
    }

    /// The header's address in this process. It stays the same.
    pub(crate) fn header_addr(&self) -> usize {
        self.extents.header_addr()
    }

    /// The address of the rows in this process, those included that are only ready. Rows that have been at an address
    /// can be read there until the image is closed.
    pub(crate) fn rows_addr(&self) -> usize {
        self.extents.base().addr() + SLAB
    }

    /// The extents of rows, in order: (offset in the rows, bytes).
    pub(crate) fn row_extents(&self) -> Vec<(usize, usize)> {
        self.extents.of(Region::Slab)
    }

    /// Bytes of rows that are published.
    pub(crate) fn row_bytes(&self) -> usize {
        self.word(REGION_BYTES + 8 * Region::Slab as usize).load(Relaxed) as usize
    }

    /// Makes the rows ready up to `end`, in an existing extent: now if few bytes are missing, else later by the
    /// grower. Returns whether they are ready.
    ///
    /// # Errors
    /// No memory, or a limit. The rows are unchanged.
    pub(crate) fn make_ready(&self, end: usize) -> Result<bool, GrowError> {
        let ready = self.extents.ready(Region::Slab);
        if end - ready.min(end) <= WHOLE_AT_ONCE_BYTES {
            return self.extents.prepare(Region::Slab, end).map(|()| true);
        }
        self.extents.want(Region::Slab, end);
        self.grower.request(&self.extents);
        Ok(false)
    }

    /// A read-only descriptor of the image's file.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.extents.share()
    }

    /// What growth has cost this thread.
    pub(crate) fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Forbids growth from now on. The grower takes no more extents.
    pub(crate) fn close(&self) {
        self.extents.close();
    }

    /// Notes in the checksums of the image that the row in a slot changes.
    pub(crate) fn note_row(&self, sums: &mut Checksums, slot: u32) {
        let at = slot as usize * self.stride;
        for chunk in [at / CHUNK_BYTES, (at + self.stride - 1) / CHUNK_BYTES] {
            sums.note_rows(chunk, || self.extents.file_chunk(Region::Slab, chunk));
        }
    }

    /// Notes in the checksums of the image that its index changes.
    pub(crate) fn note_index(&self, sums: &mut Checksums) {
        let chunks = |region| self.extents.file_chunks(region);
        sums.note_index(|| chunks(Region::Index).chain(chunks(Region::Overflow)).collect());
    }

    /// How many chunks of the file the image uses, the header among them.
    pub(crate) fn file_chunks(&self) -> usize {
        let ends = REGIONS.into_iter().flat_map(|region| self.extents.file_chunks(region));
        ends.max().map_or(1, |last| last + 1)
    }

    /// The file of the image.
    pub(crate) fn file(&self) -> Arc<File> {
        self.extents.file()
    }

    /// Writes the first page to its medium and waits.
    pub(crate) fn sync_head(&self) -> io::Result<()> {
        self.extents.sync_head()
    }

    /// Writes the file to its medium and waits.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.extents.sync()
    }

    /// Bytes of memory or disk that the image takes: the header (as the system counts it) and the regions,
    /// published or only ready.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.bytes()
    }

    /// Slots that are allocated.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Index buckets that are allocated.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Overflow buckets that are allocated.
    pub(crate) fn overflow_buckets(&self) -> usize {
        self.overflow_buckets
    }

    /// A word of the header.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= UNDO && at.is_multiple_of(8));
        // SAFETY: inside the mapped header (UNDO is below every header's size), aligned; always used as an atomic.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    /// Index bucket `i`.
    #[inline(always)]
    pub(crate) fn bucket(&self, i: usize) -> &Bucket {
        assert!(i < self.buckets);
        // SAFETY: bucket i is allocated (checked), 64-byte aligned, and made of atomics.
        unsafe { &*self.base.add(INDEX + i * 64).cast::<Bucket>() }
    }

    /// Overflow bucket `i`, counted from 0.
    #[inline(always)]
    pub(crate) fn overflow(&self, i: usize) -> &Bucket {
        assert!(i < self.overflow_buckets);
        // SAFETY: as for `bucket`.
        unsafe { &*self.base.add(OVERFLOW + i * 64).cast::<Bucket>() }
    }

    /// Prefetches index bucket `i`; any `i` is safe.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, i: usize) {
        prefetch(self.base.wrapping_add(INDEX + i * 64));
    }

    /// Prefetches overflow bucket `i`; any `i` is safe.
    #[inline(always)]
    pub(crate) fn prefetch_overflow(&self, i: usize) {
        prefetch(self.base.wrapping_add(OVERFLOW + i * 64));
    }

    /// Prefetches a row of `stride` bytes; any slot is safe. The caller passes the image's stride, because it may know
    /// it at compile time.
    #[inline(always)]
    pub(crate) fn prefetch_row(&self, slot: u32, stride: usize) {
        debug_assert_eq!(stride, self.stride);
        let at = self.base.wrapping_add(SLAB + slot as usize * stride);
        let mut line = 0;
        while line < stride {
            prefetch(at.wrapping_add(line));
            line += 64;
        }
        prefetch(at.wrapping_add(stride - 1));
    }

    /// Prefetches a row's version and key; any slot is safe.
    #[inline(always)]
    pub(crate) fn prefetch_key(&self, slot: u32) {
        prefetch(self.base.wrapping_add(SLAB + slot as usize * self.stride));
    }

    /// The row at `slot`, which must be allocated.
    #[inline(always)]
    pub(crate) fn row(&mut self, slot: u32) -> Row<'_> {
        assert!(slot < self.slots);
        // SAFETY: the slot is allocated (checked): `stride` bytes, 8-byte aligned; nothing else uses it while
        // `self` is borrowed.
        unsafe { Row::new(self.base.add(SLAB + slot as usize * self.stride), self.stride) }
    }

    /// Version and key words of the row at `slot`, or `None` when no such slot is allocated.
    #[inline(always)]
    pub(crate) fn peek(&self, slot: u32) -> Option<(u64, u64)> {
        if slot >= self.slots {
            return None;
        }
        // SAFETY: the slot is allocated (checked); both words are always accessed as atomics.
        let words = unsafe { &*self.base.add(SLAB + slot as usize * self.stride).cast::<[AtomicU64; 2]>() };
        Some((words[0].load(Relaxed), words[1].load(Relaxed)))
    }

    /// Offset of the row at `slot`.
    #[inline(always)]
    pub(crate) fn row_offset(&self, slot: u32) -> usize {
        SLAB + slot as usize * self.stride
    }

    /// Whether the bytes at `at` are mapped and allocated.
    pub(crate) fn holds(&self, at: usize, bytes: usize) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let inside = |start: usize, length: usize| at >= start && end <= start + length;
        inside(0, self.header)
            || inside(DELETIONS, DELETIONS_MAX * DELETION_BYTES)
            || inside(INDEX, self.buckets * 64)
            || inside(OVERFLOW, self.overflow_buckets * 64)
            || inside(SLAB, self.slots as usize * self.stride)
    }

    /// Copies bytes inside the image, from anywhere to anywhere.
    #[inline(always)]
    pub(crate) fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        assert!(self.holds(from, bytes) && self.holds(to, bytes));
        // SAFETY: both ranges are allocated (checked) and no reference into the image lives across `&mut self`.
        unsafe { std::ptr::copy(self.base.add(from), self.base.add(to), bytes) }
    }

    /// Copies the row at `slot` into the header at `to` (the undo area).
    #[inline(always)]
    pub(crate) fn save_row(&mut self, slot: u32, to: usize, bytes: usize) {
        assert!(slot < self.slots && bytes <= self.stride && to >= UNDO && to + bytes <= self.header);
        // SAFETY: source and target are allocated (checked) and lie in different regions.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(self.row_offset(slot)), self.base.add(to), bytes)
        }
    }

    /// A word of the undo area.
    #[inline(always)]
    pub(crate) fn undo_word(&self, at: usize) -> &AtomicU64 {
        assert!(at >= UNDO && at + 8 <= self.header && at.is_multiple_of(8));
        // SAFETY: inside the mapped header (checked) and aligned; single words here are only accessed as atomics or
        // through `copy`, which needs `&mut self`.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    /// The offset of the admission sketch.
    pub(crate) fn sketch_start(&self) -> usize {
        self.header - self.sketch
    }

    /// A word of the admission sketch, at its offset from the base.
    pub(crate) fn sketch_word(&self, at: usize) -> u64 {
        self.sketch_atomic(at).load(Relaxed)
    }

    /// Writes a word of the admission sketch.
    pub(crate) fn set_sketch_word(&mut self, at: usize, word: u64) {
        self.sketch_atomic(at).store(word, Release);
    }

    fn sketch_atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at >= self.header - self.sketch && at + 8 <= self.header && at.is_multiple_of(8));
        // SAFETY: inside the mapped header (checked) and aligned; words here are only accessed as atomics or through
        // `copy`, which needs `&mut self`.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    /// Bytes of the header, for its immutable head.
    pub(crate) fn head(&self) -> &[u8] {
        // SAFETY: the head is mapped, and only written through `head_mut`.
        unsafe { std::slice::from_raw_parts(self.base, HEAD_BYTES) }
    }

    /// The immutable head, for writing, while an image is made.
    pub(crate) fn head_mut(&mut self) -> &mut [u8] {
        // SAFETY: the head is mapped, and `self` is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base, HEAD_BYTES) }
    }
}

impl Drop for Image {
    /// The grower may still use the extents for a while, and the file may be opened again before it stops.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layout::{REGIONS, Region};
    use crate::limits::CHUNK_BYTES;
    use rustix::fs::{MemfdFlags, memfd_create};

    /// Growth beyond a limit must be an error, because otherwise the caller would write past the region. No
    /// space is taken.
    #[test]
    fn a_region_at_its_limit_is_refused_by_name() {
        let file = memfd_create("limit", MemfdFlags::CLOEXEC).unwrap().into();
        let grower = Arc::new(Grower::new(u64::MAX, None, Vec::new()));
        let mut image = Image::create(file, 24, 0, Medium::Memory, false, &grower).unwrap();
        let before = image.bytes();
        for region in REGIONS {
            let refused = image.grow(region, region.bytes_max() + 1).unwrap_err();
            assert!(
                matches!(refused, GrowError::Region { region: r, .. } if r == region.name()),
                "{refused}"
            );
        }
        assert_eq!(image.bytes(), before);
    }

    /// The grower may still hold the extents of an image whose file has been opened again.
    #[test]
    fn nobody_takes_an_extent_of_a_closed_image() {
        let file = memfd_create("closed", MemfdFlags::CLOEXEC).unwrap().into();
        let grower = Arc::new(Grower::new(u64::MAX, None, Vec::new()));
        let mut image = Image::create(file, 24, 0, Medium::Memory, false, &grower).unwrap();
        image.grow(Region::Slab, 4096).unwrap();
        let (extents, bytes) = (image.extents.clone(), image.bytes());
        drop(image);
        let refused = extents.prepare(Region::Slab, CHUNK_BYTES + 1).unwrap_err();
        assert!(refused.to_string().contains("closed"), "{refused}");
        assert_eq!(extents.bytes(), bytes);
    }
}
