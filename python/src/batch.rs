//! The keys of one call: each key once, in the order of their shards, and where each given key has its row.
//!
//! A counting sort puts the keys into the order of their shards. A hash table for the keys of one shard then finds out
//! whether a key repeats: it fits the nearest cache. Only then are repeated keys removed.

use gannet::table::{hash, shard_of};
use gannet::worker::ShardedKeys;
use std::sync::{Arc, Mutex, PoisonError};

/// The most keys of one call: their places are `u32`, and so are those of the table, which has up to four slots a key.
pub const KEYS_MAX: usize = 1 << 28;

/// The keys of one call.
#[derive(Debug, Default)]
pub struct Batch {
    /// As they were given.
    given: Vec<u64>,
    /// Each key once, in the order of their shards.
    keys: Vec<u64>,
    /// Where the keys of each shard begin in `keys`, and the end.
    starts: Vec<u32>,
    /// For each given key its place in `keys`.
    places: Vec<u32>,
    /// The worker's cut of these keys.
    pub cut: Mutex<Cut>,
    memory: Memory,
}

/// The worker's cut of a batch.
#[derive(Debug, Default)]
pub struct Cut {
    /// The cut, or the memory of an earlier one.
    pub keys: Arc<ShardedKeys>,
    /// Whether it is of the batch as it is.
    pub is_made: bool,
}

/// Memory that the sort needs.
#[derive(Debug, Default)]
struct Memory {
    shards: Vec<u16>,
    ends: Vec<u32>,
    /// Places in `keys`, plus 1. 0 is an empty slot.
    slots: Vec<u32>,
    /// For each place before repeated keys are removed the place afterwards.
    moved: Vec<u32>,
}

impl Batch {
    /// Takes other keys into the memory of this batch: those of a table of so many shards.
    pub fn fill(&mut self, given: Vec<u64>, shards: u32) {
        self.given = given;
        self.sort(shards);
        if self.has_repeated(shards) {
            self.remove_repeated(shards);
        }
        self.cut.get_mut().unwrap_or_else(PoisonError::into_inner).is_made = false;
    }

