//! What an image shares with the grower: its file, its address range, and how much of each region is ready.
//!
//! ```text
//! region   |<------ published ------>|<-- ready -->|<- taken ->|              reserved |
//!           the owner uses these      allocated,    named in
//!           (the image's words)       populated     the directory
//! ```
//! Two threads may prepare the same bytes at once, because each step (allocate, populate) requests a state, not
//! a change. Only one thread at a time takes extents. After the owner has closed the image, no thread takes
//! extents, so a late grower cannot interfere with the next owner of the file. Only the owner publishes.
#![allow(unsafe_code)]

use crate::error::GrowError;
use crate::image::files::durability::{self, Durable};
use crate::image::files::filesystem::Medium;
use crate::image::layout::*;
use crate::image::memory::address_range::{AddressRange, check_extent, pack_extent, unpack_extent};
use crate::image::memory::budget::Budget;
use crate::limits::*;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, ftruncate};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The file and the address range of one image. Its owner reads and writes rows through `Image`. This type touches only
/// the directory of extents, which is made of atomics, and gives the kernel advice that changes no contents.
pub(crate) struct Extents {
    /// The range that was reserved last is the one in use. Its owner may still use the one before it until it grows the
    /// next time, and who reads rows over RDMA until the image is closed. So all of them stay.
    ranges: Mutex<Vec<Arc<AddressRange>>>,
    /// The base of the first range, for words of the header.
    header: *const u8,
    medium: Medium,
    budget: Arc<Budget>,
    ready: [AtomicUsize; 3],
    wanted: [AtomicUsize; 3],
    /// Chunks of each region that [`Extents::newly_full`] has returned.
    reported_full: [AtomicUsize; 3],
    /// Whether a request for this image waits for the grower.
    pub(crate) queued: AtomicBool,
    /// Bytes charged to the budget. The lock also lets only one thread at a time take extents.
    charged: Mutex<BudgetCharge>,
}

struct BudgetCharge {
    header: u64,
    regions: [usize; 3],
    /// Whether the image may no longer grow.
    closed: bool,
}

// SAFETY: the header's address points into a range of `ranges`, which live as long as this value and are tied to no
// thread.
unsafe impl Send for Extents {}
// SAFETY: the header is only accessed as atomics.
unsafe impl Sync for Extents {}

impl Extents {
    /// Reserves the address range and maps the header of `file`, which must have at least a header. `counted`
    /// returns how many bytes of the header have file space when a given number of pusher entries is used, without the
    /// ring of deletions.
    pub(crate) fn map(
        file: File,
        counted: impl Fn(usize) -> usize,
        medium: Medium,
        budget: Arc<Budget>,
    ) -> io::Result<Extents> {
        // Pages past the end of the file are never touched: each extent is allocated before it is published.
        let range = Arc::new(AddressRange::reserve(Arc::new(file), true, 0)?);
        let zero = || [0; 3].map(AtomicUsize::new);
        let extents = Extents {
            header: range.base(),
            ranges: Mutex::new(vec![range]),
            medium,
            budget,
            ready: zero(),
            wanted: zero(),
            reported_full: zero(),
            queued: AtomicBool::new(false),
            charged: Mutex::new(BudgetCharge { header: 0, regions: [0; 3], closed: false }),
        };
        let pushers = extents.word(PUSHERS_USED).load(Relaxed).min(PUSHERS_MAX as u64) as usize;
        let deletions = held_deletions(extents.word(DELETED).load(Relaxed));
        extents.charge_header((counted(pushers) + deletions) as u64);
        Ok(extents)
    }

