//! A table laid out for one process that both owns and trains it: key and row side by side in one array of 16-byte cells,
//! learned where they are, without pulls and pushes. It lives and dies with the process; a model is written from a scan.
//!
//! Measured against the shards (docs/benchmarks.md): one cache miss a feature instead of two and a copy each way.

use crate::backend::{Backend, BackendError, Rows};
use crate::block::{Block, INTERCEPT_KEY};
use crate::limits::FLAT_CELLS_MAX;
use crate::lr::{Learner, Places, Scratch};
use gannet_node::optim::{AdaGrad, Ftrl, Rule, Sgd, Update, Visitor};
use gannet_node::{Schema, Stats};
use gannet_node::{hash, prefetch};

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

/// Cells in the order of their keys' hashes (a key's home is its hash's share of the length), probed forwards and around; the
/// last cell, behind them, is the intercept's.
struct Cells {
    cells: Vec<Cell>,
    /// Cells without the intercept's.
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
        let mut cells = vec![EMPTY_CELL; homes + 1];
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
            return self.intercept.then_some(self.homes as u32);
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
            at = if at + 1 == self.homes { 0 } else { at + 1 };
        }
    }

    /// Where the key is, made if it was not there; the caller has made [`room`](Self::room).
    #[inline(always)]
    fn place(&mut self, key: u64) -> u32 {
        if key == INTERCEPT_KEY {
            self.intercept = true;
            return self.homes as u32;
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
            at = if at + 1 == self.homes { 0 } else { at + 1 };
        }
    }

    /// Whether `more` keys fit: at most three quarters of the cells are filled, so that every search ends.
    #[inline(always)]
    fn has_room(&self, more: usize) -> bool {
        (self.filled + more) * 4 <= self.homes * 3
    }

    /// Makes room for `more` keys: half as many homes again, until they fit.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) -> Result<(), BackendError> {
        let mut homes = self.homes;
        while (self.filled + more) * 4 > homes * 3 {
            homes += homes / 2;
        }
        if homes > FLAT_CELLS_MAX {
            return Err(BackendError::Full { rows: self.filled as u64, limit: FLAT_CELLS_MAX as u64 });
        }
        let mut larger = Cells::new(homes, self.fresh);
        // Ascending by hash: both arrays are gone through once, forwards.
        let (cells, intercept) = self.cells.split_at(self.homes);
        for cell in cells.iter().filter(|cell| cell.key != EMPTY) {
            let at = larger.place(cell.key);
            larger.cells[at as usize] = *cell;
        }
        larger.cells[homes..].copy_from_slice(intercept);
        larger.intercept = self.intercept;
        *self = larger;
        Ok(())
    }

    /// Every key with its row.
    fn all(&self) -> impl Iterator<Item = (u64, [f32; 2])> {
        let (cells, intercept) = self.cells.split_at(self.homes);
        let intercept = intercept.iter().take(usize::from(self.intercept));
        cells.iter().filter(|cell| cell.key != EMPTY).chain(intercept).map(|cell| (cell.key, cell.row))
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
        schema.check().map_err(gannet_node::OpenError::from)?;
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
    ///
    /// # Errors
    /// The table has as many rows as it can have.
    pub(crate) fn learn(&mut self, block: &Block, margins: &mut Vec<f32>) -> Result<(), BackendError> {
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
) -> Result<(), BackendError> {
    margins.clear();
    block.keys.iter().take(AHEAD).for_each(|&key| cells.ask_for(key));
    for (i, &label) in block.labels.iter().enumerate() {
        let range = block.range(i);
        let ahead = block.keys.get(range.start + AHEAD..).unwrap_or_default();
        ahead.iter().take(range.len()).for_each(|&key| cells.ask_for(key));
        if !cells.has_room(range.len()) {
            cells.grow(range.len())?;
        }
        places.clear();
        places.extend(block.keys[range.clone()].iter().map(|&key| cells.place(key)));
        margins.push(scratch.example(rule, label, places, &block.values[range], cells));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Rows stay whose they are while the table grows, with examples of every size and keys that crowd at the end.
        #[test]
        fn like_a_hash_map(examples in prop::collection::vec((0usize..400, 0u64..2000, any::<bool>()), 1..60)) {
            let mut cells = Cells::new(16, [0.5, 0.25]);
            let mut map: HashMap<u64, [f32; 2]> = HashMap::new();
            // Keys whose homes are the last ones.
            let mut last: Vec<u64> = (0..40_000).collect();
            last.sort_by_key(|&key| std::cmp::Reverse(hash(key)));
            for (n, &(size, from, crowd)) in examples.iter().enumerate() {
                if !cells.has_room(size) {
                    cells.grow(size).unwrap();
                }
                let at = |i: u64| if crowd { last[(from / 8 + i) as usize] } else { from + i * 7 };
                for key in (0..size as u64).map(at).chain((n % 3 == 0).then_some(INTERCEPT_KEY)) {
                    let place = cells.place(key);
                    let row: [f32; 2] = cells.row(place);
                    prop_assert_eq!(row, *map.entry(key).or_insert([0.5, 0.25]));
                    let row = [key as f32, n as f32];
                    cells.set(place, row);
                    map.insert(key, row);
                }
            }
            prop_assert_eq!(cells.all().collect::<HashMap<_, _>>(), map.clone());
            prop_assert_eq!(cells.filled, map.keys().filter(|&&k| k != INTERCEPT_KEY).count());
            for key in (0..20_000).chain([INTERCEPT_KEY]) {
                let row = cells.find(key).map(|at| cells.row(at));
                prop_assert_eq!(row, map.get(&key).copied());
            }
        }
    }
}
