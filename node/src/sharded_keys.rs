//! A batch's keys in the order in which shards own them: what makes one pass over a shard's memory possible, and one
//! frame a part. Two passes of a counting sort over the shard numbers, stable.

use crate::limits::part_keys;
use gannet_core::{Schema, hash, shard_of};
use std::ops::Range;

/// Keys that travel together: one frame of a pull, one part of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Which of the worker's links.
    pub peer: u32,
    /// The first key, in cut order.
    pub start: u32,
    /// Keys.
    pub len: u32,
    /// Keys of the first key's shard that stand before it: with them a part of a push is named, whatever the links.
    pub row: u32,
}

impl Chunk {
    /// The chunk's floats of a batch in cut order whose rows are `floats` long.
    pub(crate) fn floats(&self, floats: usize) -> std::ops::Range<usize> {
        let start = self.start as usize * floats;
        start..start + self.len as usize * floats
    }
}

/// A batch of keys of one table, cut by shard. Values travel in this order; `from` leads back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ShardedKeys {
    keys: Vec<u64>,
    from: Vec<u32>,
    chunks: Vec<Chunk>,
    pub(crate) table: usize,
    /// Which of the worker's layouts the chunks are of.
    pub(crate) layout: u64,
    shards: Vec<u16>,
}

impl ShardedKeys {
    /// The keys in cut order.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// For each position in cut order, the key's position in the batch as it was given.
    pub fn from(&self) -> &[u32] {
        &self.from
    }

    /// The parts, in cut order, for the links that there were when the batch was cut.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Chunks of a range of rows for links that may be others than when it was cut.
    pub(crate) fn chunks_of(&self, rows: Range<u32>, schema: &Schema, owners: &[u32], out: &mut Vec<Chunk>) {
        let shard = |at: u32| shard_of(hash(self.keys[at as usize]), schema.shards);
        let most = part_keys(schema.floats()) as u32;
        let mut at = rows.start;
        // Where the run of the shard at hand begins.
        let mut run = at;
        while at < rows.end {
            let mut last = shard(at);
            while run > 0 && shard(run - 1) == last {
                run -= 1;
            }
            let (start, row, peer) = (at, at - run, owners[last as usize]);
            at += 1;
            while at < rows.end && at - start < most {
                let next = shard(at);
                if owners[next as usize] != peer {
                    break;
                }
                if next != last {
                    (run, last) = (at, next);
                }
                at += 1;
            }
            out.push(Chunk { peer, start, len: at - start, row });
            if at < rows.end && shard(at) != last {
                run = at;
            }
        }
    }

    /// Cuts another batch into the memory of this one. `owners` has the link of each shard, ascending.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` keys.
    pub(crate) fn fill(&mut self, table: usize, schema: &Schema, owners: &[u32], keys: &[u64]) {
        assert!(u32::try_from(keys.len()).is_ok(), "{} keys in one batch", keys.len());
        let ShardedKeys { keys: out, from, chunks, shards, .. } = self;
        self.table = table;
        let mut starts = vec![0u32; schema.shards as usize + 1];
        shards.clear();
        shards.extend(keys.iter().map(|&key| {
            let shard = shard_of(hash(key), schema.shards);
            starts[shard as usize + 1] += 1;
            shard as u16
        }));
        for shard in 1..starts.len() {
            starts[shard] += starts[shard - 1];
        }
        chunks.clear();
        add_chunks(chunks, &starts, owners, part_keys(schema.floats()) as u32);
        out.resize(keys.len(), 0);
        from.resize(keys.len(), 0);
        for (i, (&key, &shard)) in keys.iter().zip(&*shards).enumerate() {
            let at = &mut starts[shard as usize];
            out[*at as usize] = key;
            from[*at as usize] = i as u32;
            *at += 1;
        }
    }
}

