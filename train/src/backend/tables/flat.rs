//! The tables of a process that both owns and trains them, for replay. The rows of a table are in one list, in the
//! order in which their keys came, and cells map keys to numbers of rows. A pull copies a batch's rows out, and the
//! push after it goes to the same numbers. The tables are lost when the process ends; a scan writes the model.
//!
//! A row changes as in shards, so the bits are the same: its change is computed, checked, and added.

use super::segment::{SegmentPart, parts, weigh};
use super::{TableIndex, Tables, WeightTables};
use crate::backend::BackendError;
use crate::backend::cells::{AHEAD, Cells};
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Admission, OpenError, Read, Schema, Stats, Write, prefetch};
use gannet_optim::{Update, Visitor};
use std::collections::VecDeque;

/// Rows of one piece of the list.
const PIECE_ROWS: usize = 1 << 12;
/// How many rows ahead of the push the prefetch runs.
const ROWS_AHEAD: usize = 16;
/// Floats of a cache line.
const LINE_FLOATS: usize = 16;
/// Floats that are checked together.
const CHECKS: usize = 8;
/// The number of a key without a row.
const NONE: u32 = u32::MAX;
/// Rows of one page of a scan.
const PAGE_ROWS: usize = 1 << 13;

/// Tables of this process, without shards.
pub struct FlatTables {
    memory_limit: u64,
    tables: Vec<FlatRows>,
    /// The pulls in flight: their tables and rows.
    begun: VecDeque<(TableIndex, Vec<f32>)>,
    spare: Vec<Vec<f32>>,
    not_finite: u64,
}

/// The rows of a table.
struct FlatRows {
    schema: Schema,
    parts: Vec<SegmentPart>,
    numbers: Cells<u32>,
    keys: Vec<u64>,
    /// The rows by their numbers, [`PIECE_ROWS`] a piece.
    pieces: Vec<Vec<f32>>,
    /// Stored floats of a row.
    floats: usize,
    /// The numbers of the rows of the pull begun last.
    pulled: Vec<u32>,
    /// The weights and the stored floats of one row.
    weights: Vec<f32>,
    row: Vec<f32>,
}

/// The floats of a fresh row.
struct FreshRow<'a>(&'a [f32], &'a mut [f32]);

impl Visitor for FreshRow<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        rule.init(self.0, self.1);
    }
}

impl FlatRows {
    fn new(schema: &Schema, memory_limit: u64) -> Result<FlatRows, BackendError> {
        schema.check().map_err(OpenError::from)?;
        let unfit = |what| Err(BackendError::Schema(format!("table {:?}: {what}", schema.name)));
        let parts = parts(schema);
        if schema.admission != Admission::All {
            return unfit("a table without shards admits every key; keep it in shards to admit fewer");
        }
        if !schema.replays() || parts.iter().any(|part| part.rule != schema.rule) {
            return unfit("a table without shards has one rule, which replays");
        }
        Ok(FlatRows {
            schema: schema.clone(),
            parts,
            numbers: Cells::new(NONE, memory_limit),
            keys: Vec::new(),
            pieces: Vec::new(),
            floats: schema.floats(),
            pulled: Vec::new(),
            weights: vec![0.0; schema.weights()],
            row: vec![0.0; schema.floats()],
        })
    }

    fn bytes(&self) -> u64 {
        let rows = self.pieces.len() * PIECE_ROWS * self.floats * size_of::<f32>();
        self.numbers.bytes() + (rows + self.keys.len() * size_of::<u64>()) as u64
    }

    #[inline(always)]
    fn row(&self, number: u32) -> &[f32] {
        let (piece, at) = (number as usize / PIECE_ROWS, number as usize % PIECE_ROWS);
        &self.pieces[piece][at * self.floats..][..self.floats]
    }

    /// Writes the fresh row of a key into `row`.
    fn init(&mut self, key: u64) {
        let FlatRows { schema, parts, weights, row, .. } = self;
        schema.initial_weights(key, weights);
        let (mut weights, mut row) = (&weights[..], &mut row[..]);
        for part in &*parts {
            let (own, weights_behind) = weights.split_at(part.dim);
            let (own_row, row_behind) = row.split_at_mut(part.floats);
            part.rule.visit(FreshRow(own, own_row));
            (weights, row) = (weights_behind, row_behind);
        }
    }

