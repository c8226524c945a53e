//! A worker's table on the servers. A pull keeps its keyset at the server, so that the push after it sends no keys.

use crate::backend::cut_pool::CutPool;
use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use crate::limits::DEPTH_MAX;
use gannet_core::{Read, Schema, Segments, Stats, Write};
use gannet_transport::Net;
use gannet_wire::{ShardedKeys, SyncConfig};
use gannet_worker::{
    CacheConfig, Counters, DataName, PullId, RowCache, SharePlace, TableId, WireType, Worker,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// One table of a worker.
pub struct RemoteBackend<N: Net> {
    worker: Worker<N>,
    table: TableId,
    schema: Schema,
    depth: usize,
    in_flight: VecDeque<(PullId, Arc<ShardedKeys>)>,
    /// The pull finished last and not yet pushed.
    finished: Option<(PullId, Arc<ShardedKeys>)>,
    cuts: CutPool,
    /// The number of the worker's last push before this run, at this table.
    base: u64,
    pushes: u64,
    /// Pulls begun.
    pulls: u64,
    /// The servers' rows count their pushes. `schema` does not include that count.
    damped: bool,
    /// No other worker changes the rows.
    alone: bool,
    /// This worker keeps step with others.
    joined: bool,
    /// How this worker keeps step, also while it rests.
    sync: Option<SyncConfig>,
    /// Where this worker goes on in its fixed share.
    share: Option<SharePlace>,
    spare_runs: Vec<Vec<(u32, u64)>>,
}

impl<N: Net> RemoteBackend<N> {
    /// Opens (or creates) the table. It pulls `depth` batches ahead of the one that is learned.
    ///
    /// # Errors
    /// The table exists with another schema, or the servers are lost.
    ///
    /// # Panics
    /// When `depth` is above [`DEPTH_MAX`].
    pub fn open(worker: Worker<N>, schema: &Schema, depth: usize) -> Result<RemoteBackend<N>, BackendError> {
        RemoteBackend::open_as(worker, schema, depth, false)
    }

    /// [`open`](Self::open) for damped replay ([`Write::Damped`]): the pushes of other workers damp the changes of
    /// state. The table at the servers is the [counting](Schema::counting) one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn open_damped(
        worker: Worker<N>,
        schema: &Schema,
        depth: usize,
    ) -> Result<RemoteBackend<N>, BackendError> {
        RemoteBackend::open_as(worker, schema, depth, true)
    }

    /// [`open`](Self::open) for a table that no other worker changes. It pulls no batch ahead, and replay pushes rows
    /// as a whole. So the rows get the same bits as those of a [`FlatTable`](crate::FlatTable).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_alone(worker: Worker<N>, schema: &Schema) -> Result<RemoteBackend<N>, BackendError> {
        let backend = RemoteBackend::open_as(worker, schema, 0, false)?;
        Ok(RemoteBackend { alone: true, ..backend })
    }

    fn open_as(
        mut worker: Worker<N>,
        schema: &Schema,
        depth: usize,
        damped: bool,
    ) -> Result<RemoteBackend<N>, BackendError> {
        assert!(depth <= DEPTH_MAX, "depth {depth}: at most {DEPTH_MAX} batches are pulled ahead");
        let table = match damped {
            true => worker.open_table(&schema.counting())?,
            false => worker.open_table(schema)?,
        };
        let base = worker.next_seq(table) - 1;
        Ok(RemoteBackend {
            worker,
            table,
            schema: schema.clone(),
            depth,
            in_flight: VecDeque::new(),
            finished: None,
            cuts: CutPool::new(4 * (DEPTH_MAX + 1)),
            base,
            pushes: 0,
            pulls: 0,
            damped,
            alone: false,
            joined: false,
            sync: None,
            share: None,
            spare_runs: Vec::new(),
        })
    }

    /// Trains a fixed share of the data from a place on. Its pushes have the names of the share's batches, so that a
    /// checkpoint says which batches it has. Call it before the first pull.
    pub fn train_share(&mut self, share: SharePlace) {
        self.share = Some(share);
    }

    /// Starts to keep step with other workers. A step is a pull and the push after it. The mode may limit how many
    /// batches are pulled ahead. Call it before the first pull.
    ///
    /// # Errors
    /// As [`Worker::join`].
    pub fn join(&mut self, sync: SyncConfig) -> Result<(), BackendError> {
        self.worker.join(self.table, sync)?;
        (self.joined, self.sync) = (true, Some(sync));
        self.depth = self.depth.min(usize::try_from(sync.mode.ahead_max()).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Ends keeping step, when all pushes have been applied. No worker waits for this one any longer.
    ///
    /// # Errors
    /// As [`Worker::leave`].
    pub fn leave(&mut self) -> Result<(), BackendError> {
        self.joined = false;
        Ok(self.worker.leave(self.table)?)
    }

    /// Caches rows in this process, in the form that `read` returns, so that fewer pulls go to the servers. Call it
    /// before the first pull.
    ///
    /// # Errors
    /// As [`RowCache::new`] and [`Worker::cache_rows`]; or the table is damped.
    pub fn cache(&mut self, read: Read, config: CacheConfig) -> Result<(), BackendError> {
        if self.damped {
            return Err(BackendError::Order(
                "rows of a damped table cannot be cached: only the servers know what a damped push makes of a row",
            ));
        }
        let rows = Arc::new(RowCache::new(&self.schema, read, config)?);
        Ok(self.worker.cache_rows(self.table, rows)?)
    }

    /// Says how weights and gradients travel. Call it before the first pull.
    ///
    /// # Errors
    /// As [`Worker::set_wire_type`].
    pub fn set_wire_type(&mut self, wire: WireType) -> Result<(), BackendError> {
        Ok(self.worker.set_wire_type(self.table, wire)?)
    }

    /// The worker behind this table.
    pub fn worker(&mut self) -> &mut Worker<N> {
        &mut self.worker
    }

    /// The table's id at the worker.
    pub fn table(&self) -> TableId {
        self.table
    }
}

impl<N: Net> Backend for RemoteBackend<N> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn reads_all(&self) -> bool {
        self.worker.read_path_choice(self.table, true).share == 1.0
    }

    fn is_damped(&self) -> bool {
        self.damped
    }

    fn is_alone(&self) -> bool {
        self.alone
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let cut = self.cuts.cut(&self.worker, self.table, keys)?;
        if !cut.is_as_given() {
            return Err(BackendError::Order("keys of a pull must be in shard order"));
        }
        let values = self.worker.spare();
        let (read, ahead) = ((read, Segments::ALL), self.pulls - self.pushes);
        let id = self.worker.begin_pull_ahead(self.table, cut.clone(), read, values, true, ahead)?;
        self.pulls += 1;
        self.in_flight.push_back((id, cut));
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        let (id, cut) = self.in_flight.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        let pulled = self.worker.finish_pull(id)?;
        let mut saw = self.spare_runs.pop().unwrap_or_default();
        saw.clear();
        for range in &pulled.saw {
            let pushes = range.seq.saturating_sub(self.base);
            match saw.last_mut() {
                Some(last) if last.1 == pushes => last.0 = range.rows.end,
                _ => saw.push((range.rows.end, pushes)),
            }
        }
        self.finished = Some((id, cut));
        Ok(PulledRows { values: pulled.values, saw })
    }

    fn forget_pull(&mut self, rows: PulledRows) -> Result<(), BackendError> {
        let (_, cut) = self.finished.take().ok_or(BackendError::Order("no pull was finished"))?;
        self.pulls -= 1;
        self.spare_runs.push(rows.saw);
        self.cuts.keep(cut);
        Ok(())
    }

    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let (id, cut) =
            self.finished.take().ok_or(BackendError::Order("a push must follow a finished pull"))?;
        if cut.keys().len() != keys.len() {
            return Err(BackendError::Order("a push must have the keys of its pull"));
        }
        self.pushes += 1;
        let seq = self.base + self.pushes;
        let name = split.map(|split| {
            let (pusher, incarnation) = split.name;
            DataName { pusher, incarnation, seq: split.seq, clock: self.pushes }
        });
        let name = name.or_else(|| self.share.map(|share| share.name(self.pushes)));
        let values = rows.values;
        self.worker.begin_push_named(self.table, cut.clone(), write, values, Some(id), (seq, name))?;
        if self.joined {
            self.worker.tick(self.table)?;
        }
        self.spare_runs.push(rows.saw);
        self.cuts.keep(cut);
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        let own = if self.damped { Segments::only(&[0]) } else { Segments::ALL };
        Ok(self.worker.pull_segments(self.table, keys, Read::Weights, own, weights)?)
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        if !self.damped {
            return Ok(self.worker.scan(self.table, page)?);
        }
        let (own, mut rows) = (self.schema.floats(), Vec::new());
        Ok(self.worker.scan(self.table, &mut |keys: &[u64], counted: &[f32]| {
            rows.clear();
            counted.chunks_exact(own + 1).for_each(|row| rows.extend_from_slice(&row[..own]));
            page(keys, &rows);
        })?)
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.worker.status(self.table)?.stats)
    }

    fn take_late(&mut self, late: &mut Vec<u64>) {
        late.extend(self.worker.take_late(self.table).into_iter().map(|seq| seq - self.base - 1));
    }

    fn counters(&self) -> Option<Counters> {
        Some(self.worker.counters())
    }
}

