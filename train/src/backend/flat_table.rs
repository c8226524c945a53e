//! A table for one process that both owns and trains it. Each key is next to its row in one array of 16-byte cells,
//! or 32-byte cells where the rule stores more than two floats. Replay learns the rows in place, without pulls and
//! pushes. With gradients, pulls and pushes read and step the rows in place. The table is lost when the process ends;
//! a scan writes the model.
//!
//! Measured against the shards (docs/benchmarks.md): one cache miss a feature instead of two and a copy each way.

use crate::backend::cells::{AHEAD, Cells};
use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use crate::learn::kernel::{Kernel, KernelWork};
use crate::learn::lr::{ExampleLanes, ExampleTarget, ReplayRule};
use crate::read::block::Block;
use gannet_core::{Admission, INTERCEPT_KEY, Read, Schema, Stats, Write, init_row};
use gannet_optim::{GradientTransform, Rule, Update, Visitor, all_finite};

/// Rows of one page of a scan.
const PAGE_ROWS: usize = 1 << 13;

/// Cells for rows of up to two floats, or of up to six.
enum FlatCells {
    Narrow(Cells<[f32; 2]>),
    Wide(Cells<[f32; 6]>),
}

/// Runs the same code on either kind of cells.
macro_rules! on {
    ($table:expr, $cells:ident => $body:expr) => {
        match $table {
            FlatCells::Narrow($cells) => $body,
            FlatCells::Wide($cells) => $body,
        }
    };
}

/// A table of one weight a row in this process. Replay learns its rows [in place](Backend::in_place).
pub struct FlatTable {
    schema: Schema,
    table: FlatCells,
    /// The learner for updates in place. `None` where the table takes gradients.
    kernel: Option<Kernel>,
    /// The places of one example's features (replay), or of the keys pulled last (gradients).
    places: Vec<u32>,
    /// The rows of the pull that is not finished.
    pulled: Option<PulledRows>,
    spare: PulledRows,
    /// Pushes so far, for the schedule of the learning rate.
    pushes: u64,
    /// Rows of pushes that were dropped because they were not finite.
    not_finite: u64,
}

/// The row that this key has before its first push.
struct InitialRow(u64);

impl Visitor for InitialRow {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![0.0; U::floats(1)];
        init_row(rule, self.0, &[0.0], &mut row);
        row
    }
}

/// An empty table. `None` if a row is longer than a cell.
fn cells<const W: usize>(rule: &Rule, memory_limit: u64) -> Option<Cells<[f32; W]>> {
    let fresh = |key| {
        let (mut row, fresh) = ([0.0; W], rule.visit(InitialRow(key)));
        row.get_mut(..fresh.len())?.copy_from_slice(&fresh);
        Some(row)
    };
    let mut cells = Cells::new(fresh(0)?, memory_limit);
    cells.begin_intercept(fresh(INTERCEPT_KEY)?);
    Some(cells)
}

impl FlatTable {
    fn sizes(&self) -> Stats {
        let (rows, bytes) = on!(&self.table, cells => (cells.len(), cells.bytes()));
        Stats { rows, bytes, shards: self.schema.shards }
    }

    /// An empty table of this schema. Its initial weights are zero.
    ///
    /// # Errors
    /// The schema is not sound, not one weight a row with initial value zero, or does not admit every key.
    pub fn new(schema: &Schema) -> Result<FlatTable, BackendError> {
        FlatTable::within(schema, u64::MAX)
    }

