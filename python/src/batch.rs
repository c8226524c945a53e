//! The keys of one call: each key once, in the order of their shards, and where each given key has its row.
//!
//! A counting sort puts the keys into the order of their shards, on the thread of the caller. A hash table for the keys
//! of one shard then finds out whether a key repeats: it fits the nearest cache. Only then are repeated keys removed.

use gannet::table::hash;
use gannet::worker::ShardedKeys;
use std::sync::Arc;

/// The most keys of one call: their places are `u32`, and so are those of the table, which has up to four slots a key.
pub const KEYS_MAX: usize = 1 << 28;

/// The keys of one call.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of given keys.
    given: usize,
    /// The number of keys without repeats.
    unique: usize,
    /// If keys repeat, for each given key its place among the unique ones.
    places: Vec<u32>,
    /// Each key once, in the order of their shards.
    keys: Arc<ShardedKeys>,
    /// Memory of the search for repeated keys: places, plus 1. 0 is an empty slot.
    slots: Vec<u32>,
}

impl Batch {
    /// Takes other keys into the memory of this batch: those of a table of so many shards.
    pub fn fill(&mut self, given: &[u64], shards: u32) {
        let Batch { places, keys, slots, .. } = self;
        if Arc::get_mut(keys).is_none() {
            // A request still has the keys of the call before.
            *keys = Arc::default();
        }
        places.clear();
        if let Some(keys) = Arc::get_mut(keys) {
            keys.sort(shards, given);
            // Keys that ascend, as those of numpy.unique do, do not repeat.
            let ascending = given.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascending && has_repeated(keys, slots) {
                remove_repeated(given, keys, slots, places);
            }
        }
        (self.unique, self.given) = (keys.keys().len(), given.len());
    }

    /// The number of given keys.
    pub fn len(&self) -> usize {
        self.given
    }

    /// Whether these keys were given, in this order.
    pub fn is_of(&self, given: &[u64]) -> bool {
        if given.len() != self.given {
            return false;
        }
        let (sorted, keys) = (&self.keys, self.keys.keys());
        if !self.is_unique() {
            return given.iter().zip(&self.places).all(|(key, &place)| *key == keys[place as usize]);
        }
        match sorted.is_as_given() {
            true => given == keys,
            false => keys.iter().zip(sorted.positions()).all(|(key, &at)| *key == given[at as usize]),
        }
    }

    /// The number of keys without repeats.
    pub fn unique(&self) -> usize {
        self.unique
    }

    /// Whether no key was given twice.
    pub fn is_unique(&self) -> bool {
        self.unique == self.given
    }

    /// Each key once, in the order of their shards.
    pub fn keys(&self) -> &Arc<ShardedKeys> {
        &self.keys
    }

    /// For each given key its place in [`keys`](Self::keys).
    pub fn places(&self) -> Vec<u32> {
        if !self.is_unique() {
            return self.places.clone();
        }
        let (keys, mut places) = (self.keys(), (0..self.unique as u32).collect::<Vec<u32>>());
        (0..).zip(keys.positions()).for_each(|(place, &given)| places[given as usize] = place);
        places
    }

    /// Copies rows of `dim` floats from the order of [`keys`](Self::keys) to that of the given keys.
    pub fn rows_as_given(&self, rows: &[f32], dim: usize, out: &mut [f32]) {
        if self.is_unique() {
            return self.keys().rows_as_given(rows, dim, out);
        }
        self.places.iter().zip(out.chunks_exact_mut(dim)).for_each(|(&place, out)| {
            out.copy_from_slice(&rows[place as usize * dim..][..dim]);
        });
    }

