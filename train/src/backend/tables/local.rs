//! The tables of one process: it owns all shards, in memory or in a data folder, and calls them directly.

use super::{TableIndex, Tables, WeightTables};
use crate::backend::embedded::Embedded;
use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Eviction, Read, Schema, Stats, Store, Write, hash, shard_of};
use gannet_wire::RunId;
use std::collections::VecDeque;

/// Tables whose shards this process owns.
pub struct LocalTables {
    store: Store,
    run: Option<RunId>,
    pusher: u64,
    /// The least incarnation of the pusher.
    least: u64,
    tables: Vec<Local>,
    /// The table whose rows may die, by name.
    evicts: Option<(String, Eviction)>,
    /// The tables of the pulls in flight, each with the order of its keys.
    begun: VecDeque<(TableIndex, ShardOrder)>,
    spare: Vec<ShardOrder>,
}

struct Local {
    table: Embedded,
    /// The keys of the pull finished last, until their push.
    pulled: Option<ShardOrder>,
    rows: PulledRows,
}

/// The keys of a pull in shard order, and the caller's index of each.
#[derive(Default)]
struct ShardOrder {
    keys: Vec<u64>,
    /// Empty when the caller's keys were in shard order.
    from: Vec<u32>,
}

impl ShardOrder {
    fn fill(&mut self, BatchKeys { keys, starts, .. }: BatchKeys<'_>, shards: u32) {
        let shard = |&key: &u64| shard_of(hash(key), shards);
        self.from.clear();
        self.keys.clear();
        // Wrong starts do no harm: the shards refuse keys that are not in shard order.
        if starts.is_none() && !keys.is_sorted_by_key(shard) {
            self.from.extend(0..keys.len() as u32);
            self.from.sort_by_key(|&at| shard(&keys[at as usize]));
            self.keys.extend(self.from.iter().map(|&at| keys[at as usize]));
        } else {
            self.keys.extend_from_slice(keys);
        }
    }

    /// Moves rows in shard order into `out`, in the caller's order.
    fn back(&self, rows: &mut Vec<f32>, out: &mut Vec<f32>) {
        if self.from.is_empty() {
            return std::mem::swap(rows, out);
        }
        out.resize(rows.len(), 0.0);
        let floats = rows.len() / self.from.len();
        for (row, &at) in rows.chunks_exact(floats).zip(&self.from) {
            out[at as usize * floats..][..floats].copy_from_slice(row);
        }
    }

    /// Moves values in the caller's order into `rows`, in shard order.
    fn forth(&self, values: &mut Vec<f32>, rows: &mut Vec<f32>) {
        if self.from.is_empty() {
            return std::mem::swap(rows, values);
        }
        let floats = values.len() / self.from.len();
        rows.clear();
        for &at in &self.from {
            rows.extend_from_slice(&values[at as usize * floats..][..floats]);
        }
    }
}

impl LocalTables {
    /// Tables in `store`. `pusher` is the number of this worker.
    pub fn new(store: Store, pusher: u64) -> LocalTables {
        LocalTables::of_run(store, None, pusher)
    }

    /// [`new`](Self::new) for a run, whose name is a prefix of the tables' names.
    pub fn of_run(store: Store, run: Option<RunId>, pusher: u64) -> LocalTables {
        LocalTables {
            store,
            run,
            pusher,
            least: 1,
            tables: Vec::new(),
            evicts: None,
            begun: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Tables that are opened from now on have at least this incarnation of the worker. A training that goes on from a
    /// saved model needs another one than the training before, if its rows have weights of 2 bytes: a push's name
    /// decides how its steps are rounded.
    pub fn with_incarnation(self, least: u64) -> LocalTables {
        LocalTables { least, ..self }
    }

    /// Rows of the table of this name die as these settings say, if it is opened from now on.
    pub fn evicting(self, table: &str, eviction: Eviction) -> LocalTables {
        LocalTables { evicts: Some((table.to_owned(), eviction)), ..self }
    }

    /// Writes every image to its medium and marks it as closed cleanly.
    ///
    /// # Errors
    /// The system could not write.
    pub fn close(self) -> Result<(), BackendError> {
        self.tables.into_iter().try_for_each(|local| local.table.close())
    }
}

impl WeightTables for LocalTables {
    fn schema(&self, table: TableIndex) -> &Schema {
        self.tables[table].table.schema()
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        let table = &mut self.tables[table].table;
        out.resize(keys.len() * table.schema().weights(), 0.0);
        table.weights(keys, out)
    }
}

impl Tables for LocalTables {
    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError> {
        if let Some(number) = self.tables.iter().position(|local| local.table.schema() == schema) {
            return Ok(number);
        }
        let mut table = Embedded::open_in(self.run.as_ref(), &self.store, schema, (self.pusher, self.least))?;
        if let Some((_, eviction)) = self.evicts.as_ref().filter(|(name, _)| *name == schema.name) {
            table.evict(*eviction)?;
        }
        self.tables.push(Local { table, pulled: None, rows: PulledRows::default() });
        Ok(self.tables.len() - 1)
    }

    fn begin_pull(&mut self, table: TableIndex, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let backend = &mut self.tables[table].table;
        let mut order = self.spare.pop().unwrap_or_default();
        order.fill(keys, backend.schema().shards);
        backend.begin_pull(BatchKeys::unsorted(&order.keys), read)?;
        self.begun.push_back((table, order));
        Ok(())
    }

    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError> {
        let (table, order) = self.begun.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        let local = &mut self.tables[table];
        local.rows = local.table.finish_pull()?;
        order.back(&mut local.rows.values, out);
        self.spare.extend(local.pulled.replace(order));
        Ok(())
    }

    fn push(
        &mut self,
        table: TableIndex,
        values: &mut Vec<f32>,
        write: Write,
        _split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let local = &mut self.tables[table];
        let order = local.pulled.take().ok_or(BackendError::Order("a push must follow a finished pull"))?;
        let mut rows = std::mem::take(&mut local.rows);
        order.forth(values, &mut rows.values);
        local.table.push(&order.keys, rows, write, None)?;
        self.spare.push(order);
        Ok(())
    }

    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        self.tables[table].table.scan(page)
    }

    fn restore(&mut self, table: TableIndex, keys: &[u64], rows: &[f32]) -> Result<(), BackendError> {
        self.tables[table].table.restore(keys, rows)
    }

    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError> {
        self.tables[table].table.stats()
    }
}

impl TrainedRows for LocalTables {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        self.tables.iter().map(|local| local.table.not_finite()).sum()
    }

    fn not_admitted(&self) -> u64 {
        self.tables.iter().map(|local| local.table.not_admitted()).sum()
    }

    fn evicted(&self) -> u64 {
        self.tables.iter().map(|local| local.table.evicted()).sum()
    }
}
