//! The columns on servers, which a worker pulls and pushes.

use crate::backend::error::BackendError;
use crate::lbfgs::local::{cell, cell_rows};
use crate::lbfgs::{Columns, CommandCell, Layout};
use gannet_core::{Program, Read, Segments, Stats, Vectors, Write};
use gannet_transport::Net;
use gannet_wire::ShardedKeys;
use gannet_worker::{PullId, TableId, Worker};
use std::sync::Arc;

/// Both tables of a worker.
pub struct RemoteColumns<N: Net> {
    worker: Worker<N>,
    layout: Layout,
    vectors: TableId,
    cells: TableId,
    /// The keys of the latest pull, and its id. Its keyset replaces the keys in the next push.
    cut: Arc<ShardedKeys>,
    pulled: Option<PullId>,
}

impl<N: Net> RemoteColumns<N> {
    /// Opens (or creates) the tables, and runs an empty program at every shard. From then on the shards refuse
    /// messages of earlier incarnations of this worker.
    ///
    /// # Errors
    /// A table exists with another schema, or the servers are lost.
    pub fn open(mut worker: Worker<N>, layout: Layout) -> Result<RemoteColumns<N>, BackendError> {
        // The examples of all workers and the sums of programs follow the shards of the layout.
        let vectors = worker.open_table_exactly(&layout.schema())?;
        let cells = worker.open_table_exactly(&Layout::cells())?;
        worker.run_program(vectors, &Program::default())?;
        Ok(RemoteColumns { worker, layout, vectors, cells, cut: Arc::default(), pulled: None })
    }

    /// The worker behind the columns.
    pub fn worker(&mut self) -> &mut Worker<N> {
        &mut self.worker
    }

    /// The id of the table of the columns at the worker.
    pub fn table(&self) -> TableId {
        self.vectors
    }

    /// Tells the servers that this worker will push no more.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn close(&mut self) -> Result<(), BackendError> {
        self.worker.close_pusher(self.vectors)?;
        Ok(self.worker.close_pusher(self.cells)?)
    }

    fn cut(&mut self, keys: &[u64]) -> Arc<ShardedKeys> {
        if self.cut.keys() != keys {
            self.cut = Arc::new(self.worker.cut(self.vectors, keys));
            self.pulled = None;
        }
        self.cut.clone()
    }

    fn seq(&self, table: TableId, pass: u64) -> u64 {
        self.worker.next_seq(table).max(Vectors::first_seq(pass))
    }
}

impl<N: Net> Columns for RemoteColumns<N> {
    fn transport(&self) -> String {
        self.worker.transport()
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn pull(&mut self, segment: usize, keys: &[u64], rows: &mut Vec<f32>) -> Result<(), BackendError> {
        let (cut, values) = (self.cut(keys), std::mem::take(rows));
        let segments = Segments::only(&[segment]);
        let id = self.worker.begin_pull_segments(self.vectors, cut, Read::State, segments, values, true)?;
        *rows = self.worker.finish_pull(id)?.values;
        self.pulled = Some(id);
        Ok(())
    }

    fn add(&mut self, pass: u64, keys: &[u64], values: Vec<f32>) -> Result<(), BackendError> {
        let (cut, seq) = (self.cut(keys), self.seq(self.vectors, pass));
        let pulled = self.pulled.take();
        let id = self.worker.begin_push(self.vectors, cut, Write::Sum, values, pulled, seq)?;
        Ok(self.worker.finish_push(id)?)
    }

    fn run(&mut self, program: &Program) -> Result<Vec<f64>, BackendError> {
        Ok(self.worker.run_program(self.vectors, program)?)
    }

    fn read_cells(&mut self, keys: &[u64]) -> Result<Vec<CommandCell>, BackendError> {
        let mut rows = vec![0.0; keys.len() * 4];
        self.worker.pull_segments(self.cells, keys, Read::State, Segments::only(&[0]), &mut rows)?;
        Ok(rows.chunks_exact(4).map(cell).collect())
    }

    fn write_cells(&mut self, command_id: u64, cells: &[(u64, f64)]) -> Result<(), BackendError> {
        let (keys, values) = cell_rows(cells);
        let (cut, seq) = (Arc::new(self.worker.cut(self.cells, &keys)), self.seq(self.cells, command_id));
        let mut rows = self.worker.spare();
        cut.rows_by_shard(&values, 2, &mut rows);
        let id = self.worker.begin_push(self.cells, cut, Write::Sum, rows, None, seq)?;
        Ok(self.worker.finish_push(id)?)
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        Ok(self.worker.scan(self.vectors, page)?)
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.worker.status(self.vectors)?.stats)
    }
}