    /// Writes one row of `dim` floats for each of [`keys`](Self::keys): the given row, or the sum or the mean of the
    /// given rows of this key.
    pub fn reduce(&self, given: &[f32], dim: usize, mean: bool, out: &mut Vec<f32>) {
        if self.is_unique() {
            return self.keys().rows_by_shard(given, dim, out);
        }
        out.clear();
        out.resize(self.unique * dim, 0.0);
        for (row, &place) in given.chunks_exact(dim).zip(&self.places) {
            let sum = &mut out[place as usize * dim..][..dim];
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        if mean {
            let mut counts = vec![0u32; self.unique];
            self.places.iter().for_each(|&place| counts[place as usize] += 1);
            for (row, &count) in out.chunks_exact_mut(dim).zip(&counts) {
                row.iter_mut().for_each(|value| *value /= count as f32);
            }
        }
    }
}

/// Whether one of the sorted keys repeats.
fn has_repeated(sorted: &ShardedKeys, slots: &mut Vec<u32>) -> bool {
    let (keys, starts) = (sorted.keys(), sorted.starts());
    let shard_bits = (starts.len() - 1).trailing_zeros();
    for ends in starts.windows(2) {
        let run = &keys[ends[0] as usize..ends[1] as usize];
        if run.len() < 2 {
            continue;
        }
        // Four slots a key: most keys then find theirs empty, and the branch is predicted.
        let bits = (4 * run.len()).next_power_of_two().trailing_zeros();
        slots.clear();
        slots.resize(1 << bits, 0);
        let (slots, mask) = (&mut slots[..], (1usize << bits) - 1);
        for (number, &key) in (1u32..).zip(run) {
            // The bits of the hash below those that choose the shard.
            let mut slot = ((hash(key) << shard_bits) >> (64 - bits)) as usize;
            while slots[slot & mask] != 0 {
                if run[slots[slot & mask] as usize - 1] == key {
                    return true;
                }
                slot += 1;
            }
            slots[slot & mask] = number;
        }
    }
    false
}

/// Sorts the given keys without repeats. `places` gets the place of each given key among them.
fn remove_repeated(given: &[u64], sorted: &mut ShardedKeys, slots: &mut Vec<u32>, places: &mut Vec<u32>) {
    let bits = (4 * given.len()).next_power_of_two().trailing_zeros();
    let mask = (1usize << bits) - 1;
    slots.clear();
    slots.resize(mask + 1, 0);
    let mut once: Vec<u64> = Vec::new();
    for &key in given {
        let mut slot = (hash(key) >> (64 - bits)) as usize;
        let number = loop {
            match slots[slot] {
                0 => {
                    once.push(key);
                    slots[slot] = once.len() as u32;
                    break once.len() as u32 - 1;
                }
                found if once[found as usize - 1] == key => break found - 1,
                _ => slot = (slot + 1) & mask,
            }
        };
        places.push(number);
    }
    sorted.sort((sorted.starts().len() - 1) as u32, &once);
    // If the keys came in the order of their shards, their numbers are their places.
    let mut place_of: Vec<u32> = vec![0; sorted.positions().len()];
    (0..).zip(sorted.positions()).for_each(|(place, &number)| place_of[number as usize] = place);
    if !place_of.is_empty() {
        places.iter_mut().for_each(|number| *number = place_of[*number as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet::table::shard_of;

    #[test]
    fn ascending_keys_repeat_when_they_do() {
        for count in [1usize, 2, 700] {
            for repeated in 0..count.min(3) {
                for shards in [1, 64] {
                    let once: Vec<u64> = (0..count as u64).map(|i| i * i).collect();
                    let (mut batch, mut last) = (Batch::default(), once.clone());
                    batch.fill(&once, shards);
                    assert_eq!((batch.len(), batch.unique()), (count, count));
                    // In its place, and at the end.
                    last.push(once[repeated]);
                    let mut sorted = last.clone();
                    sorted.sort_unstable();
                    for keys in [last, sorted] {
                        batch.fill(&keys, shards);
                        assert_eq!((batch.len(), batch.unique()), (count + 1, count));
                    }
                }
            }
        }
    }

    /// Each shape against plain loops over a map.
    #[test]
    fn a_batch_equals_a_map() {
        use std::collections::BTreeMap;
        let mut batch = Batch::default();
        for (round, &(n, range)) in
            [(0, 1), (1, 1), (5, 2), (300, 40), (300, u64::MAX), (5000, 700), (17, u64::MAX)]
                .iter()
                .enumerate()
        {
            for shards in [1u32, 2, 64] {
                for dim in [1usize, 3, 16] {
                    let key = |i: u64| gannet::table::mix(i ^ (round as u64) << 32) % range;
                    let keys: Vec<u64> = (0..n).map(key).collect();
                    batch.fill(&keys, shards);
                    assert!(batch.is_of(&keys) && batch.len() == keys.len());
                    for changed in 0..keys.len().min(3) {
                        let mut other = keys.clone();
                        other[changed] = other[changed].wrapping_add(1);
                        assert!(!batch.is_of(&other));
                        other.swap(0, keys.len() - 1);
                        assert_eq!(batch.is_of(&other), other == keys);
                        assert!(!batch.is_of(&keys[changed + 1..]));
                    }
                    let mut once: Vec<u64> = keys.clone();
                    once.sort_unstable();
                    once.dedup();
                    let sorted = batch.keys();
                    let mut ours = sorted.keys().to_vec();
                    ours.sort_unstable();
                    assert_eq!(ours, once);
                    assert_eq!((ours.len(), sorted.starts().len()), (batch.unique(), shards as usize + 1));
                    for (key, place) in keys.iter().zip(batch.places()) {
                        assert_eq!(sorted.keys()[place as usize], *key);
                    }
                    for shard in 0..shards {
                        let run = sorted.starts()[shard as usize] as usize
                            ..sorted.starts()[shard as usize + 1] as usize;
                        assert!(sorted.keys()[run].iter().all(|&key| shard_of(hash(key), shards) == shard));
                    }
                    let rows: Vec<f32> = (0..keys.len() * dim).map(|i| (i % 97) as f32).collect();
                    for mean in [false, true] {
                        let mut sums: BTreeMap<u64, (Vec<f32>, f32)> = BTreeMap::new();
                        for (key, row) in keys.iter().zip(rows.chunks_exact(dim)) {
                            let (sum, count) = sums.entry(*key).or_insert_with(|| (vec![0.0; dim], 0.0));
                            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                            *count += 1.0;
                        }
                        let want = |key: &u64| -> Vec<f32> {
                            let (sum, count) = &sums[key];
                            sum.iter().map(|sum| if mean { sum / count } else { *sum }).collect()
                        };
                        let mut reduced = vec![7.0; 3];
                        batch.reduce(&rows, dim, mean, &mut reduced);
                        assert_eq!(reduced, sorted.keys().iter().flat_map(want).collect::<Vec<f32>>());
                        let mut back = vec![9.0; rows.len()];
                        batch.rows_as_given(&reduced, dim, &mut back);
                        assert_eq!(back, keys.iter().flat_map(want).collect::<Vec<f32>>());
                    }
                }
            }
        }
    }
}
