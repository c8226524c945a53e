//! From keys to likely slots, a block of keys at a time, so that cache misses overlap: while one block's rows are used,
//! the next block's rows and the index lines of the one after are on their way. Loops over a block are short and plain;
//! stages follow each other at a distance of one block.

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::index::hash_index::NONE;

/// What the stages ask of a shard, be it the caller's own or somebody else's that is only mapped.
pub(crate) trait ShardIndex {
    /// The home bucket of a hash, whose line is asked for.
    fn locate(&self, hash: u64) -> usize;
    /// The first slot in the home bucket whose tag fits, or [`NONE`]: then the first overflow bucket is asked for.
    fn candidate(&self, home: usize, hash: u64) -> u32;
    /// The same in the first overflow bucket.
    fn second_candidate(&self, home: usize, hash: u64) -> u32;
    /// Asks for the first `bytes` of a row.
    fn prefetch_row(&self, slot: u32, bytes: usize);
}

/// Keys of a block.
pub(crate) const BLOCK: usize = 8;

/// A block of keys between the stages.
#[derive(Clone, Copy)]
pub(crate) struct KeyBlock {
    pub(crate) hashes: [u64; BLOCK],
    pub(crate) homes: [u32; BLOCK],
    /// Which of the shards here.
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

    /// Stage 1: hashes and home buckets, whose lines are asked for. At most [`BLOCK`] keys.
    #[inline(always)]
    pub(crate) fn locate(
        &mut self,
        shards: &[impl ShardIndex],
        table: u32,
        first: u32,
        keys: &[u64],
    ) -> Result<(), PullError> {
        self.len = keys.len().min(BLOCK);
        let places = self.hashes.iter_mut().zip(&mut self.homes).zip(&mut self.owners);
        for (&key, ((h, home), owner)) in keys.iter().zip(places) {
            *h = hash(key);
            let number = shard_of(*h, table);
            *owner = number.wrapping_sub(first);
            let Some(shard) = shards.get(*owner as usize) else {
                return Err(PullError::WrongShard { key, shard: number });
            };
            *home = shard.locate(*h) as u32;
        }
        Ok(())
    }

    /// Stage 2: candidates, the first `bytes` of whose rows are asked for.
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

    /// Stage 3: keys without a candidate have a look at their first overflow bucket.
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
