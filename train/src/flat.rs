//! A table laid out for one process that both owns and trains it: key and row side by side in one array of 16-byte cells,
//! learned where they are, without pulls and pushes. It lives and dies with the process; a model is written from a scan.
//!
//! Measured against the shards (docs/benchmarks.md): one cache miss a feature instead of two and a copy each way.

use crate::backend::{Backend, BackendError, Rows};
use crate::block::{Block, INTERCEPT_KEY};
use crate::limits::FLAT_CELLS_MAX;
use crate::lr::{Learner, Places, Scratch};
use gannet_core::{hash, prefetch};
use gannet_node::optim::{AdaGrad, Ftrl, Rule, Sgd, Update, Visitor};
use gannet_node::{Schema, Stats};

/// Features between the one that is asked for and the one that is looked up.
const AHEAD: usize = 128;
/// Cells of an empty table.
const CELLS_MIN: usize = 1 << 12;
/// The key of an empty cell. It is the intercept's, whose row has a cell of its own behind the others.
const EMPTY: u64 = INTERCEPT_KEY;

#[derive(Clone, Copy)]
struct Cell {
    key: u64,
    row: [f32; 2],
}

const EMPTY_CELL: Cell = Cell { key: EMPTY, row: [0.0; 2] };
const _: () = assert!(size_of::<Cell>() == 16);

/// Cells in the order of their keys' hashes (a key's home is its hash's share of the length), probed forwards; then as many
/// spare cells as the longest overhang takes, and the intercept's.
struct Cells {
    cells: Vec<Cell>,
    /// Homes: cells before the spare ones.
    homes: usize,
    filled: usize,
    intercept: bool,
    fresh: [f32; 2],
}

impl<const P: usize> Places<P> for Cells {
    #[inline(always)]
    fn row(&self, at: u32) -> [f32; P] {
        let row = &self.cells[at as usize].row;
        std::array::from_fn(|p| row[p])
    }

    #[inline(always)]
    fn set(&mut self, at: u32, row: [f32; P]) {
        self.cells[at as usize].row[..P].copy_from_slice(&row);
    }
}

impl Cells {
    fn new(homes: usize, fresh: [f32; 2]) -> Cells {
        // The last cell is the intercept's; the one before it stays empty, so that every search ends.
        let mut cells = vec![EMPTY_CELL; homes + homes / 64 + 66];
        if let Some(last) = cells.last_mut() {
            last.row = fresh;
        }
        Cells { cells, homes, filled: 0, intercept: false, fresh }
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        ((u128::from(hash(key)) * self.homes as u128) >> 64) as usize
    }

    #[inline(always)]
    fn ask_for(&self, key: u64) {
        if let Some(cell) = self.cells.get(self.home(key)) {
            prefetch((cell as *const Cell).cast());
        }
    }

    /// Where the key is; `None` when it has no row.
    #[inline(always)]
    fn find(&self, key: u64) -> Option<u32> {
        if key == INTERCEPT_KEY {
            return self.intercept.then_some(self.cells.len() as u32 - 1);
        }
        let mut at = self.home(key);
        loop {
            let found = self.cells[at].key;
            if found == key {
                return Some(at as u32);
            }
            if found == EMPTY {
                return None;
            }
            at += 1;
        }
    }

    /// Where the key is, made if it was not there; the caller has made [`room`](Self::room).
    #[inline(always)]
    fn place(&mut self, key: u64) -> u32 {
        if key == INTERCEPT_KEY {
            self.intercept = true;
            return self.cells.len() as u32 - 1;
        }
        let mut at = self.home(key);
        loop {
            let cell = &mut self.cells[at];
            if cell.key == key {
                return at as u32;
            }
            if cell.key == EMPTY {
                *cell = Cell { key, row: self.fresh };
                self.filled += 1;
                return at as u32;
            }
            at += 1;
        }
    }

    /// Whether `more` keys fit: at most three quarters of the homes filled, and the overhang's last cells free.
    #[inline(always)]
    fn has_room(&self, more: usize) -> bool {
        let spare_end = self.cells.len() - 2;
        (self.filled + more) * 4 <= self.homes * 3 && self.cells[spare_end.saturating_sub(more)].key == EMPTY
    }

    /// Makes room for `more` keys: half as many homes again, until they fit.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        let mut homes = self.homes;
        loop {
            homes += homes / 2;
            assert!(
                homes <= FLAT_CELLS_MAX,
                "{homes} cells of the table in this process: {FLAT_CELLS_MAX} is the limit"
            );
            let mut larger = Cells::new(homes, self.fresh);
            // Ascending by hash, so that both arrays are gone through once, forwards.
            let (last, cells) = self.cells.split_last().unwrap_or((&EMPTY_CELL, &[]));
            for cell in cells.iter().filter(|cell| cell.key != EMPTY) {
                let at = larger.place(cell.key);
                larger.cells[at as usize] = *cell;
            }
            if let Some(intercept) = larger.cells.last_mut() {
                *intercept = *last;
            }
            larger.intercept = self.intercept;
            if larger.has_room(more) {
                *self = larger;
                return;
            }
        }
    }

    /// Every key with its row.
    fn all(&self) -> impl Iterator<Item = (u64, [f32; 2])> {
        let end = self.cells.len() - usize::from(!self.intercept);
        let last = self.cells.len() - 1;
        let cells = self.cells[..end].iter().enumerate();
        cells.filter(move |&(at, cell)| cell.key != EMPTY || at == last).map(|(_, cell)| (cell.key, cell.row))
    }
}

