//! The image of a shard that another process owns, mapped read-only from its file. The reader maps what the
//! owner publishes. It loads everything as atomic words, because the owner writes at the same time.
//!
//! Only published bytes are read. Their file space is allocated, and an image never shrinks (a memfd is sealed
//! against it), so no access faults. The reader checks everything that the owner writes (regions, directory,
//! slots, links) before it uses it. If these values contradict each other, the reader stops using the image.
#![allow(unsafe_code)]

use crate::image::bucket::SharedBucket;
use crate::image::files::filesystem::Filesystem;
use crate::image::layout::*;
use crate::image::memory::address_range::{AddressRange, check_extent, unpack_extent};
use crate::image::memory::prefetch::prefetch;
use crate::index::geometry::Geometry;
use crate::limits::*;
use rustix::fs::SealFlags;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Acquire, Ordering::Relaxed};

/// A mapped image. The mapping is read-only. The fields that every key needs are in one cache line.
#[repr(align(64))]
pub(crate) struct MappedImage {
    base: *const u8,
    stride: u32,
    buckets: u32,
    overflow_buckets: u32,
    slots: u32,
    /// The geometry as it was last read. It may be out of date and give an old home.
    geometry: Geometry,
    /// The incarnation that was mapped; [`NEVER`] after the owner's values contradicted each other.
    incarnation: u64,
    /// The last pull that mapped the image's growth.
    followed: u32,
    rest: Box<ImageGrowth>,
}

const _: () = assert!(std::mem::size_of::<MappedImage>() == 64);

/// No incarnation of a shard has this number: they are counted from 1.
const NEVER: u64 = 0;

/// The fields that are needed when the image grows.
struct ImageGrowth {
    range: AddressRange,
    /// How many bytes of pages are populated at a time, before they are needed. 0 on a disk, where tables may
    /// be larger than memory.
    populate: usize,
    /// Whether the file is a memfd of one process. Then no other incarnation of the shard can use it.
    private: bool,
    published: [usize; 3],
    mapped: [usize; 3],
    /// The words of the extents that are mapped, as they were checked.
    extents: Vec<u64>,
}

// SAFETY: the base points into a mapping that `rest` owns and that is tied to no thread.
unsafe impl Send for MappedImage {}

