//! A batch ready to learn: examples, unique keys in shard order, and links to the batches before it.

pub(crate) mod batches;
pub(crate) mod dedup;
pub(crate) mod first;
pub(crate) mod open_files;
pub(crate) mod read_time_limit;

use crate::backend::tables::PreparedRows;
use crate::batch::dedup::Dedup;
use crate::read::block::Block;

/// Examples and their keys. Batches are numbered from 0 over all epochs, and the push of a batch has the same number.
#[derive(Debug, Default)]
pub struct Batch {
    /// The examples; no example has a key twice.
    pub block: Block,
    /// For each occurrence of the block, the index of its key in `keys`.
    pub local: Vec<u32>,
    /// The unique keys, ascending by shard.
    pub keys: Vec<u64>,
    /// Where the run of each shard begins in `keys`, and the end of the last run.
    pub starts: Vec<u32>,
    /// `links[a - 1][u]`: the index of key `u` in the batch `a` batches before, or [`NO_LINK`](crate::NO_LINK).
    pub links: Vec<Vec<u32>>,
    /// The batch's number in this run.
    pub number: u64,
    /// The pass over the file, from 0.
    pub epoch: u32,
    /// Occurrences that were added to another occurrence of the same key in the same example.
    pub merged: usize,
    /// Bytes of the file read up to this batch.
    pub bytes_read: u64,
    /// Bytes of the file, when known.
    pub bytes_total: Option<u64>,
    /// Bad lines of the first pass that were skipped up to this batch.
    pub bad_lines: u64,
    /// The position of the batch in its split, when a source hands out splits.
    pub split: Option<InSplit>,
    /// The rows of the keys, where the maker of the batch finds them.
    pub prepared: PreparedRows,
}

impl Batch {
    /// The keys, with the start of each shard's run.
    pub fn sorted_keys(&self) -> BatchKeys<'_> {
        let prepared = Some(&self.prepared).filter(|prepared| prepared.is_made());
        BatchKeys { keys: &self.keys, starts: Some(&self.starts), prepared }
    }
}

/// The keys of one pull. They are unique.
#[derive(Clone, Copy, Debug)]
pub struct BatchKeys<'a> {
    /// The keys.
    pub keys: &'a [u64],
    /// Where the run of each shard begins in `keys`, and the end of the last run, when the keys are sorted by shard.
    /// `None`: the keys are in any order.
    pub starts: Option<&'a [u32]>,
    /// The rows of the keys, if they were [prepared](crate::Tables::preparer).
    pub prepared: Option<&'a PreparedRows>,
}

impl<'a> BatchKeys<'a> {
    /// Keys in any order.
    pub fn unsorted(keys: &'a [u64]) -> BatchKeys<'a> {
        BatchKeys { keys, starts: None, prepared: None }
    }
}

/// The position of a batch in a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSplit {
    /// The split's number.
    pub index: u64,
    /// The pusher and incarnation in the names of the split's pushes.
    pub name: (u64, u64),
    /// The number of the batch in the split, from 1.
    pub seq: u64,
    /// Set in the empty batch that ends a split: the number of the split's examples.
    pub end: Option<u64>,
}

/// Makes batches from blocks: finds unique keys, sorts them by shard, and links them to earlier batches.
pub struct Batcher {
    tables: Vec<Dedup>,
    depth: usize,
    number: u64,
}

impl Batcher {
    /// A batcher for a table of `shards` shards. It links each batch to the `depth` batches before it.
    pub fn new(shards: u32, depth: usize) -> Batcher {
        Batcher { tables: (0..=depth).map(|_| Dedup::new(shards)).collect(), depth, number: 0 }
    }

    /// Completes a batch for rows that are learned in place: it only adds up repeated keys.
    pub fn complete_in_place(&mut self, batch: &mut Batch) {
        batch.merged = 0;
        if batch.block.may_repeat {
            batch.merged =
                self.tables[0].run(&mut batch.block, &mut batch.keys, &mut batch.starts, &mut batch.local);
        }
        batch.number = self.number;
        self.number += 1;
    }

    /// Completes a batch whose block has been filled.
    pub fn complete(&mut self, batch: &mut Batch) {
        let ring = self.tables.len() as u64;
        let table = &mut self.tables[(self.number % ring) as usize];
        batch.merged = table.run(&mut batch.block, &mut batch.keys, &mut batch.starts, &mut batch.local);
        batch.number = self.number;
        batch.links.resize_with(self.depth, Vec::new);
        for (links, back) in batch.links.iter_mut().zip(1u64..) {
            links.clear();
            if back <= self.number {
                let before = &self.tables[((self.number - back) % ring) as usize];
                links.extend(batch.keys.iter().map(|&key| before.find(key)));
            }
        }
        self.number += 1;
    }
}
