//! Which row of [`FlatTables`](super::FlatTables) a key has. The thread that makes batches can look the keys up, and
//! compute the first weights of new rows, before the learner needs them: both depend on the keys alone. So the learner
//! learns the same rows, and only copies them.

use super::segment::{SegmentPart, parts};
use crate::backend::cells::{AHEAD, Cells};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use crate::limits::PREPARE_SPARE;
use gannet_core::{Schema, init_row};
use gannet_optim::{Update, Visitor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows of one piece of a table's list of rows.
pub(super) const PIECE_ROWS: usize = 1 << 12;
/// The number of a key without a row.
pub(super) const NONE: u32 = u32::MAX;

/// The numbers of a table's rows, in the order in which their keys came.
pub(super) struct RowIndex {
    pub schema: Schema,
    pub parts: Vec<SegmentPart>,
    numbers: Cells<u32>,
    /// The key of each row.
    pub keys: Vec<u64>,
    /// The weights and the stored floats of one row.
    weights: Vec<f32>,
    row: Vec<f32>,
    memory_limit: u64,
    /// The number of the present [`RowPreparer`]. A preparer with another number has nothing more to do here.
    preparer: u64,
    /// [`bytes`](Self::bytes), for those who do not have the lock.
    size: Arc<AtomicU64>,
}

/// The rows of a batch, found before the batch is learned.
#[derive(Debug, Default)]
pub struct PreparedRows {
    /// The number of each key's row.
    pub(super) numbers: Vec<u32>,
    /// The number of the first new row.
    pub(super) first: u32,
    /// The new rows, as they begin.
    pub(super) fresh: Vec<f32>,
    /// The number of the preparer. 0: the rows are not prepared.
    pub(super) preparer: u64,
}

impl PreparedRows {
    /// Whether the rows of the batch were prepared.
    pub(crate) fn is_made(&self) -> bool {
        self.preparer > 0
    }
}

/// The floats of a fresh row.
struct FreshRow<'a>(u64, &'a [f32], &'a mut [f32]);

impl Visitor for FreshRow<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        init_row(rule, self.0, self.1, self.2);
    }
}

impl RowIndex {
    pub(super) fn new(schema: &Schema, memory_limit: u64) -> RowIndex {
        let index = RowIndex {
            schema: schema.clone(),
            parts: parts(schema),
            numbers: Cells::new(NONE, memory_limit),
            keys: Vec::new(),
            weights: vec![0.0; schema.weights()],
            row: vec![0.0; schema.floats()],
            memory_limit,
            preparer: 0,
            size: Arc::default(),
        };
        index.size.store(index.bytes(), Relaxed);
        index
    }

    /// The bytes of the index and of its rows, at any time.
    pub(super) fn size(&self) -> Arc<AtomicU64> {
        self.size.clone()
    }

    /// The number of the present preparer.
    pub(super) fn preparer(&self) -> u64 {
        self.preparer
    }

    /// Ends the present preparer: what it has prepared and nobody has taken is forgotten. `rows` were taken.
    ///
    /// # Errors
    /// There is no memory for another index.
    pub(super) fn end_preparer(&mut self, rows: usize) -> Result<(), BackendError> {
        self.preparer += 1;
        self.truncate(rows)
    }

    /// The stored floats of a row.
    fn floats(&self) -> usize {
        self.row.len()
    }

    /// Bytes of the index, and of pieces for all its rows.
    pub(super) fn bytes(&self) -> u64 {
        let rows = self.keys.len().next_multiple_of(PIECE_ROWS) * self.floats() * size_of::<f32>();
        self.numbers.bytes() + (rows + self.keys.len() * size_of::<u64>()) as u64
    }