/// Splits each link's run of keys into parts of at most `most` keys.
fn add_chunks(chunks: &mut Vec<Chunk>, starts: &[u32], owners: &[u32], most: u32) {
    let mut shard = 0;
    while shard < owners.len() {
        let (peer, first) = (owners[shard], shard);
        let mut start = starts[shard];
        while shard < owners.len() && owners[shard] == peer {
            shard += 1;
        }
        let (end, mut first) = (starts[shard], first);
        while start < end {
            let len = most.min(end - start);
            while starts[first + 1] <= start {
                first += 1;
            }
            chunks.push(Chunk { peer, start, len, row: start - starts[first] });
            start += len;
        }
    }
}

const _: () = assert!(gannet_core::limits::SHARDS_MAX <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_optim::{Add, Rule};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cut_is_a_stable_sort_by_shard(keys in prop::collection::vec(0u64..500, 0..400), peers in 1u32..5, dim in 1u32..4000) {
            let schema = Schema { dim, shards: 16, ..Schema::scalar("t", Rule::Add(Add)) };
            let owners: Vec<u32> = (0..16).map(|shard| shard * peers / 16).collect();
            let mut cut = ShardedKeys::default();
            cut.fill(1, &schema, &owners, &[7; 50]);
            cut.fill(0, &schema, &owners, &keys);
            let shard = |key: u64| shard_of(hash(key), 16);
            let mut want: Vec<(u32, u32)> = keys.iter().enumerate().map(|(i, &key)| (shard(key), i as u32)).collect();
            want.sort();
            prop_assert_eq!(cut.from(), &want.iter().map(|w| w.1).collect::<Vec<_>>()[..]);
            for (key, &from) in cut.keys().iter().zip(cut.from()) {
                prop_assert_eq!(*key, keys[from as usize]);
            }
            let mut next = 0;
            for chunk in cut.chunks() {
                prop_assert!(chunk.start == next && chunk.len > 0);
                prop_assert!(chunk.len as usize * (8 + 4 * dim as usize) <= crate::limits::PART_BYTES_MAX);
                let first = shard(cut.keys()[next as usize]);
                let before = cut.keys()[..next as usize].iter().filter(|&&key| shard(key) == first).count();
                prop_assert_eq!(chunk.row as usize, before);
                for key in &cut.keys()[chunk.start as usize..(chunk.start + chunk.len) as usize] {
                    prop_assert_eq!(owners[shard(*key) as usize], chunk.peer);
                }
                next += chunk.len;
            }
            prop_assert_eq!(next as usize, keys.len());
        }

        /// Chunks that are made later, of all rows or of some, are those that a cut for these links has.
        #[test]
        fn chunks_for_other_links_are_those_of_a_cut_for_them(
            keys in prop::collection::vec(0u64..500, 1..400), before in 1u32..5, now in 1u32..5, dim in 1u32..4000, at in 0usize..400,
        ) {
            let schema = Schema { dim, shards: 16, ..Schema::scalar("t", Rule::Add(Add)) };
            let owners = |peers: u32| (0..16).map(|shard| shard * peers / 16).collect::<Vec<u32>>();
            let (mut cut, mut want) = (ShardedKeys::default(), ShardedKeys::default());
            cut.fill(0, &schema, &owners(before), &keys);
            want.fill(0, &schema, &owners(now), &keys);
            let mut chunks = Vec::new();
            cut.chunks_of(0..keys.len() as u32, &schema, &owners(now), &mut chunks);
            prop_assert_eq!(&chunks[..], want.chunks());
            let at = (at % keys.len()) as u32;
            chunks.clear();
            cut.chunks_of(0..at, &schema, &owners(now), &mut chunks);
            cut.chunks_of(at..keys.len() as u32, &schema, &owners(now), &mut chunks);
            let shard = |at: u32| shard_of(hash(cut.keys()[at as usize]), 16);
            let mut next = 0;
            for chunk in &chunks {
                prop_assert_eq!(chunk.start, next);
                let row = (0..next).filter(|&before| shard(before) == shard(next)).count();
                prop_assert_eq!(row as u32, chunk.row);
                next += chunk.len;
                prop_assert!((chunk.start..next).all(|at| owners(now)[shard(at) as usize] == chunk.peer));
            }
            prop_assert_eq!(next as usize, keys.len());
        }
    }
}
