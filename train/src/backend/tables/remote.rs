//! A worker's tables on the servers. A pull keeps its keyset at the server, so that the push after it sends no keys.
//! Where workers keep step, each table has its clock, and the push to a table ends the table's step.

use super::{TableIndex, Tables, WeightTables};
use crate::backend::cut_pool::CutPool;
use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Read, Schema, Stats, Write};
use gannet_transport::Net;
use gannet_wire::{ShardedKeys, SyncConfig};
use gannet_worker::{DataName, PullId, SharePlace, TableId, WireType, Worker};
use std::collections::VecDeque;
use std::sync::Arc;

/// Buffers of keys that a table keeps for reuse.
const CUTS_KEPT: usize = 4;

/// Tables of a worker.
pub struct RemoteTables<N: Net> {
    worker: Worker<N>,
    tables: Vec<RemoteTable>,
    in_flight: VecDeque<(TableIndex, PullId, Arc<ShardedKeys>)>,
    /// How weights and gradients travel.
    wire: WireType,
    /// How it keeps step with other workers.
    sync: Option<SyncConfig>,
    /// Where this worker goes on in its fixed share.
    share: Option<SharePlace>,
}

struct RemoteTable {
    id: TableId,
    schema: Schema,
    /// The pull finished last and not yet pushed to.
    finished: Option<(PullId, Arc<ShardedKeys>)>,
    cuts: CutPool,
    /// The number of the worker's last push before this run, at this table.
    base: u64,
    /// This worker keeps step with others at this table.
    joined: bool,
}

impl<N: Net> RemoteTables<N> {
    /// The tables of this worker, without keeping step.
    pub fn new(worker: Worker<N>) -> RemoteTables<N> {
        let (tables, in_flight, wire) = (Vec::new(), VecDeque::new(), WireType::default());
        RemoteTables { worker, tables, in_flight, wire, sync: None, share: None }
    }

    /// Says how weights and gradients of the tables that are opened from now on travel.
    pub fn set_wire_type(&mut self, wire: WireType) {
        self.wire = wire;
    }

    /// Sets how to keep step with others. It starts with [`join`](Tables::join), over the tables that are open then.
    pub fn keep_step(&mut self, sync: SyncConfig) {
        self.sync = Some(sync);
    }

    /// Trains a fixed share of the data from a place on. Its pushes have the names of the share's batches, so that a
    /// checkpoint says which batches it has. Call it before the first pull.
    pub fn train_share(&mut self, share: SharePlace) {
        self.share = Some(share);
    }

    /// The worker behind these tables.
    pub fn worker(&mut self) -> &mut Worker<N> {
        &mut self.worker
    }

    /// The table's id at the worker.
    ///
    /// # Panics
    /// When no table of this number was opened.
    pub fn id(&self, table: TableIndex) -> TableId {
        self.tables[table].id
    }

    /// Tells the servers that this worker will push no more, after all its pushes have been acknowledged.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    pub fn close_pusher(&mut self) -> Result<(), BackendError> {
        // Other processes check the first table, so it is closed last.
        for table in self.tables.iter().rev() {
            self.worker.close_pusher(table.id)?;
        }
        Ok(())
    }
}

impl<N: Net> WeightTables for RemoteTables<N> {
    fn schema(&self, table: TableIndex) -> &Schema {
        &self.tables[table].schema
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        let RemoteTable { id, schema, .. } = &self.tables[table];
        out.resize(keys.len() * schema.weights(), 0.0);
        Ok(self.worker.pull(*id, keys, Read::Weights, out)?)
    }
}

impl<N: Net> Tables for RemoteTables<N> {
    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError> {
        if let Some(number) = self.tables.iter().position(|remote| remote.schema == *schema) {
            return Ok(number);
        }
        let (id, schema) = (self.worker.open_table(schema)?, schema.clone());
        self.worker.set_wire_type(id, self.wire)?;
        let base = self.worker.next_seq(id) - 1;
        self.tables.push(RemoteTable {
            id,
            schema,
            finished: None,
            cuts: CutPool::new(CUTS_KEPT),
            base,
            joined: false,
        });
        Ok(self.tables.len() - 1)
    }

