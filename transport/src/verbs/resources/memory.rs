//! The memory that messages go through: a few large anonymous regions, mapped once and divided into blocks of
//! one size. A block belongs to one session. A device reads it, and the peer may write into it through the
//! device at any time. So the code never makes a reference to its bytes; it copies them in and out.
#![allow(unsafe_code)]

use crate::limits::VERBS_REGION_BYTES;
use memmap2::MmapMut;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Large regions and their free blocks.
pub(crate) struct Regions {
    /// Mapped while any block exists. Their bytes are accessed only through blocks.
    _maps: Vec<MmapMut>,
    free: Mutex<Vec<NonNull<u8>>>,
    block_bytes: usize,
    bytes: usize,
}

// SAFETY: the addresses are those of mappings that it owns; a block that is taken out of the list has one user.
unsafe impl Send for Regions {}
// SAFETY: as above; a lock protects the list.
unsafe impl Sync for Regions {}

impl Regions {
    /// Regions of `bytes` bytes in total, for blocks of `block_bytes` (a multiple of 64).
    pub(crate) fn new(bytes: usize, block_bytes: usize) -> io::Result<Arc<Regions>> {
        assert!(block_bytes > 0 && block_bytes.is_multiple_of(64));
        let (mut maps, mut free) = (Vec::new(), Vec::new());
        let mut left = bytes / block_bytes;
        while left > 0 {
            let blocks = left.min((VERBS_REGION_BYTES / block_bytes).max(1));
            let mut map = MmapMut::map_anon(blocks * block_bytes)?;
            // A child process between fork and exec would change the device's pages (copy-on-write).
            map.advise(memmap2::Advice::DontFork)?;
            let first = NonNull::from(&mut map[..]).cast::<u8>();
            // SAFETY: `number * block_bytes` stays inside the mapping.
            free.extend((0..blocks).rev().map(|number| unsafe { first.add(number * block_bytes) }));
            maps.push(map);
            left -= blocks;
        }
        let bytes = free.len() * block_bytes;
        Ok(Arc::new(Regions { _maps: maps, free: Mutex::new(free), block_bytes, bytes }))
    }

    /// A block, zeroed or as its last user left it; `None`: all are in use.
    pub(crate) fn take(self: &Arc<Regions>) -> Option<RegionBlock> {
        let at = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(RegionBlock { at, regions: self.clone() })
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the free blocks.
    pub(crate) fn free_bytes(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len() * self.block_bytes
    }
}

/// One block of the memory of [`Regions`]. It returns there when it is dropped.
pub(crate) struct RegionBlock {
    at: NonNull<u8>,
    regions: Arc<Regions>,
}

// SAFETY: no other block has its address, and copies are made through raw pointers.
unsafe impl Send for RegionBlock {}

impl RegionBlock {
    pub(crate) fn addr(&self) -> usize {
        self.at.as_ptr() as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.block_bytes
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When they go beyond the end.
    pub(crate) fn copy_in(&mut self, at: usize, from: &[u8]) {
        self.check(at, from.len());
        // SAFETY: inside the block, which stays mapped while this value exists. The block is not a Rust object,
        // so `from` cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at.as_ptr().add(at), from.len()) }
    }

    /// Copies bytes out, each read once. If the peer writes them at the same time, the result is any bytes.
    ///
    /// # Panics
    /// When they go beyond the end.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.check(at, to.len());
        let (mut from, end) = (at, at + to.len());
        let mut to = to.as_mut_ptr();
        while from < end {
            // SAFETY: the bytes of this step are inside the block (checked) and inside the slice; a whole word is
            // read only at a multiple of 8. Reads are volatile: a device that writes there at the same time changes
            // the result and nothing else.
            unsafe {
                let source = self.at.as_ptr().add(from);
                let step = if from.is_multiple_of(8) && end - from >= 8 {
                    to.cast::<u64>().write_unaligned(source.cast::<u64>().read_volatile());
                    8
                } else {
                    to.write(source.read_volatile());
                    1
                };
                (from, to) = (from + step, to.add(step));
            }
        }
    }

    fn check(&self, at: usize, bytes: usize) {
        let size = self.len();
        assert!(at <= size && bytes <= size - at, "{bytes} bytes at {at} of a block of {size}");
    }
}

impl Drop for RegionBlock {
    fn drop(&mut self) {
        self.regions.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_return() {
        let regions = Regions::new(VERBS_REGION_BYTES + 5 * 4096, 4096).unwrap();
        let mut blocks: Vec<RegionBlock> = std::iter::from_fn(|| regions.take()).collect();
        assert_eq!(blocks.len() * 4096, regions.bytes());
        assert_eq!(regions.free_bytes(), 0);
        for (number, block) in blocks.iter_mut().enumerate() {
            assert_eq!(block.addr() % 64, 0);
            let bytes: Vec<u8> = (0..4096).map(|i| (i * 7 + number * 13) as u8).collect();
            block.copy_in(0, &bytes);
        }
        for (number, block) in blocks.iter().enumerate() {
            for (at, len) in [(0, 4096), (1, 4095), (7, 9), (8, 8), (4095, 1), (4096, 0), (13, 1000)] {
                let mut got = vec![0; len];
                block.copy_out(at, &mut got);
                assert!((at..at + len).zip(&got).all(|(i, &got)| got == (i * 7 + number * 13) as u8));
            }
        }
        drop(blocks);
        assert_eq!(regions.free_bytes(), regions.bytes());
    }

    #[test]
    #[should_panic(expected = "of a block of 64")]
    fn copies_past_the_end_of_a_block_panic() {
        Regions::new(128, 64).unwrap().take().unwrap().copy_out(60, &mut [0; 5]);
    }
}
