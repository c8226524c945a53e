//! The columns in this process: its shards are called directly.

use crate::backend::embedded::of_run;
use crate::backend::error::BackendError;
use crate::lbfgs::{Columns, CommandCell, Layout};
use gannet_core::{Program, PushName, Read, Segments, Shards, Stats, Store, Vectors, Write, push_parts};
use gannet_optim::lbfgs::{Sum, join, split};
use gannet_server::open_whole;
use gannet_wire::RunId;

/// Keys of one call to the shards.
const PART_KEYS: usize = 1 << 15;
/// Rows of one page of a scan.
const PAGE_ROWS: usize = 1 << 12;
/// The number of the one pusher.
const PUSHER: u64 = 1;

/// A table, and the name of the latest push to it.
struct LocalTable {
    shards: Shards,
    name: PushName,
}

impl LocalTable {
    fn open(store: &Store, schema: &gannet_core::Schema) -> Result<LocalTable, BackendError> {
        let shards = open_whole(store, schema)?;
        // An existing image may know this pusher. The new incarnation fences the earlier ones.
        let known = shards.pushers().into_iter().find(|p| p.pusher == PUSHER);
        let incarnation = known.map_or(1, |p| p.incarnation + 1);
        Ok(LocalTable { shards, name: PushName { pusher: PUSHER, incarnation, seq: 0, row: 0 } })
    }

    fn next_name(&mut self, pass: u64) -> PushName {
        self.name.seq = (self.name.seq + 1).max(Vectors::first_seq(pass));
        self.name
    }

    fn add(&mut self, pass: u64, keys: &[u64], values: &[f32]) -> Result<(), BackendError> {
        let name = self.next_name(pass);
        for (range, row) in push_parts(keys, PART_KEYS, self.shards.schema().shards) {
            let values = &values[2 * range.start..2 * range.end];
            self.shards.push(&PushName { row, ..name }, Write::Sum, &keys[range], None, values)?;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), BackendError> {
        self.shards.close_pusher(self.name.pusher, self.name.incarnation)?;
        Ok(self.shards.mark_clean()?)
    }
}

/// Both tables, in one store.
pub struct LocalColumns {
    layout: Layout,
    vectors: LocalTable,
    cells: LocalTable,
}

impl LocalColumns {
    /// Opens (or creates) the tables.
    ///
    /// # Errors
    /// The images cannot be opened.
    pub fn open(store: &Store, layout: Layout) -> Result<LocalColumns, BackendError> {
        LocalColumns::open_in(None, store, layout)
    }

    /// [`open`](Self::open) for a run, whose name is a prefix of the tables' names.
    ///
    /// # Errors
    /// The images cannot be opened.
    pub fn open_in(run: Option<&RunId>, store: &Store, layout: Layout) -> Result<LocalColumns, BackendError> {
        let open = |schema| LocalTable::open(store, &of_run(run, &schema));
        let (vectors, cells) = (open(layout.schema())?, open(Layout::cells())?);
        Ok(LocalColumns { layout, vectors, cells })
    }

    /// Writes every image to its medium and marks it as closed cleanly.
    ///
    /// # Errors
    /// The system could not write.
    pub fn close(self) -> Result<(), BackendError> {
        self.vectors.close()?;
        self.cells.close()
    }
}

impl Columns for LocalColumns {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn pull(&mut self, segment: usize, keys: &[u64], rows: &mut Vec<f32>) -> Result<(), BackendError> {
        let (shards, segments) = (&mut self.vectors.shards, Segments::only(&[segment]));
        let floats = shards.schema().read_floats_of(Read::State, segments)?;
        rows.resize(keys.len() * floats, 0.0);
        for (keys, rows) in keys.chunks(PART_KEYS).zip(rows.chunks_mut(PART_KEYS * floats)) {
            shards.pull_segments(keys, Read::State, segments, rows, None)?;
        }
        Ok(())
    }

    fn add(&mut self, pass: u64, keys: &[u64], values: Vec<f32>) -> Result<(), BackendError> {
        self.vectors.add(pass, keys, &values)
    }

    fn run(&mut self, program: &Program) -> Result<Vec<f64>, BackendError> {
        let name = self.vectors.next_name(program.pass);
        let mut sums = vec![Sum::default(); program.sums.len()];
        for shard in self.vectors.shards.set().clone().iter() {
            let own = self.vectors.shards.run_program(shard, &name, program)?;
            sums.iter_mut().zip(own).for_each(|(all, sum)| all.add(sum));
        }
        Ok(sums.iter().map(Sum::value).collect())
    }

    fn read_cells(&mut self, keys: &[u64]) -> Result<Vec<CommandCell>, BackendError> {
        let mut rows = vec![0.0; keys.len() * 4];
        self.cells.shards.pull_segments(keys, Read::State, Segments::only(&[0]), &mut rows, None)?;
        Ok(rows.chunks_exact(4).map(cell).collect())
    }

    fn write_cells(&mut self, command_id: u64, cells: &[(u64, f64)]) -> Result<(), BackendError> {
        let (keys, values) = cell_rows(cells);
        self.cells.add(command_id, &keys, &values)
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let (shards, mut keys, mut rows) = (&mut self.vectors.shards, Vec::new(), Vec::new());
        for shard in shards.set().clone().iter() {
            let mut from = Some(0);
            while let Some(at) = from {
                keys.clear();
                rows.clear();
                from = shards.scan(shard, at, PAGE_ROWS, &mut keys, &mut rows);
                if !keys.is_empty() {
                    page(&keys, &rows);
                }
            }
        }
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.vectors.shards.stats())
    }
}

/// A cell from the floats of its row.
pub(super) fn cell(row: &[f32]) -> CommandCell {
    match *row {
        [a, b, c, d] => CommandCell { command_id: join([a, b]) as u64, value: join([c, d]) },
        _ => CommandCell::default(),
    }
}

/// Keys and values of cells, as the table takes them.
pub(super) fn cell_rows(cells: &[(u64, f64)]) -> (Vec<u64>, Vec<f32>) {
    (cells.iter().map(|cell| cell.0).collect(), cells.iter().flat_map(|cell| split(cell.1)).collect())
}
