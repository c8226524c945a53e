//! The tables of a worker at servers: what logistic regression ([`RemoteBackend`](crate::RemoteBackend)) and the models
//! ([`RemoteTables`](crate::RemoteTables)) share of them. Both pull and push in ways of their own.

use crate::backend::cut_pool::CutPool;
use crate::backend::error::BackendError;
use crate::backend::tables::TableIndex;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::InSplit;
use gannet_core::Schema;
use gannet_transport::Net;
use gannet_wire::{ShardedKeys, SyncConfig};
use gannet_worker::{DataName, PullId, SharePlace, TableId, Worker};
use std::sync::Arc;

/// A worker and its open tables.
pub struct WorkerRows<N: Net> {
    pub(crate) worker: Worker<N>,
    pub(crate) tables: Vec<WorkerTable>,
    /// How this worker keeps step with others, also while it rests.
    pub(crate) sync: Option<SyncConfig>,
    /// Where this worker goes on in its fixed share.
    pub(crate) share: Option<SharePlace>,
}

/// A table of a worker.
pub(crate) struct WorkerTable {
    pub id: TableId,
    pub schema: Schema,
    /// The pull finished last and not yet pushed to.
    pub finished: Option<(PullId, Arc<ShardedKeys>)>,
    pub cuts: CutPool,
    /// The number of the worker's last push before this run, at this table.
    pub base: u64,
    /// This worker keeps step with others at this table.
    pub joined: bool,
}

impl<N: Net> WorkerRows<N> {
    /// No tables yet, and nobody to keep step with.
    pub(crate) fn new(worker: Worker<N>) -> WorkerRows<N> {
        WorkerRows { worker, tables: Vec::new(), sync: None, share: None }
    }

    /// Opens (or creates) a table, which keeps `cuts` buffers of keys for reuse.
    ///
    /// # Errors
    /// The table exists with another schema, or the servers are lost.
    pub(crate) fn open(&mut self, schema: &Schema, cuts: usize) -> Result<TableId, BackendError> {
        let id = self.worker.open_table(schema)?;
        let (schema, base) = (schema.clone(), self.worker.next_seq(id) - 1);
        let (finished, cuts, joined) = (None, CutPool::new(cuts), false);
        self.tables.push(WorkerTable { id, schema, finished, cuts, base, joined });
        Ok(id)
    }

    /// Starts to keep step at all tables, if there is somebody to keep step with.
    ///
    /// # Errors
    /// As [`Worker::join_all`].
    pub(crate) fn join(&mut self) -> Result<(), BackendError> {
        if let Some(sync) = self.sync {
            let ids: Vec<TableId> = self.tables.iter().map(|table| table.id).collect();
            self.worker.join_all(&ids, sync)?;
            self.tables.iter_mut().for_each(|table| table.joined = true);
        }
        Ok(())
    }

    /// Ends keeping step, when all pushes have been applied.
    ///
    /// # Errors
    /// As [`Worker::leave`].
    pub(crate) fn leave(&mut self) -> Result<(), BackendError> {
        for table in &mut self.tables {
            if std::mem::take(&mut table.joined) {
                self.worker.leave(table.id)?;
            }
        }
        Ok(self.worker.drain()?)
    }

    /// The name of the push that ends the step `clock` of the data: of a batch of a split, or of a fixed share.
    #[inline]
    pub(crate) fn push_name(&self, split: Option<&InSplit>, clock: u64) -> Option<DataName> {
        let name = split.map(|split| {
            let (pusher, incarnation) = split.name;
            DataName { pusher, incarnation, seq: split.seq, clock }
        });
        name.or_else(|| self.share.map(|share| share.name(clock)))
    }

    /// Appends the numbers, from 0, of a table's late pushes since the last call.
    pub(crate) fn take_late(&mut self, table: TableIndex, late: &mut Vec<u64>) {
        let WorkerTable { id, base, .. } = self.tables[table];
        late.extend(self.worker.take_late(id).into_iter().map(|seq| seq - base - 1));
    }
}

/// Rows at servers.
pub trait AtServers {
    /// The transport.
    type Net: Net;

    /// The worker and its tables.
    fn at_servers(&self) -> &WorkerRows<Self::Net>;

    /// The worker and its tables, to change.
    fn at_servers_mut(&mut self) -> &mut WorkerRows<Self::Net>;
}

impl<T: AtServers> TrainedRows for T {
    fn transport(&self) -> String {
        self.at_servers().worker.transport()
    }

    fn batches_before(&self) -> u64 {
        self.at_servers().share.map_or(0, |share| share.batches())
    }

    fn stay_in_touch(&mut self) -> Result<(), BackendError> {
        self.at_servers_mut().worker.poll()?;
        Ok(())
    }

    fn forget_split(&mut self, split: &InSplit) -> Result<(), BackendError> {
        let (pusher, incarnation) = split.name;
        let WorkerRows { worker, tables, .. } = self.at_servers_mut();
        tables.iter().try_for_each(|table| Ok(worker.close_data(table.id, pusher, incarnation)?))
    }

    fn rest(&mut self) -> Result<(), BackendError> {
        self.at_servers_mut().leave()
    }

    fn resume(&mut self) -> Result<(), BackendError> {
        let rows = self.at_servers_mut();
        if rows.tables.iter().all(|table| table.joined) { Ok(()) } else { rows.join() }
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(self.at_servers_mut().worker.drain()?)
    }

    fn pulls_by_staleness(&self) -> Vec<u64> {
        self.at_servers().worker.shared_counters().pulls_by_staleness()
    }

    fn may_be_late(&self) -> bool {
        let WorkerRows { tables, sync, .. } = self.at_servers();
        tables.iter().any(|table| table.joined) && sync.is_some_and(|sync| sync.mode.is_bsp())
    }

    fn late_rows(&self) -> u64 {
        self.at_servers().worker.counters().late_rows
    }

    fn not_finite(&self) -> u64 {
        self.at_servers().worker.counters().not_finite
    }

    fn not_admitted(&self) -> u64 {
        self.at_servers().worker.counters().not_admitted
    }

    fn refused(&self) -> u64 {
        self.at_servers().worker.counters().refused
    }
}
