//! A worker's table on the servers. A pull keeps its keyset at the server, so that the push after it sends no keys.

use crate::backend::error::BackendError;
use crate::backend::worker_rows::{AtServers, WorkerRows};
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use crate::limits::DEPTH_MAX;
use gannet_core::{Read, Schema, Segments, Stats, Write};
use gannet_transport::Net;
use gannet_wire::{ShardedKeys, SyncConfig};
use gannet_worker::{CacheConfig, Counters, PullId, RowCache, SharePlace, TableId, WireType, Worker};
use std::collections::VecDeque;
use std::sync::Arc;

/// One table of a worker.
pub struct RemoteBackend<N: Net> {
    at: WorkerRows<N>,
    table: TableId,
    schema: Schema,
    depth: usize,
    in_flight: VecDeque<(PullId, Arc<ShardedKeys>)>,
    pushes: u64,
    /// Pulls begun.
    pulls: u64,
    /// The servers' rows count their pushes. `schema` does not include that count.
    damped: bool,
    /// No other worker changes the rows.
    alone: bool,
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
        worker: Worker<N>,
        schema: &Schema,
        depth: usize,
        damped: bool,
    ) -> Result<RemoteBackend<N>, BackendError> {
        assert!(depth <= DEPTH_MAX, "depth {depth}: at most {DEPTH_MAX} batches are pulled ahead");
        let mut at = WorkerRows::new(worker);
        let stored = if damped { schema.counting() } else { schema.clone() };
        Ok(RemoteBackend {
            table: at.open(&stored, 4 * (DEPTH_MAX + 1))?,
            at,
            schema: schema.clone(),
            depth,
            in_flight: VecDeque::new(),
            pushes: 0,
            pulls: 0,
            damped,
            alone: false,
            spare_runs: Vec::new(),
        })
    }

    /// Trains a fixed share of the data from a place on. Its pushes have the names of the share's batches, so that a
    /// checkpoint says which batches it has. Call it before the first pull.
    pub fn train_share(&mut self, share: SharePlace) {
        self.at.share = Some(share);
    }

    /// Starts to keep step with other workers. A step is a pull and the push after it. The mode may limit how many
    /// batches are pulled ahead. Call it before the first pull.
    ///
    /// # Errors
    /// As [`Worker::join`].
    pub fn join(&mut self, sync: SyncConfig) -> Result<(), BackendError> {
        self.at.sync = Some(sync);
        self.at.join()?;
        self.depth = self.depth.min(usize::try_from(sync.mode.ahead_max()).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Ends keeping step, when all pushes have been applied. No worker waits for this one any longer.
    ///
    /// # Errors
    /// As [`Worker::leave`].
    pub fn leave(&mut self) -> Result<(), BackendError> {
        self.at.leave()
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
        Ok(self.at.worker.cache_rows(self.table, rows)?)
    }

    /// Says how weights and gradients travel. Call it before the first pull.
    ///
    /// # Errors
    /// As [`Worker::set_wire_type`].
    pub fn set_wire_type(&mut self, wire: WireType) -> Result<(), BackendError> {
        Ok(self.at.worker.set_wire_type(self.table, wire)?)
    }

    /// The worker behind this table.
    pub fn worker(&mut self) -> &mut Worker<N> {
        &mut self.at.worker
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
        self.at.worker.read_path_choice(self.table, true).share == 1.0
    }

    fn is_damped(&self) -> bool {
        self.damped
    }

    fn is_alone(&self) -> bool {
        self.alone
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let cut = self.at.tables[0].cuts.cut(&self.at.worker, self.table, keys)?;
        if !cut.is_as_given() {
            return Err(BackendError::Order("keys of a pull must be in shard order"));
        }
        let values = self.at.worker.spare();
        let (read, ahead) = ((read, Segments::ALL), self.pulls - self.pushes);
        let id = self.at.worker.begin_pull_ahead(self.table, cut.clone(), read, values, true, ahead)?;
        self.pulls += 1;
        self.in_flight.push_back((id, cut));
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        let (id, cut) = self.in_flight.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        let pulled = self.at.worker.finish_pull(id)?;
        let mut saw = self.spare_runs.pop().unwrap_or_default();
        saw.clear();
        let base = self.at.tables[0].base;
        for range in &pulled.saw {
            let pushes = range.seq.saturating_sub(base);
            match saw.last_mut() {
                Some(last) if last.1 == pushes => last.0 = range.rows.end,
                _ => saw.push((range.rows.end, pushes)),
            }
        }
        self.at.tables[0].finished = Some((id, cut));
        Ok(PulledRows { values: pulled.values, saw })
    }

    fn forget_pull(&mut self, rows: PulledRows) -> Result<(), BackendError> {
        let table = &mut self.at.tables[0];
        let (_, cut) = table.finished.take().ok_or(BackendError::Order("no pull was finished"))?;
        self.pulls -= 1;
        self.spare_runs.push(rows.saw);
        table.cuts.keep(cut);
        Ok(())
    }

    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let table = &mut self.at.tables[0];
        let (base, joined) = (table.base, table.joined);
        let (id, cut) =
            table.finished.take().ok_or(BackendError::Order("a push must follow a finished pull"))?;
        if cut.keys().len() != keys.len() {
            return Err(BackendError::Order("a push must have the keys of its pull"));
        }
        self.pushes += 1;
        let seq = base + self.pushes;
        let (name, values) = (self.at.push_name(split, self.pushes), rows.values);
        self.at.worker.begin_push_named(self.table, cut.clone(), write, values, Some(id), (seq, name))?;
        if joined {
            self.at.worker.tick(self.table)?;
        }
        self.spare_runs.push(rows.saw);
        self.at.tables[0].cuts.keep(cut);
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        let own = if self.damped { Segments::only(&[0]) } else { Segments::ALL };
        Ok(self.at.worker.pull_segments(self.table, keys, Read::Weights, own, weights)?)
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        if !self.damped {
            return Ok(self.at.worker.scan(self.table, page)?);
        }
        let (own, mut rows) = (self.schema.floats(), Vec::new());
        Ok(self.at.worker.scan(self.table, &mut |keys: &[u64], counted: &[f32]| {
            rows.clear();
            counted.chunks_exact(own + 1).for_each(|row| rows.extend_from_slice(&row[..own]));
            page(keys, &rows);
        })?)
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.at.worker.status(self.table)?.stats)
    }

    fn take_late(&mut self, late: &mut Vec<u64>) {
        self.at.take_late(0, late);
    }

    fn counters(&self) -> Option<Counters> {
        Some(self.at.worker.counters())
    }
}

impl<N: Net> AtServers for RemoteBackend<N> {
    type Net = N;

    fn at_servers(&self) -> &WorkerRows<N> {
        &self.at
    }

    fn at_servers_mut(&mut self) -> &mut WorkerRows<N> {
        &mut self.at
    }
}