    /// [`new`](Self::new) with a table of at most `memory_limit` bytes, also while it grows.
    ///
    /// # Errors
    /// As for `new`.
    pub fn within(schema: &Schema, memory_limit: u64) -> Result<FlatTable, BackendError> {
        schema.check().map_err(gannet_core::OpenError::from)?;
        let unfit = |what| BackendError::Schema(format!("table {:?}: {what}", schema.name));
        if schema.weights() != 1 || schema.init != gannet_core::Init::Zero {
            return Err(unfit("a table in this process has one weight a row, at first 0"));
        }
        if schema.admission != Admission::All {
            return Err(unfit(
                "a table in this process admits every key; keep it in shards (Embedded) to admit fewer",
            ));
        }
        let kernel = Kernel::of(&schema.rule).filter(|_| schema.replays());
        let narrow = cells(&schema.rule, memory_limit).map(FlatCells::Narrow);
        let table = narrow.or_else(|| cells(&schema.rule, memory_limit).map(FlatCells::Wide));
        let table = table.ok_or_else(|| unfit("a table in this process has at most six floats a row"))?;
        Ok(FlatTable {
            schema: schema.clone(),
            table,
            kernel,
            places: Vec::new(),
            pulled: None,
            spare: PulledRows::default(),
            pushes: 0,
            not_finite: 0,
        })
    }

    /// Predicts and learns each example of a block. No example has a key twice. `margins` gets each example's margin,
    /// predicted before the example was learned.
    ///
    /// # Errors
    /// The table is full, or its rule cannot replay.
    pub(crate) fn learn(&mut self, block: &Block, margins: &mut Vec<f32>) -> Result<(), BackendError> {
        let FlatTable { table, kernel, places, .. } = self;
        match (kernel, table) {
            (Some(kernel), FlatCells::Narrow(cells)) => kernel.run(InPlace { block, cells, places, margins }),
            _ => Err(BackendError::Order("this rule learns by gradients, not in place")),
        }
    }
}

/// Learns directly on the table's rows.
struct InPlace<'a> {
    block: &'a Block,
    cells: &'a mut Cells<[f32; 2]>,
    places: &'a mut Vec<u32>,
    margins: &'a mut Vec<f32>,
}

impl KernelWork for InPlace<'_> {
    type Out = Result<(), BackendError>;

    fn run<const P: usize, L: ReplayRule<P>>(self, rule: L, scratch: &mut ExampleLanes<P>) -> Self::Out {
        let InPlace { block, cells, places, margins } = self;
        margins.clear();
        block.keys.iter().take(AHEAD).for_each(|&key| cells.prefetch(key));
        for i in 0..block.len() {
            let range = block.range(i);
            let ahead = block.keys.get(range.start + AHEAD..).unwrap_or_default();
            ahead.iter().take(range.len()).for_each(|&key| cells.prefetch(key));
            cells.reserve(range.len())?;
            places.clear();
            places.extend(block.keys[range.clone()].iter().map(|&key| cells.place(key)));
            margins.push(scratch.example(
                rule,
                ExampleTarget::of(block, i),
                places,
                &block.values[range],
                cells,
            ));
        }
        Ok(())
    }
}

/// Finds the rows of keys, creates missing ones, and reads their weights.
struct FindRows<'a, const W: usize> {
    cells: &'a mut Cells<[f32; W]>,
    keys: &'a [u64],
    places: &'a mut Vec<u32>,
    weights: &'a mut Vec<f32>,
}

impl<const W: usize> Visitor for FindRows<'_, W> {
    type Out = Result<(), BackendError>;

    fn run<U: Update>(self, rule: U) -> Self::Out {
        let FindRows { cells, keys, places, weights } = self;
        cells.reserve(keys.len())?;
        places.clear();
        weights.clear();
        keys.iter().take(AHEAD).for_each(|&key| cells.prefetch(key));
        for (i, &key) in keys.iter().enumerate() {
            if let Some(&ahead) = keys.get(i + AHEAD) {
                cells.prefetch(ahead);
            }
            let at = cells.place(key);
            let mut weight = [0.0];
            rule.weights(&cells.at(at)[..U::floats(1)], &mut weight);
            places.push(at);
            weights.push(weight[0]);
        }
        Ok(())
    }
}

/// Steps the rows at these places along their gradients. Returns how many rows it left unchanged because they would
/// have become NaN or infinite.
struct StepRows<'a, const W: usize> {
    cells: &'a mut Cells<[f32; W]>,
    places: &'a [u32],
    gradients: &'a [f32],
    shaping: GradientTransform,
}