    /// The memory of the given keys, for the next ones.
    pub fn take_given(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.given)
    }

    /// The keys as they were given.
    pub fn given(&self) -> &[u64] {
        &self.given
    }

    /// Each key once, in the order of their shards.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Where the keys of each shard begin in [`keys`](Self::keys), and the end.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// For each given key its place in [`keys`](Self::keys).
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// Whether no key was given twice.
    pub fn is_unique(&self) -> bool {
        self.keys.len() == self.given.len()
    }

    fn sort(&mut self, all: u32) {
        let Batch { given, keys, starts, places, memory: Memory { shards, ends, .. }, .. } = self;
        starts.clear();
        starts.resize(all as usize + 1, 0);
        shards.resize(given.len(), 0);
        keys.resize(given.len(), 0);
        places.resize(given.len(), 0);
        // Slices, so that the loops have their addresses in registers.
        let (given, keys, starts) = (&given[..], &mut keys[..], &mut starts[..]);
        for (shard, &key) in shards.iter_mut().zip(given) {
            *shard = shard_of(hash(key), all) as u16;
            starts[usize::from(*shard) + 1] += 1;
        }
        for shard in 1..starts.len() {
            starts[shard] += starts[shard - 1];
        }
        ends.clear();
        ends.extend_from_slice(starts);
        let ends = &mut ends[..];
        for ((&shard, &key), place) in shards.iter().zip(given).zip(places) {
            let end = &mut ends[usize::from(shard)];
            keys[*end as usize] = key;
            *place = *end;
            *end += 1;
        }
    }

    /// Whether a key repeats.
    fn has_repeated(&mut self, shards: u32) -> bool {
        let Batch { keys, starts, memory: Memory { slots, .. }, .. } = self;
        for ends in starts.windows(2) {
            let run = &keys[ends[0] as usize..ends[1] as usize];
            if run.len() < 2 {
                continue;
            }
            // Four slots a key: most keys then find theirs empty, and the branch is predicted.
            let bits = (4 * run.len()).next_power_of_two().trailing_zeros();
            slots.clear();
            slots.resize(1 << bits, 0);
            let mask = slots.len() - 1;
            for (number, &key) in (1u32..).zip(run) {
                // The bits of the hash below those that choose the shard.
                let mut slot = ((hash(key) << shards.trailing_zeros()) >> (64 - bits)) as usize;
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

    fn remove_repeated(&mut self, shards: u32) {
        let Batch { keys, starts, places, memory: Memory { slots, moved, .. }, .. } = self;
        let bits = (4 * keys.len()).next_power_of_two().trailing_zeros();
        let mask = (1usize << bits) - 1;
        slots.clear();
        slots.resize(mask + 1, 0);
        moved.clear();
        let mut kept = 0u32;
        for at in 0..keys.len() {
            let key = keys[at];
            let mut slot = (hash(key) >> (64 - bits)) as usize;
            let place = loop {
                match slots[slot] {
                    0 => {
                        // At or before the key itself, so nothing is overwritten that is still to be read.
                        keys[kept as usize] = key;
                        kept += 1;
                        slots[slot] = kept;
                        break kept - 1;
                    }
                    found if keys[found as usize - 1] == key => break found - 1,
                    _ => slot = (slot + 1) & mask,
                }
            };
            moved.push(place);
        }
        if kept as usize == keys.len() {
            return;
        }
        keys.truncate(kept as usize);
        places.iter_mut().for_each(|place| *place = moved[*place as usize]);
        starts.fill(0);
        keys.iter().for_each(|&key| starts[shard_of(hash(key), shards) as usize + 1] += 1);
        for shard in 1..starts.len() {
            starts[shard] += starts[shard - 1];
        }
    }

    /// Copies rows of `dim` floats from the order of [`keys`](Self::keys) to that of the given keys.
    pub fn rows_as_given(&self, rows: &[f32], dim: usize, out: &mut [f32]) {
        let places = &self.places;
        match dim {
            1 => places.iter().zip(out).for_each(|(&place, out)| *out = rows[place as usize]),
            4 => gather::<4>(places, rows, out),
            8 => gather::<8>(places, rows, out),
            16 => gather::<16>(places, rows, out),
            32 => gather::<32>(places, rows, out),
            64 => gather::<64>(places, rows, out),
            _ => places.iter().zip(out.chunks_exact_mut(dim)).for_each(|(&place, out)| {
                out.copy_from_slice(&rows[place as usize * dim..][..dim]);
            }),
        }
    }

    /// Writes one row of `dim` floats for each of [`keys`](Self::keys): the given row, or the sum or the mean of the
    /// given rows of this key.
    pub fn reduce(&self, given: &[f32], dim: usize, mean: bool, out: &mut Vec<f32>) {
        let floats = self.keys.len() * dim;
        if self.is_unique() {
            // Each float is written below.
            out.resize(floats, 0.0);
            return match dim {
                1 => given.iter().zip(&self.places).for_each(|(row, &place)| out[place as usize] = *row),
                4 => scatter::<4>(&self.places, given, out),
                8 => scatter::<8>(&self.places, given, out),
                16 => scatter::<16>(&self.places, given, out),
                32 => scatter::<32>(&self.places, given, out),
                64 => scatter::<64>(&self.places, given, out),
                _ => given.chunks_exact(dim).zip(&self.places).for_each(|(row, &place)| {
                    out[place as usize * dim..][..dim].copy_from_slice(row);
                }),
            };
        }
        out.clear();
        out.resize(floats, 0.0);
        for (row, &place) in given.chunks_exact(dim).zip(&self.places) {
            let sum = &mut out[place as usize * dim..][..dim];
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        if mean {
            let mut counts = vec![0u32; self.keys.len()];
            self.places.iter().for_each(|&place| counts[place as usize] += 1);
            for (row, &count) in out.chunks_exact_mut(dim).zip(&counts) {
                row.iter_mut().for_each(|value| *value /= count as f32);
            }
        }
    }
}

/// Copies with a length that the compiler knows: a row is then a few registers.
fn gather<const D: usize>(places: &[u32], rows: &[f32], out: &mut [f32]) {
    let (rows, (out, _)) = (rows.as_chunks::<D>().0, out.as_chunks_mut::<D>());
    places.iter().zip(out).for_each(|(&place, out)| *out = rows[place as usize]);
}

fn scatter<const D: usize>(places: &[u32], rows: &[f32], out: &mut [f32]) {
    let ((rows, _), out) = (rows.as_chunks::<D>(), out.as_chunks_mut::<D>().0);
    rows.iter().zip(places).for_each(|(row, &place)| out[place as usize] = *row);
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    batch.fill(keys.clone(), shards);
                    let mut once: Vec<u64> = keys.clone();
                    once.sort_unstable();
                    once.dedup();
                    let mut ours = batch.keys().to_vec();
                    ours.sort_unstable();
                    assert_eq!(ours, once);
                    assert_eq!(batch.starts().len(), shards as usize + 1);
                    for shard in 0..shards {
                        let run = batch.starts()[shard as usize] as usize
                            ..batch.starts()[shard as usize + 1] as usize;
                        assert!(batch.keys()[run].iter().all(|&key| shard_of(hash(key), shards) == shard));
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
                        assert_eq!(reduced, batch.keys().iter().flat_map(want).collect::<Vec<f32>>());
                        let mut back = vec![9.0; rows.len()];
                        batch.rows_as_given(&reduced, dim, &mut back);
                        assert_eq!(back, keys.iter().flat_map(want).collect::<Vec<f32>>());
                    }
                }
            }
        }
    }
}