    /// Makes sure that rows for `more` new keys fit into the memory, of which `others` bytes are in use elsewhere.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn reserve(&mut self, more: usize, others: u64) -> Result<(), BackendError> {
        self.numbers.reserve(more)?;
        let row_bytes = self.floats() * size_of::<f32>() + size_of::<u64>();
        let (bytes, limit) = (others + self.bytes() + (more * row_bytes) as u64, self.memory_limit);
        if bytes > limit {
            return Err(BackendError::Memory { rows: self.keys.len() as u64, bytes, limit });
        }
        Ok(())
    }

    /// The fresh row of a key.
    pub(super) fn fresh(&mut self, key: u64) -> &[f32] {
        let RowIndex { schema, parts, weights, row, .. } = self;
        schema.initial_weights(key, weights);
        let (mut weights, mut floats) = (&weights[..], &mut row[..]);
        for part in &*parts {
            let (own, weights_behind) = weights.split_at(part.dim);
            let (own_row, row_behind) = floats.split_at_mut(part.floats);
            part.rule.visit(FreshRow(key, own, own_row));
            (weights, floats) = (weights_behind, row_behind);
        }
        row
    }

    /// The number of a key's row, or [`NONE`].
    pub(super) fn find(&self, key: u64) -> u32 {
        self.numbers.find(key).map_or(NONE, |place| *self.numbers.at(place))
    }

    /// Finds the numbers of keys. New keys get the next numbers, and their fresh rows are appended to `fresh`. There
    /// must be [room](Self::reserve) for them.
    pub(super) fn number_all(&mut self, keys: &[u64], numbers: &mut Vec<u32>, fresh: &mut Vec<f32>) {
        numbers.clear();
        keys.iter().take(AHEAD).for_each(|&key| self.numbers.prefetch(key));
        for (i, &key) in keys.iter().enumerate() {
            if let Some(&ahead) = keys.get(i + AHEAD) {
                self.numbers.prefetch(ahead);
            }
            let place = self.numbers.place(key);
            let number = *self.numbers.at(place);
            numbers.push(if number == NONE { self.add(key, place, fresh) } else { number });
        }
        self.size.store(self.bytes(), Relaxed);
    }

    #[cold]
    fn add(&mut self, key: u64, place: u32, fresh: &mut Vec<f32>) -> u32 {
        let number = self.keys.len() as u32;
        *self.numbers.at_mut(place) = number;
        self.keys.push(key);
        fresh.extend_from_slice(self.fresh(key));
        number
    }

    /// Forgets the keys of all rows but the first `rows`.
    fn truncate(&mut self, rows: usize) -> Result<(), BackendError> {
        if rows == self.keys.len() {
            return Ok(());
        }
        let mut numbers = Cells::new(NONE, self.memory_limit);
        numbers.reserve(rows)?;
        for (number, &key) in (0..).zip(&self.keys[..rows]) {
            let place = numbers.place(key);
            *numbers.at_mut(place) = number;
        }
        // Nothing below fails: an error leaves the index as it was.
        self.keys.truncate(rows);
        self.numbers = numbers;
        self.size.store(self.bytes(), Relaxed);
        Ok(())
    }
}

/// Prepares the rows of batches, in the order in which they are learned.
pub struct RowPreparer {
    index: Arc<Mutex<RowIndex>>,
    /// Takes memory for pieces of the list of rows.
    pieces: Sender<Vec<f32>>,
    /// See [`RowIndex::preparer`].
    number: u64,
    /// Rows for which there are pieces, at the learner or on their way.
    capacity: usize,
    /// The memory was nearly full, or another preparer is in its place. The learner then finds the rows itself.
    has_stopped: bool,
}

impl RowPreparer {
    /// A preparer of rows of this index. It sends memory for pieces of the list of rows to `pieces`.
    pub(super) fn new(index: Arc<Mutex<RowIndex>>, pieces: Sender<Vec<f32>>) -> RowPreparer {
        let (number, rows) = {
            let index = lock(&index);
            (index.preparer, index.keys.len())
        };
        RowPreparer { index, pieces, number, capacity: rows.next_multiple_of(PIECE_ROWS), has_stopped: false }
    }

    /// Prepares the rows of a batch.
    pub(crate) fn prepare(&mut self, batch: &mut Batch) {
        let Batch { keys, prepared: PreparedRows { numbers, first, fresh, preparer }, .. } = batch;
        fresh.clear();
        *preparer = 0;
        let mut index = lock(&self.index);
        let others = index.memory_limit / PREPARE_SPARE;
        self.has_stopped |= index.preparer != self.number || index.reserve(keys.len(), others).is_err();
        if self.has_stopped {
            return;
        }
        *first = index.keys.len() as u32;
        index.number_all(keys, numbers, fresh);
        *preparer = self.number;
        let (rows, floats) = (index.keys.len(), index.floats());
        drop(index);
        while self.capacity < rows {
            // The system clears its pages here, and not while the learner waits for them.
            let mut piece = vec![1.0; PIECE_ROWS * floats];
            piece.clear();
            // If nobody takes it any more, the training has ended.
            drop(self.pieces.send(piece));
            self.capacity += PIECE_ROWS;
        }
    }
}

/// The index. A thread that died while it had the lock has ended the training.
pub(super) fn lock(index: &Mutex<RowIndex>) -> MutexGuard<'_, RowIndex> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
