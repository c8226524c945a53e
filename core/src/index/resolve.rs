//! From keys to likely slots, a block of keys at a time, so that cache misses overlap. While the rows of one
//! block are read or written, the rows of the next block and the index lines of the block after that are being
//! prefetched. Loops over a block are short and plain. Successive stages work on successive blocks.

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::index::hash_index::NONE;
use crate::schema::shard_set::ShardPlaces;

/// What the stages need of a shard. It is the caller's own shard, or a mapped one of another process.
pub(crate) trait ShardIndex {
    /// The home bucket of a hash. Prefetches its line.
    fn locate(&self, hash: u64) -> usize;
    /// The first slot in the home bucket whose tag fits, or [`NONE`]. If there is none, prefetches the first overflow
    /// bucket.
    fn candidate(&self, home: usize, hash: u64) -> u32;
    /// The first slot in the first overflow bucket whose tag fits, or [`NONE`].
    fn second_candidate(&self, home: usize, hash: u64) -> u32;
    /// Prefetches the first `bytes` of a row.
    fn prefetch_row(&self, slot: u32, bytes: usize);
}

/// Keys of a block.
pub(crate) const BLOCK: usize = 8;

/// A block of keys between the stages.
#[derive(Clone, Copy)]
pub(crate) struct KeyBlock {
    pub(crate) hashes: [u64; BLOCK],
    pub(crate) homes: [u32; BLOCK],
    /// The index of each key's shard among the shards here.
    pub(crate) owners: [u32; BLOCK],
    /// The first slot whose tag fits; `NONE` when there is none.
    pub(crate) slots: [u32; BLOCK],
    len: usize,
    /// Some key has no candidate in its home bucket.
    open: bool,
}

impl KeyBlock {
    pub(crate) const EMPTY: KeyBlock = KeyBlock {
        hashes: [0; BLOCK],
        homes: [0; BLOCK],
        owners: [0; BLOCK],
        slots: [NONE; BLOCK],
        len: 0,
        open: false,
    };

    /// Stage 1: hashes and home buckets, whose lines are prefetched. At most [`BLOCK`] keys.
    #[inline(always)]
    pub(crate) fn locate(
        &mut self,
        shards: &[impl ShardIndex],
        places: &ShardPlaces,
        keys: &[u64],
    ) -> Result<(), PullError> {
        self.len = keys.len().min(BLOCK);
        let outputs = self.hashes.iter_mut().zip(&mut self.homes).zip(&mut self.owners);
        for (&key, ((h, home), owner)) in keys.iter().zip(outputs) {
            *h = hash(key);
            let number = shard_of(*h, places.table());
            *owner = places.place(number);
            let Some(shard) = shards.get(*owner as usize) else {
                return Err(PullError::WrongShard { key, shard: number });
            };
            *home = shard.locate(*h) as u32;
        }
        Ok(())
    }

    /// Stage 2: candidates. Prefetches the first `bytes` of their rows.
    #[inline(always)]
    pub(crate) fn candidates(&mut self, shards: &[impl ShardIndex], bytes: usize) {
        self.open = false;
        for i in 0..self.len {
            let shard = &shards[self.owners[i] as usize];
            let slot = shard.candidate(self.homes[i] as usize, self.hashes[i]);
            self.slots[i] = slot;
            self.open |= slot == NONE;
            shard.prefetch_row(slot, bytes);
        }
    }

    /// Stage 3: looks for keys without a candidate in their first overflow bucket.
    #[inline(always)]
    pub(crate) fn second_look(&mut self, shards: &[impl ShardIndex], bytes: usize) {
        if !self.open {
            return;
        }
        for i in 0..self.len {
            if self.slots[i] == NONE {
                let shard = &shards[self.owners[i] as usize];
                self.slots[i] = shard.second_candidate(self.homes[i] as usize, self.hashes[i]);
                shard.prefetch_row(self.slots[i], bytes);
            }
        }
    }
}
