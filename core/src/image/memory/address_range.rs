//! A reserved address range, with chunks of a file mapped over it. An image's owner maps the image for writing; a
//! reader maps it read-only. Both address the image by offsets from the same base.
//!
//! The rows are last in the range, and a range begins with few addresses for them. When they need more, the file is
//! mapped over a larger range as well. So the addresses that a process reserves are in proportion to its rows, and a
//! process can have thousands of images.
#![allow(unsafe_code)]

use crate::image::layout::*;
use crate::image::memory::mappings;
use crate::limits::{CHUNK_BYTES, SLAB_BYTES_MAX, SLAB_RESERVE_BYTES, SLAB_RESERVE_FACTOR};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A reserved range of one image and its file. Dropping it unmaps its chunks.
pub(crate) struct AddressRange {
    base: *mut u8,
    /// Bytes from the base on.
    bytes: usize,
    file: Arc<File>,
    access: libc::c_int,
    reservation: Reservation,
}

// SAFETY: the base points into a mapping that this value owns and that is tied to no thread.
unsafe impl Send for AddressRange {}
// SAFETY: through a shared reference only the base is read and system calls are made. The callers order the calls.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves a range for an image in `file` with room for `rows` bytes of rows, and maps the file's first chunk, the
    /// header.
    pub(crate) fn reserve(file: Arc<File>, writable: bool, rows: usize) -> io::Result<AddressRange> {
        let mut room = SLAB_RESERVE_BYTES;
        while room < rows {
            room *= SLAB_RESERVE_FACTOR;
        }
        let bytes = SLAB + room.min(SLAB_BYTES_MAX);
        let reservation = Reservation::new(bytes + CHUNK_BYTES)?;
        let base = reservation.at.map_addr(|a| a.next_multiple_of(CHUNK_BYTES));
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let range = AddressRange { base, bytes, file, access, reservation };
        // SAFETY: nobody has seen the range yet, so nothing refers to its header.
        unsafe { range.overlay(0, 0, CHUNK_BYTES) }?;
        Ok(range)
    }

    /// The first byte of the range.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The file behind the range.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether this region has addresses for so many bytes.
    pub(crate) fn has_room(&self, region: usize, bytes: usize) -> bool {
        bytes <= self.room(region)
    }

    /// The bytes for which this region has addresses.
    pub(crate) fn room(&self, region: usize) -> usize {
        REGIONS[region].bytes_max().min(self.bytes - REGIONS[region].start())
    }

    /// A larger range for the same file, with room for `rows` bytes of rows. The extents of `words`, which were
    /// checked, are mapped there, too.
    pub(crate) fn larger(&self, rows: usize, words: impl Iterator<Item = u64>) -> io::Result<AddressRange> {
        let writable = self.access & libc::PROT_WRITE != 0;
        let range = AddressRange::reserve(self.file.clone(), writable, rows)?;
        let mut mapped = [0; 3];
        for word in words {
            // SAFETY: nobody has seen the range yet.
            unsafe { range.map_extent(word, &mut mapped) }?;
        }
        Ok(range)
    }

    /// Maps the extent that the directory word `word` names, after the first `mapped` bytes of its region. Adds
    /// its bytes to `mapped`.
    ///
    /// # Safety
    /// Nothing refers to the bytes of the region from `mapped` on.
    pub(crate) unsafe fn map_extent(&self, word: u64, mapped: &mut [usize; 3]) -> io::Result<()> {
        let (region, at, chunks) = unpack_extent(word);
        let bytes = chunks * CHUNK_BYTES;
        // SAFETY: nothing refers to these bytes, as the caller promises.
        unsafe { self.overlay(REGIONS[region].start() + mapped[region], at * CHUNK_BYTES, bytes) }?;
        mapped[region] += bytes;
        Ok(())
    }

    /// Maps `bytes` of the file at `file_at` over the range at `at`; all three are whole chunks.
    ///
    /// # Safety
    /// Nothing refers to the bytes that are mapped over.
    unsafe fn overlay(&self, at: usize, file_at: usize, bytes: usize) -> io::Result<()> {
        assert!(
            at + bytes <= self.bytes && at.is_multiple_of(CHUNK_BYTES) && file_at.is_multiple_of(CHUNK_BYTES)
        );
        mappings::begin()?;
        self.reservation.mappings.fetch_add(1, Relaxed);
        // SAFETY: the target lies inside our own reservation (checked above, and the base is aligned up within its
        // slack). Nothing refers to it, as the caller promises. The mapping does not outlive the reservation.
        let p = unsafe {
            libc::mmap(
                self.base.add(at).cast(),
                bytes,
                self.access,
                libc::MAP_SHARED | libc::MAP_FIXED,
                self.file.as_raw_fd(),
                file_at as libc::off_t,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if bytes == CHUNK_BYTES {
            // The system would read megabytes around each page of it from a disk, for a table of a few rows.
            // SAFETY: the advice changes no contents.
            let _ = unsafe { self.advise(at, bytes, libc::MADV_RANDOM) };
        }
        Ok(())
    }

    /// Gives the system `advice` about the pages of a part of the range.
    ///
    /// # Safety
    /// The advice changes no contents.
    pub(crate) unsafe fn advise(&self, at: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(at + bytes <= self.bytes);
        // SAFETY: the range is inside our mapping (checked); the advice changes no contents, as the caller promises.
        let r = unsafe { libc::madvise(self.base.add(at).cast(), bytes, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Addresses that nothing else in the process gets. They have no memory: every chunk is mapped before it is used.
/// Neighbouring reservations are one mapping for the system, which limits the number of mappings (vm.max_map_count).
struct Reservation {
    at: *mut u8,
    bytes: usize,
    /// It and what was mapped over it.
    mappings: AtomicUsize,
}

impl Reservation {
    fn new(bytes: usize) -> io::Result<Reservation> {
        mappings::begin()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at addresses that the system chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            mappings::end(1);
            return Err(error);
        }
        Ok(Reservation { at: at.cast(), bytes, mappings: AtomicUsize::new(1) })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the addresses are this value's, with all that was mapped over them, and nothing refers to them any
        // more.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
        mappings::end(*self.mappings.get_mut());
    }
}

/// Checks word `i` of the directory of a file of `length` bytes. `mapped` has the bytes of each region that the words
/// before it map.
pub(crate) fn check_extent(i: usize, word: u64, length: u64, mapped: &[usize; 3]) -> Result<(), String> {
    let (region, at, chunks) = unpack_extent(word);
    if region >= 3 || chunks == 0 || at == 0 {
        return Err(format!("extent {i} is of no region"));
    }
    let bytes = mapped[region].saturating_add(chunks.saturating_mul(CHUNK_BYTES));
    if bytes > REGIONS[region].bytes_max() {
        return Err(format!("extent {i} is past the end of the {}", REGIONS[region].name()));
    }
    if ((at + chunks) * CHUNK_BYTES) as u64 > length {
        return Err(format!("extent {i} ends past the file's {length} bytes"));
    }
    Ok(())
}

/// An extent as a word: region in the top byte, chunks in the next three, first chunk of the file below.
pub(crate) fn pack_extent(region: usize, at: usize, chunks: usize) -> u64 {
    debug_assert!(chunks < 1 << 24 && at < 1 << 32);
    (region as u64) << 56 | (chunks as u64) << 32 | at as u64
}

/// Region, first chunk of the file and chunks of an extent.
pub(crate) fn unpack_extent(word: u64) -> (usize, usize, usize) {
    ((word >> 56) as usize, (word & 0xffff_ffff) as usize, (word >> 32 & 0xff_ffff) as usize)
}