impl<N: Net> TrainedRows for RemoteBackend<N> {
    fn transport(&self) -> String {
        self.worker.transport()
    }

    fn rest(&mut self) -> Result<(), BackendError> {
        if self.joined { self.leave() } else { Ok(()) }
    }

    fn resume(&mut self) -> Result<(), BackendError> {
        match self.sync {
            Some(sync) if !self.joined => self.join(sync),
            _ => Ok(()),
        }
    }

    fn batches_before(&self) -> u64 {
        self.share.map_or(0, |share| share.batches())
    }

    fn stay_in_touch(&mut self) -> Result<(), BackendError> {
        self.worker.poll()?;
        Ok(())
    }

    fn forget_split(&mut self, split: &InSplit) -> Result<(), BackendError> {
        let (pusher, incarnation) = split.name;
        Ok(self.worker.close_data(self.table, pusher, incarnation)?)
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(self.worker.drain()?)
    }

    fn pulls_by_staleness(&self) -> Vec<u64> {
        self.worker.shared_counters().pulls_by_staleness()
    }

    fn may_be_late(&self) -> bool {
        self.joined && self.sync.is_some_and(|sync| sync.mode.is_bsp())
    }

    fn late_rows(&self) -> u64 {
        self.worker.counters().late_rows
    }

    fn not_finite(&self) -> u64 {
        self.worker.counters().not_finite
    }

    fn not_admitted(&self) -> u64 {
        self.worker.counters().not_admitted
    }
}