impl MappedImage {
    /// Maps the header of `file`. The header is not yet checked. Up to `populate` bytes of a region's pages are
    /// populated at a time.
    pub(crate) fn open(
        file: File,
        stride: usize,
        incarnation: u64,
        populate: usize,
    ) -> io::Result<MappedImage> {
        if file.metadata()?.len() < CHUNK_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is shorter than a header"));
        }
        let in_memory = Filesystem::of_magic(rustix::fs::fstatfs(&file)?.f_type as u64).is_memory();
        let populate = if in_memory { populate } else { 0 };
        let seals = rustix::fs::fcntl_get_seals(&file);
        let private = seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let range = AddressRange::reserve(Arc::new(file), false, 0)?;
        let base = range.base().cast_const();
        let rest =
            ImageGrowth { range, populate, private, published: [0; 3], mapped: [0; 3], extents: Vec::new() };
        Ok(MappedImage {
            base,
            stride: stride as u32,
            buckets: 0,
            overflow_buckets: 0,
            slots: 0,
            geometry: Geometry::of(0, 0, 0),
            incarnation,
            followed: 0,
            rest: Box::new(rest),
        })
    }

    /// A copy of the immutable head.
    pub(crate) fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        for (at, bytes) in head.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.word(8 * at, Relaxed).to_le_bytes());
        }
        head
    }

    #[inline(always)]
    fn word(&self, at: usize, order: Ordering) -> u64 {
        assert!(at + 8 <= PUSHERS && at.is_multiple_of(8));
        // SAFETY: inside the header, which is mapped and allocated up to here (checked). The word is aligned
        // and always loaded as an atomic.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }.load(order)
    }

    /// Whether the incarnation that was mapped still serves the image. If so, rows that were read before this
    /// call belong to that incarnation. The call must be ordered after those reads (`row_version::read_stable` ends
    /// with a fence).
    #[inline(always)]
    pub(crate) fn is_current(&self) -> bool {
        self.word(INCARNATION, Relaxed) == self.incarnation
            && self.word(SERVING, Relaxed) == 1
            && self.incarnation != NEVER
    }

    /// The lowest clock of the workers: rows that are read after this call include all pushes of steps below it.
    #[inline(always)]
    pub(crate) fn lowest(&self) -> u64 {
        self.word(LOWEST, Acquire)
    }

    /// Up to which command all backups of the owner have the shard.
    #[inline(always)]
    pub(crate) fn acknowledged(&self) -> u64 {
        self.word(ACKNOWLEDGED, Acquire)
    }

    /// The group of shards that stop being served at the same moment as this shard, named by the first of them.
    /// `None` if this shard must be checked separately, because the next owner of the other shards may not be
    /// its next owner.
    pub(crate) fn group(&self) -> Option<u64> {
        self.rest.private.then(|| self.word(SERVED_WITH, Acquire))
    }

    /// Calls [`MappedImage::follow`] once in a pull.
    #[inline(always)]
    pub(crate) fn follow_once(&mut self, pull: u32) -> Result<(), String> {
        if std::mem::replace(&mut self.followed, pull) == pull {
            return Ok(());
        }
        self.follow()
    }

    /// Maps what the image has grown by. The error says which values of the owner contradict each other. Later
    /// calls then do nothing.
    #[cold]
    #[inline(never)]
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        if self.incarnation == NEVER {
            return Ok(());
        }
        let followed = self.map_published();
        if followed.is_err() {
            self.incarnation = NEVER;
            (self.buckets, self.overflow_buckets, self.slots) = (0, 0, 0);
        }
        followed
    }

    fn map_published(&mut self) -> Result<(), String> {
        let words = [LEVEL, STAGE, SPLIT].map(|at| self.word(at, Relaxed));
        self.geometry = Geometry::of(words[0], words[1], words[2]);
        // The owner stores a region's word last, so the directory already has the extents for it.
        let published = REGIONS.map(|region| self.word(REGION_BYTES + 8 * region as usize, Acquire) as usize);
        if published == self.rest.published {
            return Ok(());
        }
        self.map_extents()?;
        for region in REGIONS {
            let (r, name) = (region as usize, region.name());
            let (old, new, mapped) = (self.rest.published[r], published[r], self.rest.mapped[r]);
            if new > mapped || new < old {
                return Err(format!("it claims {new} bytes of {name} after {old}, but {mapped} are mapped"));
            }
            let ahead = (new - old).min(self.rest.populate);
            if ahead > 0 {
                self.populate(region.start() + old, ahead);
            }
        }
        self.rest.published = published;
        let [index, overflow, slab] = published;
        self.slots = (slab / self.stride as usize).min(SLOTS_MAX as usize) as u32;
        self.buckets = (index / 64) as u32;
        self.overflow_buckets = (overflow / 64) as u32;
        Ok(())
    }

    /// Maps the new extents of the directory.
    fn map_extents(&mut self) -> Result<(), String> {
        let used = self.word(EXTENTS_USED, Acquire) as usize;
        let known = self.rest.extents.len();
        if used > EXTENTS_MAX || used < known {
            return Err(format!("{used} extents are claimed, {known} were; {EXTENTS_MAX} can be"));
        }
        if used == known {
            return Ok(());
        }
        let length = self.rest.range.file().metadata().map_err(|e| e.to_string())?.len();
        for i in known..used {
            let word = self.word(EXTENTS + 8 * i, Relaxed);
            check_extent(i, word, length, &self.rest.mapped)?;
            self.make_room(word).map_err(|e| format!("mapping extent {i}: {e}"))?;
            let ImageGrowth { range, mapped, .. } = &mut *self.rest;
            // SAFETY: the extent comes after all mapped bytes of its region, so nothing refers to its addresses yet.
            let mapping = unsafe { range.map_extent(word, mapped) };
            mapping.map_err(|e| format!("mapping extent {i}: {e}"))?;
            self.rest.extents.push(word);
        }
        Ok(())
    }

    /// Maps the image over a larger range if the present one has no addresses for this extent.
    fn make_room(&mut self, word: u64) -> io::Result<()> {
        let (region, _, chunks) = unpack_extent(word);
        let bytes = self.rest.mapped[region] + chunks * CHUNK_BYTES;
        if self.rest.range.has_room(region, bytes) {
            return Ok(());
        }
        let range = self.rest.range.larger(bytes, self.rest.extents.iter().copied())?;
        self.base = range.base().cast_const();
        self.rest.range = range;
        Ok(())
    }

    /// Populates the pages of published bytes, with huge pages where the owner has them. A failure only costs page
    /// faults later.
    fn populate(&self, at: usize, bytes: usize) {
        let start = at / 4096 * 4096;
        // SAFETY: the advice changes no contents.
        let _ = unsafe { self.rest.range.advise(start, at + bytes - start, libc::MADV_POPULATE_READ) };
    }

    /// The home bucket of a hash, by the last known geometry.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        self.geometry.home(hash)
    }

    /// Index bucket `i`, if it is known to be published.
    #[inline(always)]
    pub(crate) fn bucket(&self, i: usize) -> Option<SharedBucket<'_>> {
        // SAFETY: bucket i is published (checked): mapped, 64-byte aligned, only loaded as atomics.
        (i < self.buckets as usize)
            .then(|| SharedBucket::new(unsafe { &*self.base.add(INDEX + i * 64).cast() }))
    }

    /// The overflow bucket behind a link, if it is known to be published.
    #[inline(always)]
    pub(crate) fn linked(&self, link: u32) -> Option<SharedBucket<'_>> {
        let i = (link as usize).wrapping_sub(1);
        // SAFETY: as for `bucket`.
        (i < self.overflow_buckets as usize)
            .then(|| SharedBucket::new(unsafe { &*self.base.add(OVERFLOW + i * 64).cast() }))
    }

    /// The words of the row at `slot`, if the slot is known to be published. The caller passes the image's
    /// stride, because it may know it at compile time.
    #[inline(always)]
    pub(crate) fn row(&self, slot: u32, stride: usize) -> Option<&[AtomicU64]> {
        assert!(stride == self.stride as usize);
        // SAFETY: the slot is published (checked): `stride` bytes (a multiple of 8), mapped, aligned, only loaded as
        // atomics.
        (slot < self.slots).then(|| unsafe {
            std::slice::from_raw_parts(self.base.add(SLAB + slot as usize * stride).cast(), stride / 8)
        })
    }

    /// Prefetches index bucket `i`; any `i` is safe.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, i: usize) {
        prefetch(self.base.wrapping_add(INDEX + i * 64));
    }

    /// Prefetches the overflow bucket behind a link; any link is safe.
    #[inline(always)]
    pub(crate) fn prefetch_linked(&self, link: u32) {
        prefetch(self.base.wrapping_add(OVERFLOW + (link as usize).wrapping_sub(1).wrapping_mul(64)));
    }

    /// Prefetches the first `bytes` of a row; any slot is safe.
    #[inline(always)]
    pub(crate) fn prefetch_row(&self, slot: u32, bytes: usize) {
        let at = self.base.wrapping_add(SLAB + slot as usize * self.stride as usize);
        let mut line = 0;
        while line < bytes {
            prefetch(at.wrapping_add(line));
            line += 64;
        }
        prefetch(at.wrapping_add(bytes - 1));
    }
}

/// Copies floats from words, two floats a word, while the owner may be writing them. `to` may then be a mix of two
/// states.
#[inline(always)]
pub(crate) fn copy_floats(words: &[AtomicU64], to: &mut [f32]) {
    assert!(to.len() <= 2 * words.len());
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    while done + 4 <= to.len() {
        // SAFETY: the 16 bytes of words are inside `words` (checked above), and the floats are inside `to`. For this
        // program the load is one of relaxed atomics: it is assembly, and the compiler assumes only that it reads these
        // bytes.
        unsafe {
            let quad: std::arch::x86_64::__m128;
            std::arch::asm!(
                "movups {quad}, [{from}]",
                quad = lateout(xmm_reg) quad,
                from = in(reg) words.as_ptr().cast::<u8>().add(4 * done),
                options(nostack, readonly, preserves_flags)
            );
            std::arch::x86_64::_mm_storeu_ps(to.as_mut_ptr().add(done), quad);
        }
        done += 4;
    }
    while done < to.len() {
        to[done] = f32::from_bits((words[done / 2].load(Relaxed) >> (32 * (done % 2))) as u32);
        done += 1;
    }
}
