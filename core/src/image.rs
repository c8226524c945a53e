//! The memory of a shard: a file (memfd, tmpfs or disk) mapped at an address range that is reserved once and filled
//! in as the regions grow. Everything here is offsets from the base; bounds are checked, so the rest of the room is safe.
//!
//! A region grows by whole chunks of 2 MiB of file, and inside its last chunk by steps: allocate (a full disk is an
//! error, never SIGBUS), populate, and, when the chunk is full, collapse it into a huge page (memfd and tmpfs).
#![allow(unsafe_code)]

use crate::layout::*;
use crate::limits::*;
use crate::row::Row;
use crate::slot::Bucket;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// What the file of an image lives on; decides about huge pages only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// memfd or tmpfs: chunks are collapsed into huge pages.
    Memory,
    /// A disk: 4 KiB pages.
    Disk,
}

/// One shard's memory. One thread owns it: `Send`, not `Sync`.
pub(crate) struct Image {
    base: *mut u8,
    stride: usize,
    slots: u32,     // slots that are allocated
    buckets: usize, // index buckets that are allocated
    overflow_buckets: usize,
    header: usize,
    medium: Medium,
    journaled: bool,
    file: File,
    /// Owns the address range; the extents are mapped over it and go with it.
    _reservation: memmap2::MmapRaw,
}

// SAFETY: the base points into a mapping that this value owns; nothing in it is tied to a thread.
unsafe impl Send for Image {}

impl Image {
    /// Reserves the address range and maps the header of `file`, which must hold at least a header.
    pub(crate) fn map(file: File, stride: usize, medium: Medium, journaled: bool) -> io::Result<Image> {
        let header = header_bytes(stride);
        // Pages past the end of the file are never touched: each extent is allocated before it is published.
        let reservation = memmap2::MmapOptions::new().len(END + CHUNK_BYTES).map_raw_read_only(&file)?;
        let base = reservation.as_mut_ptr().map_addr(|a| a.next_multiple_of(CHUNK_BYTES));
        let mut image = Image {
            base,
            stride,
            slots: 0,
            buckets: 0,
            overflow_buckets: 0,
            header,
            medium,
            journaled,
            file,
            _reservation: reservation,
        };
        image.overlay(0, 0, CHUNK_BYTES)?;
        Ok(image)
    }

    /// Makes a new image's header: allocated, zeroed, mapped.
    pub(crate) fn create(file: File, stride: usize, medium: Medium, journaled: bool) -> io::Result<Image> {
        ftruncate(&file, CHUNK_BYTES as u64)?;
        // Without a journal most of the header is never touched; a memfd's pages come as they are.
        let bytes = if journaled { header_bytes(stride) } else { TOUCHED };
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        Image::map(file, stride, medium, journaled)
    }

    /// Maps the extents that the directory names. The directory has been checked against the file's length.
    pub(crate) fn map_extents(&mut self) -> io::Result<()> {
        let mut mapped = [0usize; 3];
        for i in 0..self.word(EXTENTS_USED).load(Relaxed) as usize {
            let (region, at, chunks) = unpack_extent(self.word(EXTENTS + 8 * i).load(Relaxed));
            let region = REGIONS[region];
            let bytes = chunks * CHUNK_BYTES;
            self.overlay(region.start() + mapped[region as usize], at * CHUNK_BYTES, bytes)?;
            mapped[region as usize] += bytes;
        }
        self.count();
        Ok(())
    }