    /// Makes a fresh row. Returns its number.
    #[cold]
    fn make(&mut self, key: u64) -> u32 {
        let number = self.keys.len();
        if number.is_multiple_of(PIECE_ROWS) {
            self.pieces.push(Vec::with_capacity(PIECE_ROWS * self.floats));
        }
        self.init(key);
        self.keys.push(key);
        if let Some(piece) = self.pieces.last_mut() {
            piece.extend_from_slice(&self.row);
        }
        number as u32
    }

    /// The number of a key's row, which is made if there is none. There must be a cell for it.
    #[inline(always)]
    fn number(&mut self, key: u64) -> u32 {
        let place = self.numbers.place(key);
        let number = *self.numbers.at(place);
        if number != NONE {
            return number;
        }
        let number = self.make(key);
        *self.numbers.at_mut(place) = number;
        number
    }

    /// Makes sure that rows for `more` new keys fit into the memory.
    fn reserve(&mut self, more: usize, others: u64, memory_limit: u64) -> Result<(), BackendError> {
        self.numbers.reserve(more)?;
        let row_bytes = self.floats * size_of::<f32>() + size_of::<u64>();
        let bytes = others + self.bytes() + (more * row_bytes) as u64;
        if bytes > memory_limit {
            let rows = self.keys.len() as u64;
            return Err(BackendError::Memory { rows, bytes, limit: memory_limit });
        }
        Ok(())
    }

    /// Copies the rows of keys into `out`, and remembers their numbers.
    fn pull(&mut self, keys: &[u64], out: &mut Vec<f32>) {
        let mut pulled = std::mem::take(&mut self.pulled);
        pulled.clear();
        keys.iter().take(AHEAD).for_each(|&key| self.numbers.prefetch(key));
        for (i, &key) in keys.iter().enumerate() {
            if let Some(&ahead) = keys.get(i + AHEAD) {
                self.numbers.prefetch(ahead);
            }
            let number = self.number(key);
            prefetch_row(self.row(number));
            pulled.push(number);
        }
        out.clear();
        pulled.iter().for_each(|&number| out.extend_from_slice(self.row(number)));
        self.pulled = pulled;
    }
}

/// Prefetches the cache lines of a row.
#[inline(always)]
fn prefetch_row(row: &[f32]) {
    let mut at = 0;
    while at < row.len() {
        prefetch((&raw const row[at]).cast());
        at += LINE_FLOATS;
    }
    if let Some(last) = row.last() {
        prefetch((&raw const *last).cast());
    }
}

/// What a row becomes when its change of state is added.
#[inline(always)]
fn changed(row: f32, after: f32) -> f32 {
    row + (after - row)
}

impl FlatRows {
    /// Makes the rows of the last pull what they have become. Returns how many it left unchanged, because they would
    /// have become NaN or infinite. Nothing else can make a row unsound: rules that replay only add to their sums of
    /// squares.
    fn store(&mut self, after: &[f32]) -> u64 {
        let FlatRows { pieces, floats, pulled, .. } = self;
        let (floats, mut not_finite) = (*floats, 0);
        for (i, (&number, after)) in pulled.iter().zip(after.chunks_exact(floats)).enumerate() {
            if let Some(&ahead) = pulled.get(i + ROWS_AHEAD) {
                let (piece, at) = (ahead as usize / PIECE_ROWS, ahead as usize % PIECE_ROWS);
                prefetch_row(&pieces[piece][at * floats..][..floats]);
            }
            let (piece, at) = (number as usize / PIECE_ROWS, number as usize % PIECE_ROWS);
            let row = &mut pieces[piece][at * floats..][..floats];
            // A product with 0 is NaN where a value is not finite.
            let mut sound = [0.0f32; CHECKS];
            let (blocks, rest) = row.as_chunks::<CHECKS>();
            let (blocks_after, rest_after) = after.as_chunks::<CHECKS>();
            for (row, after) in blocks.iter().zip(blocks_after) {
                for ((sound, &row), &after) in sound.iter_mut().zip(row).zip(after) {
                    *sound += changed(row, after) * 0.0;
                }
            }
            for ((sound, &row), &after) in sound.iter_mut().zip(rest).zip(rest_after) {
                *sound += changed(row, after) * 0.0;
            }
            if sound.iter().sum::<f32>() == 0.0 {
                row.iter_mut().zip(after).for_each(|(row, &after)| *row = changed(*row, after));
            } else {
                not_finite += 1;
            }
        }
        not_finite
    }
}

