//! The rows of a saved model that a job on servers starts from, and the table that says whether all of them are there.
//!
//! One worker, the chief, puts them there before any worker trains. First it writes a row that names the model, then
//! the model's rows, and then that all are there. If it dies in between, the next chief puts all of them again, and
//! nobody has trained. Before that it has the servers refuse what earlier chiefs still send: they must not overwrite
//! rows that are trained by then. A chief puts rows as a pusher of its own, so it does not move the clock of its steps.

use crate::backend::error::BackendError;
use crate::backend::norm_table::{choice, chosen};
use crate::learn::report::{StartRows, rows_of_others};
use gannet_core::{Read, Schema, Write};
use gannet_optim::{Add, Rule};
use gannet_transport::Net;
use gannet_worker::{TableId, Worker, WorkerConfig, WorkerError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The pusher of rows that a job starts from. No worker has this number, and no client.
const PUTTER: u64 = u32::MAX as u64;

/// The key of the row that names the model.
const MODEL: u64 = 0;

/// The key of the row that says that all rows are there.
const ALL: u64 = 1;

/// Floats of both rows: those of a name.
const FLOATS: usize = 4;

/// Rows of a push.
const ROWS: usize = 4096;

/// The name of the table beside that of a model.
pub fn start_table(model: &str) -> String {
    format!("{model}-start")
}

/// One shard has all its rows.
fn start_schema(model: &str) -> Schema {
    Schema { dim: FLOATS as u32, shards: 1, ..Schema::scalar(&start_table(model), Rule::Add(Add)) }
}

/// The tables of a job that starts from a model, over connections of their own.
pub struct StartAtServers<N: Net> {
    worker: Worker<N>,
    tables: Vec<TableId>,
    start: TableId,
    /// The name of the model.
    model: u64,
}

impl<N: Net> StartAtServers<N> {
    /// Opens the tables of a model, which must be at least one, as this worker. `model` is the
    /// [name](StartRows::name) of the model.
    ///
    /// # Errors
    /// A table exists with another schema, or the servers are lost.
    pub fn connect(
        net: N,
        config: WorkerConfig,
        schemas: &[Schema],
        model: u64,
    ) -> Result<StartAtServers<N>, BackendError> {
        let mut worker = Worker::connect(net, config)?;
        let open = |schema| worker.open_table(schema);
        let tables = schemas.iter().map(open).collect::<Result<Vec<TableId>, WorkerError>>()?;
        let first = schemas.first().ok_or(BackendError::Order("a model has a table"))?;
        let start = worker.open_table_exactly(&start_schema(&first.name))?;
        Ok(StartAtServers { worker, tables, start, model })
    }

    /// [`connect`](Self::connect), as the chief that puts the rows. `config` is that of its worker.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_chief(
        net: N,
        config: WorkerConfig,
        schemas: &[Schema],
        model: u64,
    ) -> Result<StartAtServers<N>, BackendError> {
        StartAtServers::connect(net, WorkerConfig { pusher: PUTTER, ..config }, schemas, model)
    }

    /// Whether all rows are there.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn are_put(&mut self) -> Result<bool, BackendError> {
        Ok(self.named(ALL)?.is_some())
    }

    /// Checks that the rows in the tables are those of this model, as far as a chief has put them.
    ///
    /// # Errors
    /// They are others, or the servers are lost.
    pub fn check_rows(&mut self) -> Result<(), BackendError> {
        // A chief names the model first. So rows that are there before the name is read have one.
        let mut rows = 0;
        for &table in &self.tables {
            rows += self.worker.status(table)?.stats.rows;
        }
        let of = self.named(MODEL)?;
        match of {
            None if rows > 0 => Err(rows_of_others(rows)),
            Some(of) if of != self.model && !self.are_put()? => Err(BackendError::Schema(
                "--warm-start: the servers have a part of the rows of another model, because its chief died: start \
                 the job with that model, or with --fresh"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// The name in a row of the table.
    fn named(&mut self, key: u64) -> Result<Option<u64>, BackendError> {
        let mut row = [0.0; FLOATS];
        self.worker.pull(self.start, &[key], Read::State, &mut row)?;
        Ok(chosen(&row))
    }

    fn name(&mut self, key: u64) -> Result<(), BackendError> {
        Ok(self.worker.push(self.start, &[key], Write::Row, &choice(self.model))?)
    }

    /// Puts the rows into the tables, unless all are there already. `incarnation` is that of this chief. Returns how
    /// many it put. When `stop` is set it ends, and the rows are not all there.
    ///
    /// # Errors
    /// The rows cannot be read, or are none of the tables' rules; another chief has taken over; or the servers are
    /// lost.
    pub fn put(
        &mut self,
        rows: &dyn StartRows,
        incarnation: u64,
        stop: &AtomicBool,
    ) -> Result<Option<u64>, BackendError> {
        for table in self.tables.iter().chain([&self.start]) {
            self.worker.fence(*table, PUTTER, incarnation.saturating_sub(1))?;
        }
        // An earlier chief may have put the last rows before it was refused.
        self.check_rows()?;
        if self.are_put()? {
            return Ok(None);
        }
        self.name(MODEL)?;
        let mut count = 0;
        for (number, table) in self.tables.clone().into_iter().enumerate() {
            rows.rows(number, &mut |keys, rows| {
                count += keys.len() as u64;
                self.put_page(table, keys, rows, stop)
            })?;
        }
        self.worker.drain()?;
        let refused: u64 = self.tables.iter().map(|&table| self.worker.not_finite_rows(table)).sum();
        if refused > 0 {
            return Err(BackendError::Schema(format!(
                "--warm-start: {refused} rows of the model cannot be rows of this optimizer"
            )));
        }
        self.name(ALL)?;
        Ok(Some(count))
    }

    /// Begins to push a page of rows. Rows of a table that counts its pushes begin with none.
    fn put_page(
        &mut self,
        table: TableId,
        keys: &[u64],
        rows: &[f32],
        stop: &AtomicBool,
    ) -> Result<(), BackendError> {
        let schema = self.worker.schema(table);
        let stored = schema.write_floats(Write::Row);
        let own = stored - usize::from(schema.counts());
        for (keys, rows) in keys.chunks(ROWS).zip(rows.chunks(ROWS * own)) {
            if stop.load(Relaxed) {
                return Err(BackendError::Order("stopped by a signal while the rows of the model were put"));
            }
            let counted: Vec<f32> = match stored == own {
                true => rows.to_vec(),
                false => rows.chunks(own).flat_map(|row| row.iter().copied().chain([0.0])).collect(),
            };
            let cut = Arc::new(self.worker.cut(table, keys));
            let mut values = self.worker.spare();
            cut.rows_by_shard(&counted, stored, &mut values);
            let seq = self.worker.next_seq(table);
            self.worker.begin_push(table, cut, Write::Row, values, None, seq)?;
        }
        Ok(())
    }
}