    /// Checks the directory of a file of `length` bytes: what is wrong, if anything.
    pub(crate) fn check_extents(&self, length: u64) -> Result<(), String> {
        let used = self.word(EXTENTS_USED).load(Relaxed) as usize;
        if used > EXTENTS_MAX {
            return Err(format!("{used} extents where at most {EXTENTS_MAX} can be"));
        }
        let mut mapped = [0usize; 3];
        for i in 0..used {
            let (region, at, chunks) = unpack_extent(self.word(EXTENTS + 8 * i).load(Relaxed));
            if region >= 3 || chunks == 0 || at == 0 {
                return Err(format!("extent {i} is of no region"));
            }
            mapped[region] = mapped[region].saturating_add(chunks.saturating_mul(CHUNK_BYTES));
            if mapped[region] > REGIONS[region].bytes_max() {
                return Err(format!("extent {i} is past the end of the {}", REGIONS[region].name()));
            }
            if ((at + chunks) * CHUNK_BYTES) as u64 > length {
                return Err(format!("extent {i} ends past the file's {length} bytes"));
            }
        }
        for region in REGIONS {
            let bytes = self.word(REGION_BYTES + 8 * region as usize).load(Relaxed) as usize;
            if bytes > mapped[region as usize] {
                return Err(format!(
                    "{} bytes of {} are claimed, {} mapped",
                    bytes,
                    region.name(),
                    mapped[region as usize]
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self) {
        let [index, overflow, slab] =
            REGIONS.map(|r| self.word(REGION_BYTES + 8 * r as usize).load(Relaxed) as usize);
        self.slots = (slab / self.stride).min(SLOTS_MAX as usize) as u32;
        self.buckets = index / 64;
        self.overflow_buckets = overflow / 64;
    }

    /// Maps `bytes` of the file at `file_at` over the reserved range at `at`; all three are whole chunks.
    fn overlay(&mut self, at: usize, file_at: usize, bytes: usize) -> io::Result<()> {
        assert!(at + bytes <= END && at.is_multiple_of(CHUNK_BYTES) && file_at.is_multiple_of(CHUNK_BYTES));
        // SAFETY: the range lies inside our own reservation (checked above, base is aligned up within its slack),
        // no reference into it exists yet, and the file outlives the mapping's use through `self`.
        let p = unsafe {
            libc::mmap(
                self.base.add(at).cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                self.file.as_raw_fd(),
                file_at as libc::off_t,
            )
        };
        if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Grows `region` until it has at least `bytes`.
    ///
    /// # Errors
    /// No space, no memory, or the region's limit; the image is as before but for space already taken.
    pub(crate) fn grow(&mut self, region: Region, bytes: usize) -> io::Result<()> {
        if bytes > region.bytes_max() {
            return Err(io::Error::other(format!(
                "the shard's {} would pass their limit of {} bytes: use more shards",
                region.name(),
                region.bytes_max()
            )));
        }
        let word = REGION_BYTES + 8 * region as usize;
        loop {
            let have = self.word(word).load(Relaxed) as usize;
            if have >= bytes {
                return Ok(());
            }
            let at = self.file_offset(region, have)?;
            let step = (have / 32).clamp(GROWTH_STEP_BYTES_MIN, CHUNK_BYTES).next_multiple_of(4096);
            let step = step.min(CHUNK_BYTES - have % CHUNK_BYTES);
            fallocate(&self.file, FallocateFlags::empty(), at as u64, step as u64)?;
            self.advise(region.start() + have, step, libc::MADV_POPULATE_WRITE)?;
            crate::kill_point!();
            self.word(word).store((have + step) as u64, Release);
            if (have + step).is_multiple_of(CHUNK_BYTES) && self.medium == Medium::Memory {
                let chunk = region.start() + have + step - CHUNK_BYTES;
                if let Err(e) = self.advise(chunk, CHUNK_BYTES, libc::MADV_COLLAPSE) {
                    tracing::debug!("a chunk of {} stays in 4 KiB pages: {e}", region.name());
                }
            }
            self.count();
        }
    }

    /// Where in the file byte `have` of `region` will stand; takes a new extent when the last one is full.
    fn file_offset(&mut self, region: Region, have: usize) -> io::Result<usize> {
        let used = self.word(EXTENTS_USED).load(Relaxed) as usize;
        let (mut mapped, mut end) = (0, 1);
        for i in 0..used {
            let (r, at, chunks) = unpack_extent(self.word(EXTENTS + 8 * i).load(Relaxed));
            end = end.max(at + chunks);
            if r == region as usize {
                if have < mapped + chunks * CHUNK_BYTES {
                    return Ok(at * CHUNK_BYTES + have - mapped);
                }
                mapped += chunks * CHUNK_BYTES;
            }
        }
        if used == EXTENTS_MAX {
            return Err(io::Error::other(format!(
                "the shard has {EXTENTS_MAX} extents, its limit: use more shards"
            )));
        }
        // A quarter more at a time: few mappings, and the file's apparent size stays near its real one.
        let chunks = (mapped / CHUNK_BYTES / 4).clamp(1, (region.bytes_max() - mapped) / CHUNK_BYTES);
        ftruncate(&self.file, ((end + chunks) * CHUNK_BYTES) as u64)?;
        self.overlay(region.start() + mapped, end * CHUNK_BYTES, chunks * CHUNK_BYTES)?;
        self.word(EXTENTS + 8 * used).store(pack_extent(region as usize, end, chunks), Relaxed);
        crate::kill_point!();
        self.word(EXTENTS_USED).store(used as u64 + 1, Release);
        Ok(end * CHUNK_BYTES)
    }

    fn advise(&self, at: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(at + bytes <= END);
        // SAFETY: the range is inside our mapping; neither advice used here changes its contents.
        let r = unsafe { libc::madvise(self.base.add(at).cast(), bytes, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes the pages back and waits (clean close of a disk image).
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Bytes of memory or disk that the image takes: header (as the system counts it) and regions.
    pub(crate) fn bytes(&self) -> u64 {
        let regions: u64 = (0..3).map(|r| self.word(REGION_BYTES + 8 * r).load(Relaxed)).sum();
        let header = if self.journaled { self.header } else { TOUCHED };
        regions + header as u64
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
        // SAFETY: inside the mapped header (UNDO is below every header's size), aligned; only ever used as an atomic.
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

    /// Asks the cache for index bucket `i`; any `i` will do.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, i: usize) {
        prefetch(self.base.wrapping_add(INDEX + i * 64));
    }

    /// Asks the cache for overflow bucket `i`; any `i` will do.
    #[inline(always)]
    pub(crate) fn prefetch_overflow(&self, i: usize) {
        prefetch(self.base.wrapping_add(OVERFLOW + i * 64));
    }

    /// Asks the cache for a row of `stride` bytes (the image's, given by the caller who may know it at compile time); any
    /// slot will do.
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

    /// Asks the cache for a row's version and key; any slot will do.
    #[inline(always)]
    pub(crate) fn prefetch_key(&self, slot: u32) {
        prefetch(self.base.wrapping_add(SLAB + slot as usize * self.stride));
    }

    /// The row at `slot`, which must be allocated.
    #[inline(always)]
    pub(crate) fn row(&mut self, slot: u32) -> Row<'_> {
        assert!(slot < self.slots);
        // SAFETY: the slot is allocated (checked): `stride` bytes, 8-byte aligned, ours alone while `self` is borrowed.
        unsafe { Row::new(self.base.add(SLAB + slot as usize * self.stride), self.stride) }
    }

    /// Version and key words of the row at `slot`, or `None` when no such slot is allocated.
    #[inline(always)]
    pub(crate) fn peek(&self, slot: u32) -> Option<(u64, u64)> {
        if slot >= self.slots {
            return None;
        }
        // SAFETY: the slot is allocated (checked); both words are only ever accessed as atomics.
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

    /// Bytes of the header, for its immutable head.
    pub(crate) fn head(&self) -> &[u8] {
        // SAFETY: the head is mapped, and only written through `head_mut`.
        unsafe { std::slice::from_raw_parts(self.base, HEAD_BYTES) }
    }

    /// The immutable head, while an image is made.
    pub(crate) fn head_mut(&mut self) -> &mut [u8] {
        // SAFETY: the head is mapped, and `self` is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base, HEAD_BYTES) }
    }
}

/// Asks the cache for the line at `at`: a hint that never faults, safe for any address.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// An extent as a word: region in the top byte, chunks in the next three, first chunk of the file below.
fn pack_extent(region: usize, at: usize, chunks: usize) -> u64 {
    debug_assert!(chunks < 1 << 24 && at < 1 << 32);
    (region as u64) << 56 | (chunks as u64) << 32 | at as u64
}

fn unpack_extent(word: u64) -> (usize, usize, usize) {
    ((word >> 56) as usize, (word & 0xffff_ffff) as usize, (word >> 32 & 0xff_ffff) as usize)
}