    fn join(&mut self) -> Result<(), BackendError> {
        if let Some(sync) = self.sync {
            let ids: Vec<TableId> = self.tables.iter().map(|table| table.id).collect();
            self.worker.join_all(&ids, sync)?;
            self.tables.iter_mut().for_each(|table| table.joined = true);
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), BackendError> {
        for table in &mut self.tables {
            if std::mem::take(&mut table.joined) {
                self.worker.leave(table.id)?;
            }
        }
        self.drain()
    }

    fn begin_pull(&mut self, table: TableIndex, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let RemoteTable { id, cuts, .. } = &mut self.tables[table];
        let (id, cut) = (*id, cuts.cut(&self.worker, *id, keys)?);
        let values = self.worker.spare();
        let id = self.worker.begin_pull(id, cut.clone(), read, values, true)?;
        self.in_flight.push_back((table, id, cut));
        Ok(())
    }

    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError> {
        let (table, id, cut) = self.in_flight.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        let rows = self.worker.finish_pull(id)?.values;
        if cut.is_as_given() {
            *out = rows;
        } else {
            out.resize(rows.len(), 0.0);
            cut.rows_as_given(&rows, rows.len() / cut.keys().len(), out);
        }
        self.tables[table].finished = Some((id, cut));
        Ok(())
    }

    fn push(
        &mut self,
        table: TableIndex,
        values: &mut Vec<f32>,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let remote = &mut self.tables[table];
        let (id, cut) =
            remote.finished.take().ok_or(BackendError::Order("a push must follow a finished pull"))?;
        let rows = if cut.is_as_given() {
            std::mem::take(values)
        } else {
            let mut rows = self.worker.spare();
            cut.rows_by_shard(values, values.len() / cut.keys().len(), &mut rows);
            rows
        };
        let seq = self.worker.next_seq(remote.id);
        let name = split.map(|split| {
            let (pusher, incarnation) = split.name;
            DataName { pusher, incarnation, seq: split.seq, clock: seq - remote.base }
        });
        let name = name.or_else(|| self.share.map(|share| share.name(seq - remote.base)));
        self.worker.begin_push_named(remote.id, cut.clone(), write, rows, Some(id), (seq, name))?;
        if remote.joined {
            // At once: the next push, to another table, may wait until this push is applied.
            self.worker.tick(remote.id)?;
        }
        remote.cuts.keep(cut);
        Ok(())
    }

    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        Ok(self.worker.scan(self.tables[table].id, page)?)
    }

    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError> {
        Ok(self.worker.status(self.tables[table].id)?.stats)
    }

    fn take_late(&mut self, table: TableIndex, late: &mut Vec<u64>) {
        let RemoteTable { id, base, .. } = self.tables[table];
        late.extend(self.worker.take_late(id).into_iter().map(|seq| seq - base - 1));
    }
}

impl<N: Net> TrainedRows for RemoteTables<N> {
    fn transport(&self) -> String {
        self.worker.transport()
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
        let mut ids = self.tables.iter().map(|table| table.id);
        ids.try_for_each(|id| Ok(self.worker.close_data(id, pusher, incarnation)?))
    }

    fn rest(&mut self) -> Result<(), BackendError> {
        self.leave()
    }

    fn resume(&mut self) -> Result<(), BackendError> {
        if self.tables.iter().all(|table| table.joined) { Ok(()) } else { self.join() }
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(self.worker.drain()?)
    }

    fn pulls_by_staleness(&self) -> Vec<u64> {
        self.worker.shared_counters().pulls_by_staleness()
    }

    fn may_be_late(&self) -> bool {
        let joined = self.tables.iter().any(|table| table.joined);
        joined && self.sync.is_some_and(|sync| sync.mode.is_bsp())
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
