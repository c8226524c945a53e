//! The rows of a cache, side by side in blocks, so that rows are not allocated singly. A place holds a key and a row of
//! floats, as atomic words. A thread that reads or writes a place holds the key's lock in the map, which orders the
//! accesses. The words themselves need no ordering.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of a block, about.
const BLOCK_BYTES: usize = 256 << 10;

struct ArenaBlock {
    keys: Box<[AtomicU64]>,
    rows: Box<[AtomicU32]>,
}

/// Places for rows. A block of them is allocated when its first place is used.
pub(crate) struct Arena {
    blocks: Box<[OnceLock<ArenaBlock>]>,
    block_rows: usize,
    floats: usize,
    places: u32,
}

impl Arena {
    pub(crate) fn new(places: u32, floats: usize) -> Arena {
        let block_rows = (BLOCK_BYTES / (8 + 4 * floats)).max(1);
        let blocks = (places as usize).div_ceil(block_rows);
        Arena { blocks: (0..blocks).map(|_| OnceLock::new()).collect(), block_rows, floats, places }
    }

    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    fn block(&self, place: u32) -> (&ArenaBlock, usize) {
        let (number, at) = (place as usize / self.block_rows, place as usize % self.block_rows);
        let block = self.blocks[number].get_or_init(|| ArenaBlock {
            keys: (0..self.block_rows).map(|_| AtomicU64::new(0)).collect(),
            rows: (0..self.block_rows * self.floats).map(|_| AtomicU32::new(0)).collect(),
        });
        (block, at)
    }

    fn row(&self, place: u32) -> &[AtomicU32] {
        let (block, at) = self.block(place);
        &block.rows[at * self.floats..(at + 1) * self.floats]
    }

    /// The key that last took a place. It may no longer have it.
    pub(crate) fn key(&self, place: u32) -> u64 {
        let (block, at) = self.block(place);
        block.keys[at].load(Relaxed)
    }

    pub(crate) fn set_key(&self, place: u32, key: u64) {
        let (block, at) = self.block(place);
        block.keys[at].store(key, Relaxed);
    }

    pub(crate) fn read(&self, place: u32, out: &mut [f32]) {
        for (word, out) in self.row(place).iter().zip(out) {
            *out = f32::from_bits(word.load(Relaxed));
        }
    }

    pub(crate) fn write(&self, place: u32, row: &[f32]) {
        for (word, value) in self.row(place).iter().zip(row) {
            word.store(value.to_bits(), Relaxed);
        }
    }

    pub(crate) fn clear(&self, place: u32) {
        self.row(place).iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Adds to a row. Returns `false` if a sum is not finite.
    pub(crate) fn add(&self, place: u32, change: &[f32]) -> bool {
        let mut finite = true;
        for (word, change) in self.row(place).iter().zip(change) {
            let sum = f32::from_bits(word.load(Relaxed)) + change;
            finite &= sum.is_finite();
            word.store(sum.to_bits(), Relaxed);
        }
        finite
    }
}
