//! The tables of a process that both owns and trains them, for replay. The rows of a table are in one list, in the
//! order in which their keys came, and an index maps keys to numbers of rows. A pull copies a batch's rows out, and the
//! push after it goes to the same numbers. The tables are lost when the process ends; a scan writes the model.
//!
//! A row changes as in shards, so the bits are the same: its change is computed, checked, and added.

use super::row_index::{PIECE_ROWS, PreparedRows, RowIndex, RowPreparer, lock};
use super::segment::{SegmentPart, parts, weigh};
use super::{TableIndex, Tables, WeightTables};
use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::batch::{BatchKeys, InSplit};
use gannet_core::{Admission, OpenError, Read, Schema, Stats, Write, prefetch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

/// How many rows ahead of the push the prefetch runs.
const ROWS_AHEAD: usize = 16;
/// Floats of a cache line.
const LINE_FLOATS: usize = 16;
/// Floats that are checked together.
const CHECKS: usize = 8;
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
    index: Arc<Mutex<RowIndex>>,
    /// Bytes of the index and of the rows.
    size: Arc<AtomicU64>,
    /// The number of the preparer whose rows are taken.
    preparer: u64,
    schema: Schema,
    parts: Vec<SegmentPart>,
    /// The rows by their numbers, [`PIECE_ROWS`] a piece.
    pieces: Vec<Vec<f32>>,
    /// The number of rows. The index may have more: those of batches that are not learned yet.
    rows: usize,
    /// Stored floats of a row.
    floats: usize,
    /// The numbers of the rows of the pull begun last.
    pulled: Vec<u32>,
    /// Fresh rows of a pull that was not prepared.
    fresh: Vec<f32>,
    /// Memory for pieces, from whoever prepares rows.
    prepared_pieces: Option<Receiver<Vec<f32>>>,
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
        let index = RowIndex::new(schema, memory_limit);
        Ok(FlatRows {
            size: index.size(),
            preparer: 0,
            index: Arc::new(Mutex::new(index)),
            schema: schema.clone(),
            parts,
            pieces: Vec::new(),
            rows: 0,
            floats: schema.floats(),
            pulled: Vec::new(),
            fresh: Vec::new(),
            prepared_pieces: None,
        })
    }

    fn bytes(&self) -> u64 {
        self.size.load(Relaxed)
    }

    #[inline(always)]
    fn row(&self, number: u32) -> &[f32] {
        let (piece, at) = (number as usize / PIECE_ROWS, number as usize % PIECE_ROWS);
        &self.pieces[piece][at * self.floats..][..self.floats]
    }

    /// Appends fresh rows.
    fn append(&mut self, mut fresh: &[f32]) {
        while !fresh.is_empty() {
            if self.rows.is_multiple_of(PIECE_ROWS) {
                let prepared = self.prepared_pieces.as_ref().and_then(|pieces| pieces.try_recv().ok());
                self.pieces.push(prepared.unwrap_or_else(|| Vec::with_capacity(PIECE_ROWS * self.floats)));
            }
            let room = (PIECE_ROWS - self.rows % PIECE_ROWS) * self.floats;
            let (now, later) = fresh.split_at(room.min(fresh.len()));
            if let Some(piece) = self.pieces.last_mut() {
                piece.extend_from_slice(now);
            }
            (self.rows, fresh) = (self.rows + now.len() / self.floats, later);
        }
    }

    /// Finds the rows of keys, and makes those of new keys.
    fn find(&mut self, keys: &[u64], others: u64) -> Result<(), BackendError> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.clear();
        {
            let mut index = lock(&self.index);
            if self.preparer > 0 {
                index.end_preparer(self.rows)?;
                self.preparer = 0;
            }
            index.reserve(keys.len(), others)?;
            index.number_all(keys, &mut self.pulled, &mut fresh);
        }
        self.append(&fresh);
        self.fresh = fresh;
        Ok(())
    }

    /// Takes the rows that were prepared for a batch.
    fn take(&mut self, prepared: &PreparedRows) -> Result<(), BackendError> {
        let PreparedRows { numbers, first, fresh, .. } = prepared;
        let (first, end) = (*first as usize, *first as usize + fresh.len() / self.floats);
        if first > self.rows || (first < self.rows && end > self.rows) {
            return Err(BackendError::Order("batches are learned in the order in which they are made"));
        }
        if first == self.rows {
            self.append(fresh);
        }
        self.pulled.clone_from(numbers);
        Ok(())
    }

    /// Copies the rows that were found into `out`.
    fn copy(&self, out: &mut Vec<f32>) {
        out.clear();
        let prefetch = |number: &u32| prefetch_row(self.row(*number));
        self.pulled.iter().take(ROWS_AHEAD).for_each(prefetch);
        for (i, &number) in self.pulled.iter().enumerate() {
            self.pulled.get(i + ROWS_AHEAD).into_iter().for_each(prefetch);
            out.extend_from_slice(self.row(number));
        }
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

    /// Bytes of the tables but one.
    fn others(&self, table: TableIndex) -> u64 {
        let others = self.tables.iter().enumerate().filter(|&(at, _)| at != table);
        others.map(|(_, rows)| rows.bytes()).sum()
    }
}

