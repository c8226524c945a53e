//! The weights that L-BFGS learned, as the table of a model, for evaluation and export.

use crate::backend::error::BackendError;
use crate::backend::trained_rows::TrainedRows;
use crate::backend::{Backend, PulledRows};
use crate::batch::{BatchKeys, InSplit};
use crate::lbfgs::layout::{WEIGHTS, WEIGHTS_SEGMENT};
use crate::lbfgs::{Columns, cells};
use gannet_core::{Read, Schema, Stats, Write};
use gannet_optim::{Add, Rule};

/// A read-only table of one weight a row, on top of the columns.
pub struct LearnedWeights<'a, C> {
    columns: &'a mut C,
    schema: Schema,
    half: usize,
    rows: Vec<f32>,
}

impl<'a, C: Columns> LearnedWeights<'a, C> {
    /// The current weights, as a table of this name.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn new(columns: &'a mut C, table: &str) -> Result<LearnedWeights<'a, C>, BackendError> {
        let half = cells::recall(columns)?.map_or(0, |memory| memory.half);
        let shards = columns.layout().schema().shards;
        let schema = Schema { shards, ..Schema::scalar(table, Rule::Add(Add)) };
        Ok(LearnedWeights { columns, schema, half, rows: Vec::new() })
    }

    /// Pages through the weights that are not 0, with all the digits that the columns have.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn exact(&mut self, page: &mut dyn FnMut(&[u64], &[f64])) -> Result<(), BackendError> {
        let vectors = self.columns.layout().vectors();
        let floats = self.columns.layout().schema().floats();
        let (column, mut nonzero_keys, mut weights) = (WEIGHTS[self.half], Vec::new(), Vec::new());
        self.columns.scan(&mut |keys, rows| {
            nonzero_keys.clear();
            weights.clear();
            for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
                let weight = vectors.value(row, column, 0);
                if weight != 0.0 {
                    nonzero_keys.push(key);
                    weights.push(weight);
                }
            }
            if !nonzero_keys.is_empty() {
                page(&nonzero_keys, &weights);
            }
        })
    }

    fn refuse<T>(&self) -> Result<T, BackendError> {
        Err(BackendError::Order("weights that L-BFGS has learned are only read"))
    }
}

impl<C: Columns> Backend for LearnedWeights<'_, C> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        0
    }

    fn begin_pull(&mut self, _: BatchKeys<'_>, _: Read) -> Result<(), BackendError> {
        self.refuse()
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        self.refuse()
    }

    fn push(&mut self, _: &[u64], _: PulledRows, _: Write, _: Option<&InSplit>) -> Result<(), BackendError> {
        self.refuse()
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        self.columns.pull(WEIGHTS_SEGMENT, keys, &mut self.rows)?;
        // The first of the two floats of an f64 is the nearest float.
        let rows = self.rows.chunks_exact(4);
        rows.zip(weights).for_each(|(row, weight)| *weight = row[2 * self.half]);
        Ok(())
    }

    /// Pages through the rows whose weight is not 0, as a float.
    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        let (mut nonzero_keys, mut weights) = (Vec::new(), Vec::new());
        self.exact(&mut |keys, exact| {
            nonzero_keys.clear();
            weights.clear();
            for (&key, &weight) in keys.iter().zip(exact) {
                let weight = weight as f32;
                if weight != 0.0 {
                    nonzero_keys.push(key);
                    weights.push(weight);
                }
            }
            if !nonzero_keys.is_empty() {
                page(&nonzero_keys, &weights);
            }
        })
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        self.columns.stats()
    }
}

impl<C: Columns> TrainedRows for LearnedWeights<'_, C> {
    fn transport(&self) -> String {
        self.columns.transport()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        0
    }
}
