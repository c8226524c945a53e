//! A batch's keys in shard order. A server then makes one pass over each shard's memory, and a frame holds one
//! contiguous run of keys.
//!
//! A caller may have sorted the keys already ([`ShardedKeys::fill_sorted`]). Otherwise [`ShardedKeys::fill`] sorts them
//! with a stable counting sort.

use crate::limits::part_keys;
use gannet_core::{Schema, hash, shard_of};
use std::ops::Range;

/// Keys that travel together: one frame of a pull, one part of a push. [`ShardedKeys::chunks`] lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The worker's link.
    pub peer: u32,
    /// The position of the first key, in shard order.
    pub start: u32,
    /// Number of keys.
    pub len: u32,
    /// Keys of the same shard before the first key. It names a part of a push and does not depend on the links.
    pub row: u32,
}

impl Chunk {
    /// The floats of the chunk in a batch of rows of `floats` floats each, in shard order.
    pub fn floats(&self, floats: usize) -> std::ops::Range<usize> {
        let start = self.start as usize * floats;
        start..start + self.len as usize * floats
    }
}

/// A batch of keys of one table, in shard order. Values travel in this order.
///
/// ```
/// # use gannet_core::Schema;
/// # use gannet_optim::{Add, Rule};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
/// let keys = worker.cut(table, &[7, 42, 9]);
/// let (given, mut sharded, mut back) = ([0.7, 4.2, 0.9], Vec::new(), [0.0; 3]);
/// keys.rows_by_shard(&given, 1, &mut sharded); // one float a row, in the order of keys.keys()
/// keys.rows_as_given(&sharded, 1, &mut back);
/// assert_eq!(back, given);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ShardedKeys {
    keys: Vec<u64>,
    /// For each key its position in the caller's batch. Empty: the batch came in shard order.
    from: Vec<u32>,
    chunks: Vec<Chunk>,
    pub table: usize,
    /// The worker's layout of links that the chunks are for.
    pub layout: u64,
    /// Where each shard's run of `keys` begins, and the end of the last run.
    starts: Vec<u32>,
    /// Memory of [`sort`](Self::sort): the shard of each key in the caller's order.
    shards: Vec<u16>,
}

/// The table of keys that were sorted without a worker: any with their number of shards.
const ANY_TABLE: usize = usize::MAX;

impl ShardedKeys {
    /// The keys in shard order.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Where each shard's run of [`keys`](Self::keys) begins, and the end of the last run: one more than shards.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// For each of [`keys`](Self::keys) its position in the caller's batch. Empty if the batch came in shard order.
    pub fn positions(&self) -> &[u32] {
        &self.from
    }

    /// Whether the caller's keys were in shard order: rows are then in the caller's order too.
    pub fn is_as_given(&self) -> bool {
        self.from.is_empty()
    }

    /// Copies rows of `floats` each from shard order to the caller's order.
    ///
    /// # Panics
    /// When `rows` or `out` is not one row for each key.
    pub fn rows_as_given(&self, rows: &[f32], floats: usize, out: &mut [f32]) {
        assert!(rows.len() == self.keys.len() * floats && out.len() == rows.len(), "one row for each key");
        if self.is_as_given() || floats == 0 {
            return out.copy_from_slice(rows);
        }
        match floats {
            1 => rows.iter().zip(&self.from).for_each(|(row, &from)| out[from as usize] = *row),
            4 => scatter::<4>(&self.from, rows, out),
            8 => scatter::<8>(&self.from, rows, out),
            16 => scatter::<16>(&self.from, rows, out),
            32 => scatter::<32>(&self.from, rows, out),
            64 => scatter::<64>(&self.from, rows, out),
            _ => rows.chunks_exact(floats).zip(&self.from).for_each(|(row, &from)| {
                out[from as usize * floats..][..floats].copy_from_slice(row);
            }),
        }
    }