impl<const W: usize> Visitor for StepRows<'_, W> {
    type Out = u64;

    fn run<U: Update>(self, rule: U) -> u64 {
        let (mut not_finite, shapes) = (0, self.shaping.changes_gradients());
        for (&at, &pushed) in self.places.iter().zip(self.gradients) {
            let row = &mut self.cells.at_mut(at)[..U::floats(1)];
            let mut next = [0.0; W];
            let next = &mut next[..U::floats(1)];
            next.copy_from_slice(row);
            let mut gradient = [pushed];
            if shapes {
                self.shaping.gradient(&row[..1], &[pushed], &mut gradient);
            }
            rule.update(next, &gradient);
            if pushed.is_finite() && all_finite(next) && rule.is_sound_free(next) {
                row.copy_from_slice(next);
            } else {
                not_finite += 1;
            }
        }
        not_finite
    }
}

/// Reads the weights of keys. A key without a row has the weight of a new row.
struct ReadWeights<'a, const W: usize> {
    cells: &'a Cells<[f32; W]>,
    keys: &'a [u64],
    weights: &'a mut [f32],
}

impl<const W: usize> Visitor for ReadWeights<'_, W> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        for (&key, weight) in self.keys.iter().zip(self.weights) {
            let row = self.cells.find(key).map_or(self.cells.fresh(), |at| self.cells.at(at));
            rule.weights(&row[..U::floats(1)], std::slice::from_mut(weight));
        }
    }
}

impl Backend for FlatTable {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        0
    }

    fn in_place(&mut self) -> Option<&mut FlatTable> {
        self.kernel.is_some().then_some(self)
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let keys = keys.keys;
        if read != Read::Weights || self.pulled.is_some() {
            return Err(BackendError::Order("these rows are pulled as weights, a batch at a time"));
        }
        let mut rows = std::mem::take(&mut self.spare);
        let (places, weights) = (&mut self.places, &mut rows.values);
        on!(&mut self.table, cells => self.schema.rule.visit(FindRows { cells, keys, places, weights }))?;
        self.pulled = Some(rows);
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        self.pulled.take().ok_or(BackendError::Order("no pull was begun"))
    }

    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        _split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        if write != Write::Gradient || self.places.len() != keys.len() {
            return Err(BackendError::Order("a push must carry the gradients of the rows pulled last"));
        }
        self.pushes += 1;
        let (places, gradients, shaping) = (&self.places[..], &rows.values[..], self.schema.shaping);
        let rule = self.schema.rule.at_rate(shaping.schedule.factor(self.pushes));
        self.not_finite +=
            on!(&mut self.table, cells => rule.visit(StepRows { cells, places, gradients, shaping }));
        self.spare = rows;
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        on!(&self.table, cells => self.schema.rule.visit(ReadWeights { cells, keys, weights }));
        Ok(())
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let floats = self.schema.floats();
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        on!(&self.table, cells => {
            for (key, row) in cells.all() {
                keys.push(key);
                rows.extend_from_slice(&row[..floats]);
                if keys.len() == PAGE_ROWS {
                    page(&keys, &rows);
                    keys.clear();
                    rows.clear();
                }
            }
        });
        if !keys.is_empty() {
            page(&keys, &rows);
        }
        Ok(())
    }

    fn restore(&mut self, keys: &[u64], rows: &[f32]) -> Result<(), BackendError> {
        let floats = self.schema.floats();
        on!(&mut self.table, cells => {
            cells.reserve(keys.len())?;
            for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
                let at = cells.place(key);
                cells.at_mut(at)[..floats].copy_from_slice(row);
            }
        });
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(self.sizes())
    }

    fn local_stats(&self) -> Option<Stats> {
        Some(self.sizes())
    }
}

impl TrainedRows for FlatTable {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        self.not_finite + self.kernel.as_ref().map_or(0, Kernel::not_finite)
    }
}