impl WeightTables for FlatTables {
    fn schema(&self, table: TableIndex) -> &Schema {
        &self.tables[table].schema
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        let rows = &self.tables[table];
        let (dim, mut index) = (rows.schema.weights(), lock(&rows.index));
        out.resize(keys.len() * dim, 0.0);
        for (&key, weights) in keys.iter().zip(out.chunks_exact_mut(dim)) {
            match index.find(key) {
                number if (number as usize) < rows.rows => weigh(&rows.parts, rows.row(number), weights),
                _ => weigh(&rows.parts, index.fresh(key), weights),
            }
        }
        Ok(())
    }
}

impl Tables for FlatTables {
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
        let mut out = self.spare.pop().unwrap_or_default();
        // After a pull of other keys, rows that were found before it are found again.
        let preparer = self.tables[table].preparer;
        match keys.prepared.filter(|prepared| prepared.preparer == preparer) {
            Some(prepared) => self.tables[table].take(prepared)?,
            None => {
                let others = self.others(table);
                self.tables[table].find(keys.keys, others)?;
            }
        }
        self.tables[table].copy(&mut out);
        self.begun.push_back((table, out));
        Ok(())
    }

    fn preparer(&mut self, table: TableIndex) -> Result<Option<RowPreparer>, BackendError> {
        let rows = &mut self.tables[table];
        {
            let mut index = lock(&rows.index);
            index.end_preparer(rows.rows)?;
            rows.preparer = index.preparer();
        }
        let (pieces, taken) = channel();
        rows.prepared_pieces = Some(taken);
        Ok(Some(RowPreparer::new(rows.index.clone(), pieces)))
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

    fn scan(&mut self, table: TableIndex, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let FlatRows { index, pieces, floats, rows, .. } = &self.tables[table];
        let keys = &lock(index).keys[..*rows];
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
        let others = self.others(table);
        let rows = &mut self.tables[table];
        rows.find(keys, others)?;
        let FlatRows { pulled, pieces, floats, .. } = rows;
        for (&number, saved) in pulled.iter().zip(saved.chunks_exact(*floats)) {
            let (piece, at) = (number as usize / PIECE_ROWS, number as usize % PIECE_ROWS);
            pieces[piece][at * *floats..][..*floats].copy_from_slice(saved);
        }
        Ok(())
    }

    fn stats(&mut self, table: TableIndex) -> Result<Stats, BackendError> {
        let rows = &self.tables[table];
        Ok(Stats { rows: rows.rows as u64, bytes: rows.bytes(), shards: rows.schema.shards })
    }
}

impl TrainedRows for FlatTables {
    fn transport(&self) -> String {
        "embedded".to_owned()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        self.not_finite
    }
}