impl FlatTables {
    /// No tables yet. Together they may take `memory_limit` bytes.
    pub fn within(memory_limit: u64) -> FlatTables {
        FlatTables {
            memory_limit,
            tables: Vec::new(),
            begun: VecDeque::new(),
            spare: Vec::new(),
            not_finite: 0,
        }
    }
}

impl WeightTables for FlatTables {
    fn schema(&self, table: TableIndex) -> &Schema {
        &self.tables[table].schema
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        let rows = &mut self.tables[table];
        let dim = rows.weights.len();
        out.resize(keys.len() * dim, 0.0);
        for (&key, weights) in keys.iter().zip(out.chunks_exact_mut(dim)) {
            let number = rows.numbers.find(key).map_or(NONE, |place| *rows.numbers.at(place));
            if number == NONE {
                rows.init(key);
                weigh(&rows.parts, &rows.row, weights);
            } else {
                weigh(&rows.parts, rows.row(number), weights);
            }
        }
        Ok(())
    }
}

impl Tables for FlatTables {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn open(&mut self, schema: &Schema) -> Result<TableIndex, BackendError> {
        if let Some(number) = self.tables.iter().position(|rows| rows.schema == *schema) {
            return Ok(number);
        }
        self.tables.push(FlatRows::new(schema, self.memory_limit)?);
        Ok(self.tables.len() - 1)
    }

    fn begin_pull(&mut self, table: TableIndex, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        if read != Read::State {
            return Err(BackendError::Order("these rows are pulled with their state, for replay"));
        }
        let all: u64 = self.tables.iter().map(FlatRows::bytes).sum();
        let (mut out, rows) = (self.spare.pop().unwrap_or_default(), &mut self.tables[table]);
        rows.reserve(keys.keys.len(), all - rows.bytes(), self.memory_limit)?;
        rows.pull(keys.keys, &mut out);
        self.begun.push_back((table, out));
        Ok(())
    }

    fn finish_pull(&mut self, out: &mut Vec<f32>) -> Result<(), BackendError> {
        let (_, mut rows) = self.begun.pop_front().ok_or(BackendError::Order("no pull was begun"))?;
        std::mem::swap(out, &mut rows);
        self.spare.push(rows);
        Ok(())
    }

    fn push(
        &mut self,
        _: TableIndex,
        _: &mut Vec<f32>,
        _: Write,
        _: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        Err(BackendError::Order("these rows are pushed with their state"))
    }

    fn has_pulled_rows(&self) -> bool {
        true
    }

    fn push_states(
        &mut self,
        table: TableIndex,
        _: &mut Vec<f32>,
        after: &[f32],
        _: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        let rows = &mut self.tables[table];
        if after.len() != rows.pulled.len() * rows.floats {
            return Err(BackendError::Order("a push must follow the pull of its keys"));
        }
        self.not_finite += rows.store(after);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let FlatRows { keys, pieces, floats, .. } = &self.tables[table];
        let mut floats_of = Vec::new();
        for (pieces, keys) in pieces.chunks(PAGE_ROWS / PIECE_ROWS).zip(keys.chunks(PAGE_ROWS)) {
            floats_of.clear();
            pieces.iter().for_each(|piece| floats_of.extend_from_slice(piece));
            debug_assert_eq!(floats_of.len(), keys.len() * floats);
            page(keys, &floats_of);
        }
        Ok(())
    }

    fn restore(&mut self, table: TableIndex, keys: &[u64], saved: &[f32]) -> Result<(), BackendError> {
        let all: u64 = self.tables.iter().map(FlatRows::bytes).sum();
        let rows = &mut self.tables[table];
        rows.reserve(keys.len(), all - rows.bytes(), self.memory_limit)?;
        for (&key, saved) in keys.iter().zip(saved.chunks_exact(rows.floats)) {
            let number = rows.number(key) as usize;
            let at = number % PIECE_ROWS * rows.floats;
            rows.pieces[number / PIECE_ROWS][at..][..rows.floats].copy_from_slice(saved);
        }
        Ok(())
    }

    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError> {
        let rows = &self.tables[table];
        Ok(Stats { rows: rows.keys.len() as u64, bytes: rows.bytes(), shards: rows.schema.shards })
    }

    fn not_finite(&self) -> u64 {
        self.not_finite
    }

    fn not_admitted(&self) -> u64 {
        0
    }
}