    fn charge_header(&self, bytes: u64) {
        self.budget.charge(bytes);
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).header += bytes;
    }

    /// Allocates file space for more of the header, so that touching those pages cannot fault.
    ///
    /// # Errors
    /// No space, or the memory limit.
    pub(crate) fn hold(&self, at: usize, bytes: usize) -> Result<(), GrowError> {
        assert!(at + bytes <= CHUNK_BYTES);
        let range = self.range();
        let space = || fallocate(range.file(), FallocateFlags::empty(), at as u64, bytes as u64);
        retry_on_intr(space).map_err(io::Error::from)?;
        self.budget.take(bytes as u64)?;
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).header += bytes as u64;
        Ok(())
    }

    /// The address range in use.
    fn range(&self) -> Arc<AddressRange> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges[ranges.len() - 1].clone()
    }

    /// The header's address.
    pub(crate) fn header_addr(&self) -> usize {
        self.header.addr()
    }

    /// The first byte of the address range in use. It stays mapped for as long as this value lives.
    pub(crate) fn base(&self) -> *mut u8 {
        self.range().base()
    }

    /// The owner uses the range in use now: gives back the page tables of those before it.
    pub(crate) fn leave_former_ranges(&self) {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        for range in &ranges[..ranges.len() - 1] {
            for region in REGIONS {
                let bytes = self.ready(region).min(range.room(region as usize));
                // SAFETY: the pages stay in the file, so no contents change.
                let _ = unsafe { range.advise(region.start(), bytes, libc::MADV_DONTNEED) };
            }
        }
    }

    /// The words of the directory.
    fn words(&self) -> impl Iterator<Item = u64> {
        (0..self.word(EXTENTS_USED).load(Relaxed) as usize).map(|i| self.word(EXTENTS + 8 * i).load(Relaxed))
    }

    /// Maps the file over a range with room for `rows` bytes of rows, and uses it from now on. The charge must be
    /// locked, so that no other thread takes extents.
    fn enlarge(&self, rows: usize) -> io::Result<()> {
        let range = self.range().larger(rows, self.words())?;
        if self.medium == Medium::Memory {
            // Otherwise the owner would have a fault for each page.
            for region in REGIONS {
                // SAFETY: the advice changes no contents.
                let _ =
                    unsafe { range.advise(region.start(), self.ready(region), libc::MADV_POPULATE_WRITE) };
            }
        }
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(range));
        Ok(())
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= UNDO && at.is_multiple_of(8));
        // SAFETY: inside the mapped header (UNDO is below every header's size), aligned; always used as an atomic.
        unsafe { &*self.header.add(at).cast::<AtomicU64>() }
    }

    /// Extent `i` of the directory: region, first chunk of the file, chunks.
    fn extent(&self, i: usize) -> (usize, usize, usize) {
        unpack_extent(self.word(EXTENTS + 8 * i).load(Relaxed))
    }

    /// Maps the extents of the directory, which was checked against the file's length.
    pub(crate) fn map_all(&self) -> io::Result<()> {
        let rows: usize = self.of(Region::Slab).iter().map(|(_, bytes)| bytes).sum();
        match self.range() {
            range if range.has_room(Region::Slab as usize, rows) => {
                let mut mapped = [0usize; 3];
                for word in self.words() {
                    // SAFETY: the image is being opened: nobody refers to its regions yet.
                    unsafe { range.map_extent(word, &mut mapped)? };
                }
            }
            _ => self.enlarge(rows)?,
        }
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        for region in REGIONS {
            let published = self.word(REGION_BYTES + 8 * region as usize).load(Relaxed) as usize;
            self.budget.charge((published - charged.regions[region as usize]) as u64);
            charged.regions[region as usize] = published;
            self.ready[region as usize].store(published, Release);
            // Bytes that existed before keep their pages.
            self.reported_full[region as usize].store(published / CHUNK_BYTES, Relaxed);
        }
        Ok(())
    }

    /// Checks the directory of a file of `length` bytes. The error says what is wrong.
    pub(crate) fn check(&self, length: u64) -> Result<(), String> {
        let used = self.word(EXTENTS_USED).load(Relaxed) as usize;
        if used > EXTENTS_MAX {
            return Err(format!("it names {used} extents, more than the limit of {EXTENTS_MAX}"));
        }
        let mut mapped = [0usize; 3];
        for i in 0..used {
            let word = self.word(EXTENTS + 8 * i).load(Relaxed);
            check_extent(i, word, length, &mapped)?;
            let (region, _, chunks) = unpack_extent(word);
            mapped[region] += chunks * CHUNK_BYTES;
        }
        for region in REGIONS {
            let bytes = self.word(REGION_BYTES + 8 * region as usize).load(Relaxed) as usize;
            let (name, mapped) = (region.name(), mapped[region as usize]);
            if bytes > mapped {
                return Err(format!("it claims {bytes} bytes of {name}, but maps {mapped}"));
            }
        }
        Ok(())
    }

    /// Bytes of a region that are ready.
    pub(crate) fn ready(&self, region: Region) -> usize {
        self.ready[region as usize].load(Acquire)
    }

    /// Bytes of a region that should be ready.
    pub(crate) fn wanted(&self, region: Region) -> usize {
        self.wanted[region as usize].load(Relaxed)
    }

    /// Requests that `bytes` of a region become ready.
    pub(crate) fn want(&self, region: Region, bytes: usize) {
        self.wanted[region as usize].fetch_max(bytes, Relaxed);
    }

    /// The extents of a region in the directory, in their order: (offset in the region, bytes).
    pub(crate) fn of(&self, region: Region) -> Vec<(usize, usize)> {
        let used = self.word(EXTENTS_USED).load(Acquire) as usize;
        let own = (0..used).map(|i| self.extent(i)).filter(|&(r, ..)| r == region as usize);
        let mut end = 0;
        own.map(|(_, _, chunks)| {
            end += chunks * CHUNK_BYTES;
            (end - chunks * CHUNK_BYTES, chunks * CHUNK_BYTES)
        })
        .collect()
    }

    /// The chunk of the file that backs chunk `at` of a region, if it has one.
    pub(crate) fn file_chunk(&self, region: Region, at: usize) -> Option<usize> {
        self.file_chunks(region).nth(at)
    }

    /// The chunks of the file that back a region, in order.
    pub(crate) fn file_chunks(&self, region: Region) -> impl Iterator<Item = usize> {
        let used = self.word(EXTENTS_USED).load(Acquire) as usize;
        let own = (0..used).map(|i| self.extent(i)).filter(move |&(r, ..)| r == region as usize);
        own.flat_map(|(_, first, chunks)| first..first + chunks)
    }

    /// The file.
    pub(crate) fn file(&self) -> Arc<File> {
        self.range().file().clone()
    }

    /// Makes `bytes` of `region` ready: allocates file space, so that a full disk is an error and never a
    /// SIGBUS, and populates the pages.
    ///
    /// # Errors
    /// No space, no memory, or a limit. Space that was taken before the error stays taken.
    pub(crate) fn prepare(&self, region: Region, bytes: usize) -> Result<(), GrowError> {
        if bytes > region.bytes_max() {
            return Err(GrowError::Region { region: region.name(), max: region.bytes_max() });
        }
        loop {
            let have = self.ready(region);
            if have >= bytes {
                return Ok(());
            }
            let end = bytes.min((have / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let at = self.take(region, have, end)?;
            let range = self.range();
            let space = || fallocate(range.file(), FallocateFlags::empty(), at as u64, (end - have) as u64);
            retry_on_intr(space).map_err(io::Error::from)?;
            // SAFETY: the advice changes no contents.
            unsafe { range.advise(region.start() + have, end - have, libc::MADV_POPULATE_WRITE) }?;
            crate::kill_point!();
            self.ready[region as usize].fetch_max(end, Release);
        }
    }

    /// Charges bytes `have..end` of `region`, which lie in one chunk, to the budget, and returns their offset
    /// in the file. Takes a new extent when the last one is full.
    fn take(&self, region: Region, have: usize, end: usize) -> Result<usize, GrowError> {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        if charged.closed {
            return Err(io::Error::other("the image is closed: open the table again").into());
        }
        let known = &mut charged.regions[region as usize];
        if end > *known {
            self.budget.take((end - *known) as u64)?;
            *known = end;
        }
        let used = self.word(EXTENTS_USED).load(Relaxed) as usize;
        let (mut mapped, mut next) = (0, 1);
        for i in 0..used {
            let (r, at, chunks) = self.extent(i);
            next = next.max(at + chunks);
            if r == region as usize {
                if have < mapped + chunks * CHUNK_BYTES {
                    return Ok(at * CHUNK_BYTES + have - mapped);
                }
                mapped += chunks * CHUNK_BYTES;
            }
        }
        if used == EXTENTS_MAX {
            return Err(GrowError::Extents);
        }
        // An extent is a quarter of its region: few mappings, and the file's apparent size stays near its real one.
        let chunks = (mapped / CHUNK_BYTES / 4).clamp(1, (region.bytes_max() - mapped) / CHUNK_BYTES);
        if !self.range().has_room(region as usize, mapped + chunks * CHUNK_BYTES) {
            self.enlarge(mapped + chunks * CHUNK_BYTES)?;
        }
        let range = self.range();
        ftruncate(range.file(), ((next + chunks) * CHUNK_BYTES) as u64).map_err(io::Error::from)?;
        let word = pack_extent(region as usize, next, chunks);
        let mut behind = [0; 3];
        behind[region as usize] = mapped;
        // SAFETY: the extent is not in the directory yet, so nothing refers to it.
        unsafe { range.map_extent(word, &mut behind)? };
        self.word(EXTENTS + 8 * used).store(word, Relaxed);
        crate::kill_point!();
        self.word(EXTENTS_USED).store(used as u64 + 1, Release);
        Ok(next * CHUNK_BYTES)
    }

    /// Forbids growth from now on, and gives up the lock of the file: the grower may hold the file for longer. Waits
    /// for a thread that is taking an extent.
    pub(crate) fn close(&self) {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        let _ = flock(self.file(), FlockOperation::Unlock); // closing the file does the same
    }

    /// The chunks of a region that are completely ready and that this function has not returned before.
    pub(crate) fn newly_full(&self, region: Region) -> std::ops::Range<usize> {
        let full = self.ready(region) / CHUNK_BYTES;
        self.reported_full[region as usize].fetch_max(full, Relaxed)..full
    }

    /// Requests a huge page for chunk `chunk` of a region. All of the chunk must be ready. Contents do not
    /// change. A thread that accesses the chunk meanwhile waits for the copy. Returns `false` if the chunk
    /// stays in small pages.
    pub(crate) fn collapse(&self, region: Region, chunk: usize) -> bool {
        self.medium == Medium::Memory && self.try_collapse(region, chunk).is_ok()
    }

    pub(crate) fn try_collapse(&self, region: Region, chunk: usize) -> io::Result<()> {
        assert!((chunk + 1) * CHUNK_BYTES <= self.ready(region));
        let at = region.start() + chunk * CHUNK_BYTES;
        // SAFETY: the advice changes no contents.
        unsafe { self.range().advise(at, CHUNK_BYTES, libc::MADV_COLLAPSE) }
    }

    /// A read-only descriptor of the file, whose mappings are read-only too.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.range().file().as_raw_fd());
        Ok(File::open(path)?.into())
    }

    /// Writes the first page to its medium and waits. Other pages are not synced: after a kill, many pages may
    /// be dirty.
    pub(crate) fn sync_head(&self) -> io::Result<()> {
        durability::during(&Durable::Head, || {
            // SAFETY: the page is mapped for as long as `self` lives; writing it back changes no contents.
            unsafe {
                rustix::mm::msync(
                    self.header.cast_mut().cast(),
                    HEAD_PAGE_BYTES,
                    rustix::mm::MsyncFlags::SYNC,
                )
            }
            .map_err(io::Error::from)
        })
    }

    /// Writes the file to its medium and waits.
    pub(crate) fn sync(&self) -> io::Result<()> {
        durability::during(&Durable::File, || self.range().file().sync_all())
    }

    /// Bytes charged to the budget.
    pub(crate) fn bytes(&self) -> u64 {
        let charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        charged.header + charged.regions.iter().sum::<usize>() as u64
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes());
    }
}