    /// Copies rows of `floats` each from the caller's order to shard order. They replace what `out` holds.
    ///
    /// # Panics
    /// When `rows` is not one row for each key.
    pub fn rows_by_shard(&self, rows: &[f32], floats: usize, out: &mut Vec<f32>) {
        assert_eq!(rows.len(), self.keys.len() * floats, "one row for each key");
        if self.is_as_given() || floats == 0 {
            out.clear();
            return out.extend_from_slice(rows);
        }
        // Each float is written below.
        out.resize(rows.len(), 0.0);
        match floats {
            1 => out.iter_mut().zip(&self.from).for_each(|(out, &from)| *out = rows[from as usize]),
            4 => gather::<4>(&self.from, rows, out),
            8 => gather::<8>(&self.from, rows, out),
            16 => gather::<16>(&self.from, rows, out),
            32 => gather::<32>(&self.from, rows, out),
            64 => gather::<64>(&self.from, rows, out),
            _ => out.chunks_exact_mut(floats).zip(&self.from).for_each(|(out, &from)| {
                out.copy_from_slice(&rows[from as usize * floats..][..floats]);
            }),
        }
    }

    /// The chunks, in shard order, for the links at the time of the cut.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Cuts a range of rows into chunks for these owners, which may differ from those at the time of the cut.
    pub fn chunks_of(&self, rows: Range<u32>, schema: &Schema, owners: &[u32], out: &mut Vec<Chunk>) {
        let shard = |at: u32| shard_of(hash(self.keys[at as usize]), schema.shards);
        let most = part_keys(schema.widest()) as u32;
        let mut at = rows.start;
        // Where the run of the present shard begins.
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

    /// Sorts another batch by shard, for a table of so many shards, into the memory of this one. It needs no worker, so
    /// any thread can do it. A worker takes the keys for any of its tables that has so many shards.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` keys, or the number of shards is not a power of two up to
    /// [`SHARDS_MAX`](gannet_core::limits::SHARDS_MAX).
    pub fn sort(&mut self, all: u32, keys: &[u64]) {
        assert!(u32::try_from(keys.len()).is_ok(), "{} keys in one batch", keys.len());
        assert!(all.is_power_of_two() && all <= gannet_core::limits::SHARDS_MAX, "{all} shards");
        let ShardedKeys { keys: out, from, chunks, shards, starts, .. } = self;
        (self.table, self.layout) = (ANY_TABLE, 0);
        chunks.clear();
        starts.clear();
        starts.resize(all as usize + 1, 0);
        shards.resize(keys.len(), 0);
        // Slices, so that the loops have their addresses in registers.
        let starts = &mut starts[..];
        for (shard, &key) in shards.iter_mut().zip(keys) {
            *shard = shard_of(hash(key), all) as u16;
            starts[usize::from(*shard) + 1] += 1;
        }
        for shard in 1..starts.len() {
            starts[shard] += starts[shard - 1];
        }
        if shards.is_sorted() {
            out.clear();
            out.extend_from_slice(keys);
            return from.clear();
        }
        out.resize(keys.len(), 0);
        from.resize(keys.len(), 0);
        let (out, from) = (&mut out[..], &mut from[..]);
        for (i, (&key, &shard)) in (0..).zip(keys.iter().zip(&*shards)) {
            let at = &mut starts[usize::from(shard)];
            out[*at as usize] = key;
            from[*at as usize] = i;
            *at += 1;
        }
        // Each start has moved to the start of the next shard.
        starts.copy_within(..all as usize, 1);
        starts[0] = 0;
    }

    /// Whether the keys can be sent to a table of so many shards, with this number. They may be in the order of more
    /// shards: a shard of fewer has the runs of several.
    pub fn are_for(&self, table: usize, shards: u32) -> bool {
        self.table == table || (self.table == ANY_TABLE && self.starts.len() > shards as usize)
    }

    /// Cuts all rows into chunks for these owners of the shards, ascending.
    pub fn all_chunks_of(&self, schema: &Schema, owners: &[u32], out: &mut Vec<Chunk>) {
        out.clear();
        let most = part_keys(schema.widest()) as u32;
        match self.starts.len().saturating_sub(1) / schema.shards as usize {
            0 | 1 => add_chunks(out, &self.starts, owners, most),
            runs => add_chunks(out, &of_fewer(&self.starts, runs), owners, most),
        }
    }

    /// Makes the sorted keys those of a table, with chunks for these owners.
    fn lay_out(&mut self, table: usize, schema: &Schema, owners: &[u32]) {
        let mut chunks = std::mem::take(&mut self.chunks);
        self.all_chunks_of(schema, owners, &mut chunks);
        (self.table, self.chunks) = (table, chunks);
    }

    /// [`sort`](Self::sort)s a batch and lays it out.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` keys.
    pub fn fill(&mut self, table: usize, schema: &Schema, owners: &[u32], keys: &[u64]) {
        self.sort(schema.shards, keys);
        self.lay_out(table, schema, owners);
    }

    /// Takes another batch that the caller has sorted by shard: those of shard `s` are `keys[starts[s]..starts[s +
    /// 1]]`. The order may be that of more shards than the table has.
    ///
    /// Every key is checked. Keys in a wrong order would give parts of a push wrong names, and a server would drop a
    /// part as a duplicate of another.
    ///
    /// # Errors
    /// A key is not in the run of its shard.
    pub fn fill_sorted(
        &mut self,
        table: usize,
        schema: &Schema,
        owners: &[u32],
        keys: &[u64],
        starts: &[u32],
    ) -> Result<(), KeysError> {
        let runs = starts.len().saturating_sub(1) / schema.shards as usize;
        let fits = runs.is_power_of_two()
            && starts.len() == runs * schema.shards as usize + 1
            && starts[0] == 0
            && starts[starts.len() - 1] as usize == keys.len()
            && starts.is_sorted();
        if !fits {
            return Err(KeysError(format!(
                "the {} starts of a batch of {} keys do not fit the {} shards of table {:?}",
                starts.len(),
                keys.len(),
                schema.shards,
                schema.name
            )));
        }
        let starts = of_fewer(starts, runs);
        for (shard, run) in (0..).zip(starts.windows(2)) {
            let strayed = keys[run[0] as usize..run[1] as usize]
                .iter()
                .fold(0, |strayed, &key| strayed | (shard_of(hash(key), schema.shards) ^ shard));
            if strayed != 0 {
                return Err(KeysError(format!(
                    "a batch of table {:?} is not in shard order: a key of another shard is in the run of shard {shard}",
                    schema.name
                )));
            }
        }
        self.from.clear();
        self.keys.clear();
        self.keys.extend_from_slice(keys);
        self.starts = starts;
        self.lay_out(table, schema, owners);
        Ok(())
    }
}

/// Why keys are no batch in shard order.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysError(String);

/// Copies rows with a length that the compiler knows: a row is then a few registers.
fn gather<const D: usize>(from: &[u32], rows: &[f32], out: &mut [f32]) {
    let (rows, out) = (rows.as_chunks::<D>().0, out.as_chunks_mut::<D>().0);
    from.iter().zip(out).for_each(|(&from, out)| *out = rows[from as usize]);
}

fn scatter<const D: usize>(from: &[u32], rows: &[f32], out: &mut [f32]) {
    let (rows, out) = (rows.as_chunks::<D>().0, out.as_chunks_mut::<D>().0);
    rows.iter().zip(from).for_each(|(row, &from)| out[from as usize] = *row);
}

/// The starts of the shards of a table that has one shard for each `runs` of them.
fn of_fewer(starts: &[u32], runs: usize) -> Vec<u32> {
    starts.iter().copied().step_by(runs).collect()
}

/// Splits each link's run of keys into chunks of at most `most` keys.
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
            let from: Vec<u32> = want.iter().map(|w| w.1).collect();
            prop_assert_eq!(cut.is_as_given(), from.is_sorted());
            let sorted: Vec<u64> = from.iter().map(|&from| keys[from as usize]).collect();
            prop_assert_eq!(cut.keys(), &sorted[..]);
            let given: Vec<f32> = (0..keys.len()).flat_map(|i| [i as f32, 0.5]).collect();
            let by_shard: Vec<f32> = from.iter().flat_map(|&i| [i as f32, 0.5]).collect();
            let (mut rows, mut back) = (vec![7.0], vec![0.0; given.len()]);
            cut.rows_by_shard(&given, 2, &mut rows);
            prop_assert_eq!(&rows, &by_shard);
            cut.rows_as_given(&rows, 2, &mut back);
            prop_assert_eq!(back, given);
            // A batch that the caller has sorted is cut the same way, whatever the memory held before.
            let mut starts: Vec<u32> = (0..=16).map(|s| sorted.partition_point(|&key| shard(key) < s) as u32).collect();
            prop_assert_eq!(cut.starts(), &starts[..]);
            let mut taken = ShardedKeys::default();
            taken.fill(1, &schema, &owners, &[7, 3, 9, 1]);
            // Keys that were sorted without a worker are for tables of so many shards. They get the same chunks.
            taken.sort(16, &keys);
            prop_assert_eq!((taken.keys(), taken.positions()), (cut.keys(), cut.positions()));
            prop_assert!(taken.are_for(0, 16) && taken.are_for(3, 16) && !taken.are_for(0, 32));
            prop_assert!(cut.are_for(0, 16) && !cut.are_for(1, 16));
            let mut chunks = vec![Chunk { peer: 9, start: 9, len: 9, row: 9 }];
            taken.all_chunks_of(&schema, &owners, &mut chunks);
            prop_assert_eq!(&chunks[..], cut.chunks());
            prop_assert!(taken.fill_sorted(0, &schema, &owners, &sorted, &starts).is_ok());
            prop_assert!(taken.is_as_given());
            prop_assert_eq!((taken.keys(), taken.chunks()), (cut.keys(), cut.chunks()));
            // One key in the run of another shard is an error.
            if let Some(at) = (1..16).find(|&at| starts[at] > starts[at - 1]) {
                starts[at] -= 1;
                prop_assert!(taken.fill_sorted(0, &schema, &owners, &sorted, &starts).is_err());
            }
            prop_assert!(taken.fill_sorted(0, &schema, &owners, &sorted, &starts[..16]).is_err());
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