enum Kernel {
    Ftrl(Ftrl, Scratch<2>),
    AdaGrad(AdaGrad, Scratch<2>),
    Sgd(Sgd, Scratch<1>),
}

/// A table of one weight a row in this process. As a [`Backend`] its rows are learned [in place](Backend::in_place).
pub struct Flat {
    schema: Schema,
    cells: Cells,
    kernel: Kernel,
    places: Vec<u32>,
}

/// The row that a key has before its first push.
struct Fresh;

impl Visitor for Fresh {
    type Out = [f32; 2];
    fn run<U: Update>(self, rule: U) -> [f32; 2] {
        let mut row = [0.0; 2];
        rule.init(&[0.0], &mut row[..U::PLANES]);
        row
    }
}

impl Flat {
    /// An empty table of this schema; its initial weights are zero.
    ///
    /// # Errors
    /// The schema is not sound, or not one weight a row with initial value zero and one of the rules FTRL, AdaGrad, SGD.
    pub fn new(schema: &Schema) -> Result<Flat, BackendError> {
        schema.check().map_err(gannet_core::OpenError::from)?;
        let unfit = |what| Err(BackendError::Schema(format!("table {:?}: {what}", schema.name)));
        if schema.dim != 1 || schema.init != gannet_node::Init::Zero {
            return unfit("a table in this process has one weight a row, at first 0");
        }
        let kernel = match schema.rule {
            Rule::Ftrl(rule) => Kernel::Ftrl(rule, Scratch::new()),
            Rule::AdaGrad(rule) => Kernel::AdaGrad(rule, Scratch::new()),
            Rule::Sgd(rule) => Kernel::Sgd(rule, Scratch::new()),
            _ => return unfit("logistic regression needs ftrl, adagrad or sgd"),
        };
        let cells = Cells::new(CELLS_MIN, schema.rule.visit(Fresh));
        Ok(Flat { schema: schema.clone(), cells, kernel, places: Vec::new() })
    }

    /// Predicts and learns each example of a block, none of which has a key twice; `margins` gets their margins,
    /// predicted before each was learned.
    pub(crate) fn learn(&mut self, block: &Block, margins: &mut Vec<f32>) {
        let Flat { cells, kernel, places, .. } = self;
        match kernel {
            Kernel::Ftrl(rule, scratch) => learn(*rule, scratch, block, cells, places, margins),
            Kernel::AdaGrad(rule, scratch) => learn(*rule, scratch, block, cells, places, margins),
            Kernel::Sgd(rule, scratch) => learn(*rule, scratch, block, cells, places, margins),
        }
    }

    /// Rows.
    fn len(&self) -> u64 {
        self.cells.filled as u64 + u64::from(self.cells.intercept)
    }
}

fn learn<const P: usize, L: Learner<P>>(
    rule: L,
    scratch: &mut Scratch<P>,
    block: &Block,
    cells: &mut Cells,
    places: &mut Vec<u32>,
    margins: &mut Vec<f32>,
) {
    margins.clear();
    block.keys.iter().take(AHEAD).for_each(|&key| cells.ask_for(key));
    for (i, &label) in block.labels.iter().enumerate() {
        let range = block.range(i);
        let ahead = block.keys.get(range.start + AHEAD..).unwrap_or_default();
        ahead.iter().take(range.len()).for_each(|&key| cells.ask_for(key));
        if !cells.has_room(range.len()) {
            cells.grow(range.len());
        }
        places.clear();
        places.extend(block.keys[range.clone()].iter().map(|&key| cells.place(key)));
        margins.push(scratch.example(rule, label, places, &block.values[range], cells));
    }
}

impl Backend for Flat {
    fn transport(&self) -> &'static str {
        "embedded"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        0
    }

    fn in_place(&mut self) -> Option<&mut Flat> {
        Some(self)
    }

    fn begin_pull(&mut self, _: &[u64]) -> Result<(), BackendError> {
        Err(BackendError::Order("these rows are learned in place"))
    }

    fn finish_pull(&mut self) -> Result<Rows, BackendError> {
        Err(BackendError::Order("these rows are learned in place"))
    }

    fn push(&mut self, _: &[u64], _: Rows) -> Result<(), BackendError> {
        Err(BackendError::Order("these rows are learned in place"))
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        for (&key, weight) in keys.iter().zip(weights) {
            let row = self.cells.find(key).map_or(self.cells.fresh, |at| self.cells.cells[at as usize].row);
            *weight = match &self.kernel {
                Kernel::Ftrl(rule, _) => Learner::weight(rule, row),
                Kernel::AdaGrad(..) | Kernel::Sgd(..) => row[0],
            };
        }
        Ok(())
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let planes = self.schema.floats();
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for (key, row) in self.cells.all() {
            keys.push(key);
            rows.extend_from_slice(&row[..planes]);
            if keys.len() == 1 << 13 {
                page(&keys, &rows);
                keys.clear();
                rows.clear();
            }
        }
        if !keys.is_empty() {
            page(&keys, &rows);
        }
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        let bytes = (self.cells.cells.len() * size_of::<Cell>()) as u64;
        Ok(Stats { rows: self.len(), bytes, shards: self.schema.shards })
    }

    fn not_finite(&self) -> u64 {
        match &self.kernel {
            Kernel::Ftrl(_, scratch) | Kernel::AdaGrad(_, scratch) => scratch.not_finite,
            Kernel::Sgd(_, scratch) => scratch.not_finite,
        }
    }
}
