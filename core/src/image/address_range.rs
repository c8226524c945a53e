//! An address range that is reserved once, with chunks of a file mapped over it. An image's owner maps the
//! image for writing; a reader maps it read-only. Both address the image by offsets from the same base.
#![allow(unsafe_code)]

use crate::image::layout::*;
use crate::limits::CHUNK_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The reserved range of one image and its file. Dropping it unmaps its chunks.
pub(crate) struct AddressRange {
    base: *mut u8,
    file: File,
    access: libc::c_int,
    _reservation: memmap2::MmapRaw,
}

// SAFETY: the base points into a mapping that this value owns and that is tied to no thread.
unsafe impl Send for AddressRange {}
// SAFETY: through a shared reference only the base is read and system calls are made. The callers order the calls.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves the range for an image in `file` and maps the file's first chunk, the header.
    pub(crate) fn reserve(file: File, writable: bool) -> io::Result<AddressRange> {
        // No byte of the reservation itself is touched: every chunk is mapped before it is used.
        let reservation = memmap2::MmapOptions::new().len(END + CHUNK_BYTES).map_raw_read_only(&file)?;
        let base = reservation.as_mut_ptr().map_addr(|a| a.next_multiple_of(CHUNK_BYTES));
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let range = AddressRange { base, file, access, _reservation: reservation };
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
    pub(crate) fn file(&self) -> &File {
        &self.file
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
        assert!(at + bytes <= END && at.is_multiple_of(CHUNK_BYTES) && file_at.is_multiple_of(CHUNK_BYTES));
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
        if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives the system `advice` about the pages of a part of the range.
    ///
    /// # Safety
    /// The advice changes no contents.
    pub(crate) unsafe fn advise(&self, at: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(at + bytes <= END);
        // SAFETY: the range is inside our mapping (checked); the advice changes no contents, as the caller promises.
        let r = unsafe { libc::madvise(self.base.add(at).cast(), bytes, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
