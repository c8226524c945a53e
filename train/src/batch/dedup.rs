//! Finds the unique keys of a batch in shard order, and for each occurrence the index of its key. Each entry of the
//! hash table has the number of an example. So the table need not be cleared between batches, and it shows at once
//! when an example repeats a key.

use crate::read::block::Block;
use gannet_core::{hash, shard_of};

/// In a link: the earlier batch does not have this key.
pub const NO_LINK: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct DedupEntry {
    key: u64,
    /// Number of the last example with the key. An entry below the batch's first example is of an older batch.
    serial: u32,
    /// The index of the key among the batch's unique keys, in order of appearance.
    index: u32,
}

/// One batch's unique keys, which can be looked up until the next batch.
pub struct Dedup {
    table: Vec<DedupEntry>,
    shards: u32,
    first: u32,
    next: u32,
    unique: Vec<(u64, u32)>,
    /// For each unique key in order of appearance, its index in shard order.
    rank: Vec<u32>,
    starts: Vec<u32>,
    seen: Vec<(u32, u32)>,
}

impl Dedup {
    /// For a table of so many shards (a power of two).
    pub fn new(shards: u32) -> Dedup {
        Dedup {
            table: vec![DedupEntry::default(); 1 << 12],
            shards,
            first: 0,
            next: 1,
            unique: Vec::new(),
            rank: Vec::new(),
            starts: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Writes the block's unique keys, ascending by shard, to `keys`, and the start of each shard's run to `starts`.
    /// For each occurrence it writes the index of its key to `local`. When an example repeats a key, the values are
    /// added up in one occurrence, and the example's margin and gradient use the sum. Returns by how many occurrences
    /// the block shrank.
    pub fn run(
        &mut self,
        block: &mut Block,
        keys: &mut Vec<u64>,
        starts: &mut Vec<u32>,
        local: &mut Vec<u32>,
    ) -> usize {
        if u32::MAX - self.next <= block.len() as u32 {
            self.table.fill(DedupEntry::default());
            self.next = 1;
        }
        (self.first, self.next) = (self.next, self.next + block.len() as u32);
        self.unique.clear();
        local.clear();
        local.reserve(block.keys.len());
        let mut repeats = false;
        for i in 0..block.len() {
            let (range, serial) = (block.range(i), self.first + i as u32);
            for &key in &block.keys[range] {
                let (index, repeat) = self.put(key, serial);
                local.push(index);
                repeats |= repeat;
            }
        }
        let merged = if repeats { self.merge(block, local) } else { 0 };
        self.cut(keys, starts, local);
        merged
    }

    /// The index in shard order of a key of the last batch, or [`NO_LINK`].
    #[inline(always)]
    pub fn find(&self, key: u64) -> u32 {
        let mask = self.table.len() - 1;
        let mut at = hash(key) as usize & mask;
        loop {
            let entry = &self.table[at];
            if entry.serial < self.first {
                return NO_LINK;
            }
            if entry.key == key {
                return self.rank[entry.index as usize];
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    fn put(&mut self, key: u64, serial: u32) -> (u32, bool) {
        let hash = hash(key);
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = &mut self.table[at];
            if entry.serial < self.first {
                let index = self.unique.len() as u32;
                *entry = DedupEntry { key, serial, index };
                self.unique.push((key, shard_of(hash, self.shards)));
                if self.unique.len() * 2 > self.table.len() {
                    self.grow();
                }
                return (index, false);
            }
            if entry.key == key {
                let repeat = entry.serial == serial;
                entry.serial = serial;
                return (entry.index, repeat);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let larger = vec![DedupEntry::default(); self.table.len() * 2];
        let mask = larger.len() - 1;
        let old = std::mem::replace(&mut self.table, larger);
        for entry in old.into_iter().filter(|e| e.serial >= self.first) {
            let mut at = hash(entry.key) as usize & mask;
            while self.table[at].serial >= self.first {
                at = (at + 1) & mask;
            }
            self.table[at] = entry;
        }
    }

    /// Adds the values of keys that an example repeats to their first occurrence and closes the gaps.
    #[cold]
    #[inline(never)]
    fn merge(&mut self, block: &mut Block, local: &mut Vec<u32>) -> usize {
        self.seen.clear();
        self.seen.resize(self.unique.len(), (u32::MAX, 0));
        let before = local.len();
        let (mut out, has_fields) = (0, !block.fields.is_empty());
        for i in 0..block.len() {
            let range = block.range(i);
            block.offsets[i] = out as u32;
            for j in range {
                let seen = &mut self.seen[local[j] as usize];
                if seen.0 == i as u32 {
                    block.values[seen.1 as usize] += block.values[j];
                    continue;
                }
                *seen = (i as u32, out as u32);
                local[out] = local[j];
                block.keys[out] = block.keys[j];
                block.values[out] = block.values[j];
                if has_fields {
                    block.fields[out] = block.fields[j];
                }
                out += 1;
            }
        }
        let examples = block.len();
        block.offsets[examples] = out as u32;
        block.keys.truncate(out);
        block.values.truncate(out);
        block.fields.truncate(out);
        local.truncate(out);
        before - out
    }

    /// Sorts the unique keys by shard with a stable counting sort, and renumbers `local`.
    fn cut(&mut self, keys: &mut Vec<u64>, starts: &mut Vec<u32>, local: &mut [u32]) {
        self.starts.clear();
        self.starts.resize(self.shards as usize + 1, 0);
        for &(_, shard) in &self.unique {
            self.starts[shard as usize + 1] += 1;
        }
        for shard in 1..self.starts.len() {
            self.starts[shard] += self.starts[shard - 1];
        }
        starts.clone_from(&self.starts);
        keys.clear();
        keys.resize(self.unique.len(), 0);
        self.rank.clear();
        self.rank.extend(self.unique.iter().map(|&(key, shard)| {
            let place = self.starts[shard as usize];
            self.starts[shard as usize] += 1;
            keys[place as usize] = key;
            place
        }));
        let rank = &self.rank[..];
        for index in local {
            *index = rank[*index as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    type Example = Vec<(u64, i8)>;

    fn block_of(examples: &[Example]) -> Block {
        let mut block = Block::default();
        block.clear();
        for example in examples {
            for &(key, value) in example {
                block.keys.push(key);
                block.values.push(f32::from(value));
                block.fields.push(key + 100);
            }
            block.end(1.0);
        }
        block
    }

    proptest! {
        #[test]
        fn like_a_hash_map(batches in prop::collection::vec(
            prop::collection::vec(prop::collection::vec((0u64..40, -5i8..5), 0..12), 0..20), 1..5)) {
            let (mut dedup, mut keys, mut starts, mut local) = (Dedup::new(4), Vec::new(), Vec::new(), Vec::new());
            dedup.next = u32::MAX - 30; // some cases wrap around
            for examples in &batches {
                let mut block = block_of(examples);
                let merged = dedup.run(&mut block, &mut keys, &mut starts, &mut local);
                prop_assert_eq!(local.len() + merged, examples.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!((local.len(), local.len()), (block.keys.len(), block.values.len()));
                prop_assert_eq!(block.fields.len(), block.keys.len());
                let set: HashSet<u64> = examples.iter().flatten().map(|f| f.0).collect();
                prop_assert_eq!(keys.iter().copied().collect::<HashSet<_>>(), set.clone());
                prop_assert_eq!(keys.len(), set.len());
                prop_assert_eq!((starts.len(), starts[0], starts[4] as usize), (5, 0, keys.len()));
                for (shard, run) in (0..).zip(starts.windows(2)) {
                    let run = &keys[run[0] as usize..run[1] as usize];
                    prop_assert!(run.iter().all(|&key| shard_of(hash(key), 4) == shard));
                }
                for (i, example) in examples.iter().enumerate() {
                    let mut want: HashMap<u64, f32> = HashMap::new();
                    example.iter().for_each(|&(k, v)| *want.entry(k).or_default() += f32::from(v));
                    let range = block.range(i);
                    prop_assert_eq!(range.len(), want.len());
                    for j in range {
                        prop_assert_eq!(keys[local[j] as usize], block.keys[j]);
                        prop_assert_eq!(block.values[j], want[&block.keys[j]]);
                        prop_assert_eq!(block.fields[j], block.keys[j] + 100);
                    }
                }
                for key in 0..60 {
                    let at = keys.iter().position(|&k| k == key).map_or(NO_LINK, |at| at as u32);
                    prop_assert_eq!(dedup.find(key), at);
                }
            }
        }

        #[test]
        fn grows(keys in prop::collection::hash_set(any::<u64>(), 5000..9000)) {
            let example: Example = keys.iter().map(|&k| (k, 1)).collect();
            let (mut unique, mut local) = (Vec::new(), Vec::new());
            let mut dedup = Dedup::new(64);
            dedup.run(&mut block_of(&[example.clone(), example]), &mut unique, &mut Vec::new(), &mut local);
            prop_assert_eq!(unique.len(), keys.len());
            prop_assert_eq!(&local[..keys.len()], &local[keys.len()..]);
            prop_assert!(unique.iter().enumerate().all(|(i, &k)| dedup.find(k) == i as u32));
        }
    }
}
