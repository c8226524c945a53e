//! A table's shards in this process, called directly: no sockets, no threads, no set-up.

use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{
    Eviction, Evictor, PushName, Read, Schema, Shards, Stats, Store, Write, hash, push_parts, shard_of,
};
use gannet_server::open_whole;
use gannet_wire::RunId;
use std::collections::VecDeque;
use std::time::Instant;

/// Keys of one call to the shards.
const PART_KEYS: usize = 1 << 15;
/// Rows of one page of a scan.
const PAGE_ROWS: usize = 1 << 13;

/// All shards of a table, owned by the training thread.
pub struct Embedded {
    shards: Shards,
    /// The schema with the table's name without the run.
    schema: Schema,
    name: PushName,
    /// Rows of pulls that are not finished, with the slots of the rows.
    pulled: VecDeque<(PulledRows, Vec<u32>)>,
    /// The slots of the pull finished last.
    slots: Vec<u32>,
    spare: Vec<PulledRows>,
    spare_slots: Vec<Vec<u32>>,
    pushes: u64,
    not_finite: u64,
    not_admitted: u64,
    /// What evicts rows, and when it began.
    evictor: Option<(Evictor, Instant)>,
    evicted: u64,
}

impl Embedded {
    /// Opens (or creates) the table in `store`. `pusher` is the number of this worker. It gets a new incarnation.
    ///
    /// # Errors
    /// The images cannot be opened.
    pub fn open(store: &Store, schema: &Schema, pusher: u64) -> Result<Embedded, BackendError> {
        Embedded::open_in(None, store, schema, (pusher, 1))
    }

    /// [`open`](Self::open) for a run, whose name is a prefix of the table's name. The new incarnation is at least
    /// `least`.
    ///
    /// # Errors
    /// The images cannot be opened.
    pub fn open_in(
        run: Option<&RunId>,
        store: &Store,
        schema: &Schema,
        (pusher, least): (u64, u64),
    ) -> Result<Embedded, BackendError> {
        let shards = open_whole(store, &of_run(run, schema))?;
        // An existing image may know this pusher. The new incarnation fences the earlier ones.
        let known = shards.pushers().into_iter().find(|p| p.pusher == pusher);
        let incarnation = known.map_or(1, |p| p.incarnation + 1).max(least);
        Ok(Embedded {
            shards,
            schema: schema.clone(),
            name: PushName { pusher, incarnation, seq: 0, row: 0 },
            pulled: VecDeque::new(),
            slots: Vec::new(),
            spare: Vec::new(),
            spare_slots: Vec::new(),
            pushes: 0,
            not_finite: 0,
            not_admitted: 0,
            evictor: None,
            evicted: 0,
        })
    }

    /// From now on rows die as these settings say: after each push, so that no change is computed from a row that dies
    /// before it is pushed.
    ///
    /// # Errors
    /// The settings make no sense for this table.
    pub fn evict(&mut self, eviction: Eviction) -> Result<(), BackendError> {
        let evictor = Evictor::new(eviction, self.shards.schema());
        let evictor = evictor.map_err(|error| BackendError::Schema(error.to_string()))?;
        self.evictor = Some((evictor, Instant::now()));
        Ok(())
    }

    /// Writes every image to its medium and marks it as closed cleanly (see [`Store`]).
    ///
    /// # Errors
    /// The system could not write.
    pub fn close(mut self) -> Result<(), BackendError> {
        self.shards.close_pusher(self.name.pusher, self.name.incarnation)?;
        Ok(self.shards.mark_clean()?)
    }
}

/// The schema with the table's name in this run.
pub(crate) fn of_run(run: Option<&RunId>, schema: &Schema) -> Schema {
    let name = run.map_or_else(|| schema.name.clone(), |run| run.table(&schema.name));
    Schema { name, ..schema.clone() }
}

impl Backend for Embedded {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        0
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        // The shards refuse keys that are not in shard order.
        let keys = keys.keys;
        let floats = self.shards.schema().read_floats(read);
        let mut rows = self.spare.pop().unwrap_or_default();
        let mut slots = self.spare_slots.pop().unwrap_or_default();
        slots.clear();
        rows.values.resize(keys.len() * floats, 0.0);
        for (keys, values) in keys.chunks(PART_KEYS).zip(rows.values.chunks_mut(PART_KEYS * floats)) {
            self.shards.pull(keys, read, values, Some(&mut slots))?;
        }
        rows.saw.clear();
        rows.saw.push((keys.len() as u32, self.pushes));
        self.pulled.push_back((rows, slots));
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        let (rows, slots) = self.pulled.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        self.spare_slots.push(std::mem::replace(&mut self.slots, slots));
        Ok(rows)
    }

    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        _split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        if self.slots.len() != keys.len() {
            return Err(BackendError::Order("a push must follow the pull of its keys"));
        }
        self.name.seq += 1;
        let (floats, shards) = (self.shards.schema().write_floats(write), self.shards.schema().shards);
        for (range, row) in push_parts(keys, PART_KEYS, shards) {
            self.name.row = row;
            let (keys, slots) = (&keys[range.clone()], &mut self.slots[range.clone()]);
            let values = &rows.values[range.start * floats..range.end * floats];
            let applied = self.shards.push(&self.name, write, keys, Some(slots), values)?;
            self.not_finite += u64::from(applied.not_finite);
            self.not_admitted += u64::from(applied.not_admitted);
        }
        if let Some((evictor, begun)) = &mut self.evictor {
            let evicted = evictor.slice(&mut self.shards, begun.elapsed());
            self.evicted += evicted.after + evicted.below + evicted.capacity;
        }
        self.pushes += 1;
        self.spare.push(rows);
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        let dim = self.shards.schema().weights();
        for (keys, weights) in keys.chunks(PART_KEYS).zip(weights.chunks_mut(PART_KEYS * dim)) {
            self.shards.pull(keys, Read::Weights, weights, None)?;
        }
        Ok(())
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for shard in self.shards.set().clone().iter() {
            let mut from = Some(0);
            while let Some(at) = from {
                keys.clear();
                rows.clear();
                from = self.shards.scan(shard, at, PAGE_ROWS, &mut keys, &mut rows);
                if !keys.is_empty() {
                    page(&keys, &rows);
                }
            }
        }
        Ok(())
    }

    fn restore(&mut self, keys: &[u64], rows: &[f32]) -> Result<(), BackendError> {
        let Schema { shards, .. } = *self.shards.schema();
        let floats = self.shards.schema().floats();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&at| shard_of(hash(keys[at]), shards));
        for part in order.chunks(PART_KEYS) {
            let keys: Vec<u64> = part.iter().map(|&at| keys[at]).collect();
            let rows: Vec<f32> =
                part.iter().flat_map(|&at| &rows[at * floats..][..floats]).copied().collect();
            (self.name.seq, self.name.row) = (self.name.seq + 1, 0);
            let applied = self.shards.push(&self.name, Write::Row, &keys, None, &rows)?;
            if applied.not_finite > 0 {
                return Err(BackendError::Schema(format!(
                    "{} rows of the model cannot be rows of this rule",
                    applied.not_finite
                )));
            }
        }
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.shards.stats())
    }

    fn local_stats(&self) -> Option<Stats> {
        Some(self.shards.stats())
    }
}

impl TrainedRows for Embedded {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        self.not_finite
    }

    fn not_admitted(&self) -> u64 {
        self.not_admitted
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }
}
