//! A worker's tables on the servers. A pull keeps its keyset at the server, so that the push after it sends no keys.
//! Where workers keep step, each table has its clock, and the push to a table ends the table's step.

use super::{TableIndex, Tables, WeightTables};
use crate::backend::error::BackendError;
use crate::backend::worker_rows::{AtServers, WorkerRows, WorkerTable};
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Read, Schema, Stats, Write};
use gannet_transport::Net;
use gannet_wire::{ShardedKeys, SyncConfig};
use gannet_worker::{PullId, SharePlace, TableId, WireType, Worker};
use std::collections::VecDeque;
use std::sync::Arc;

/// Buffers of keys that a table keeps for reuse.
const CUTS_KEPT: usize = 4;

/// Tables of a worker.
pub struct RemoteTables<N: Net> {
    at: WorkerRows<N>,
    in_flight: VecDeque<(TableIndex, PullId, Arc<ShardedKeys>)>,
    /// How weights and gradients travel.
    wire: WireType,
}

impl<N: Net> RemoteTables<N> {
    /// The tables of this worker, without keeping step.
    pub fn new(worker: Worker<N>) -> RemoteTables<N> {
        let (in_flight, wire) = (VecDeque::new(), WireType::default());
        RemoteTables { at: WorkerRows::new(worker), in_flight, wire }
    }

    /// Says how weights and gradients of the tables that are opened from now on travel.
    pub fn set_wire_type(&mut self, wire: WireType) {
        self.wire = wire;
    }

    /// Sets how to keep step with others. It starts with [`join`](Tables::join), over the tables that are open then.
    pub fn keep_step(&mut self, sync: SyncConfig) {
        self.at.sync = Some(sync);
    }

    /// Trains a fixed share of the data from a place on. Its pushes have the names of the share's batches, so that a
    /// checkpoint says which batches it has. Call it before the first pull.
    pub fn train_share(&mut self, share: SharePlace) {
        self.at.share = Some(share);
    }

    /// The worker behind these tables.
    pub fn worker(&mut self) -> &mut Worker<N> {
        &mut self.at.worker
    }

    /// The table's id at the worker.
    ///
    /// # Panics
    /// When no table of this number was opened.
    pub fn id(&self, table: TableIndex) -> TableId {
        self.at.tables[table].id
    }

    /// Tells the servers that this worker will push no more, after all its pushes have been acknowledged.
    ///
    /// # Errors
    /// A push was refused, or the servers are lost.
    pub fn close_pusher(&mut self) -> Result<(), BackendError> {
        // Other processes check the first table, so it is closed last.
        for table in self.at.tables.iter().rev() {
            self.at.worker.close_pusher(table.id)?;
        }
        Ok(())
    }
}

impl<N: Net> WeightTables for RemoteTables<N> {
    fn schema(&self, table: TableIndex) -> &Schema {
        &self.at.tables[table].schema
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        let WorkerTable { id, schema, .. } = &self.at.tables[table];
        out.resize(keys.len() * schema.weights(), 0.0);
        Ok(self.at.worker.pull(*id, keys, Read::Weights, out)?)
    }
}

impl<N: Net> Tables for RemoteTables<N> {
    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError> {
        if let Some(number) = self.at.tables.iter().position(|remote| remote.schema == *schema) {
            return Ok(number);
        }
        let id = self.at.open(schema, CUTS_KEPT)?;
        self.at.worker.set_wire_type(id, self.wire)?;
        Ok(self.at.tables.len() - 1)
    }

    fn join(&mut self) -> Result<(), BackendError> {
        self.at.join()
    }

    fn leave(&mut self) -> Result<(), BackendError> {
        self.at.leave()
    }

    fn begin_pull(&mut self, table: TableIndex, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let WorkerRows { worker, tables, .. } = &mut self.at;
        let WorkerTable { id, cuts, .. } = &mut tables[table];
        let (id, cut) = (*id, cuts.cut(worker, *id, keys)?);
        let values = worker.spare();
        let id = worker.begin_pull(id, cut.clone(), read, values, true)?;
        self.in_flight.push_back((table, id, cut));
        Ok(())
    }

    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError> {
        let (table, id, cut) = self.in_flight.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        let rows = self.at.worker.finish_pull(id)?.values;
        if cut.is_as_given() {
            *out = rows;
        } else {
            out.resize(rows.len(), 0.0);
            cut.rows_as_given(&rows, rows.len() / cut.keys().len(), out);
        }
        self.at.tables[table].finished = Some((id, cut));
        Ok(())
    }

    fn push(
        &mut self,
        table: TableIndex,
        values: &mut Vec<f32>,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let WorkerTable { id: to, base, joined, .. } = self.at.tables[table];
        let remote = &mut self.at.tables[table];
        let (id, cut) =
            remote.finished.take().ok_or(BackendError::Order("a push must follow a finished pull"))?;
        let rows = if cut.is_as_given() {
            std::mem::take(values)
        } else {
            let mut rows = self.at.worker.spare();
            cut.rows_by_shard(values, values.len() / cut.keys().len(), &mut rows);
            rows
        };
        let seq = self.at.worker.next_seq(to);
        let name = self.at.push_name(split, seq - base);
        self.at.worker.begin_push_named(to, cut.clone(), write, rows, Some(id), (seq, name))?;
        if joined {
            // At once: the next push, to another table, may wait until this push is applied.
            self.at.worker.tick(to)?;
        }
        self.at.tables[table].cuts.keep(cut);
        Ok(())
    }

    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        Ok(self.at.worker.scan(self.at.tables[table].id, page)?)
    }

    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError> {
        Ok(self.at.worker.status(self.at.tables[table].id)?.stats)
    }

    fn take_late(&mut self, table: TableIndex, late: &mut Vec<u64>) {
        self.at.take_late(table, late);
    }
}

impl<N: Net> AtServers for RemoteTables<N> {
    type Net = N;

    fn at_servers(&self) -> &WorkerRows<N> {
        &self.at
    }

    fn at_servers_mut(&mut self) -> &mut WorkerRows<N> {
        &mut self.at
    }
}