        /// The order of more shards is one of fewer, too: a reading thread need not know how many a table has.
        #[test]
        fn keys_in_the_order_of_more_shards_are_cut_for_a_table_of_fewer(
            keys in prop::collection::vec(0u64..500, 0..400), fewer in 0u32..5, peers in 1u32..5, dim in 1u32..4000,
        ) {
            let schema = Schema { dim, shards: 1 << fewer, ..Schema::scalar("t", Rule::Add(Add)) };
            let owners: Vec<u32> = (0..1 << fewer).map(|shard| (shard * peers) >> fewer).collect();
            let (mut fine, mut taken) = (ShardedKeys::default(), ShardedKeys::default());
            fine.sort(16, &keys);
            prop_assert!(fine.are_for(0, schema.shards));
            prop_assert!(taken.fill_sorted(0, &schema, &owners, fine.keys(), fine.starts()).is_ok());
            let mut chunks = Vec::new();
            fine.all_chunks_of(&schema, &owners, &mut chunks);
            prop_assert_eq!((taken.keys(), taken.chunks()), (fine.keys(), &chunks[..]));
            let shard = |at: u32| shard_of(hash(fine.keys()[at as usize]), schema.shards);
            let mut next = 0;
            for chunk in &chunks {
                prop_assert_eq!(chunk.start, next);
                prop_assert_eq!(chunk.row as usize, (0..next).filter(|&before| shard(before) == shard(next)).count());
                next += chunk.len;
                prop_assert!((chunk.start..next).all(|at| owners[shard(at) as usize] == chunk.peer));
            }
            prop_assert_eq!(next as usize, keys.len());
            // The chunks of a part of the rows have the same names.
            let mut later = Vec::new();
            fine.chunks_of(0..keys.len() as u32, &schema, &owners, &mut later);
            prop_assert_eq!(later, chunks);
        }

        /// Chunks that are made later, of all rows or of some, equal those of a cut for these links.
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
