//! The tables of a saved model, for scoring: weights by key, and the initial weights of keys without a row.

use super::{TableIndex, WeightTables, parts, weigh};
use crate::backend::error::BackendError;
use gannet_core::Schema;
use std::collections::HashMap;

/// Read-only tables in memory.
#[derive(Default)]
pub struct SavedTables {
    tables: Vec<SavedTable>,
}

struct SavedTable {
    schema: Schema,
    /// The number of each key's row.
    places: HashMap<u64, usize>,
    weights: Vec<f32>,
    /// Numbers of rows that were removed.
    free: Vec<usize>,
}

impl SavedTables {
    /// Adds a table without rows.
    pub fn add(&mut self, schema: &Schema) -> TableIndex {
        let (schema, places) = (schema.clone(), HashMap::new());
        self.tables.push(SavedTable { schema, places, weights: Vec::new(), free: Vec::new() });
        self.tables.len() - 1
    }

    /// Puts rows into a table, in place of those of the same keys: keys, and the stored floats of each.
    ///
    /// # Panics
    /// When there is no such table, or the lengths do not match.
    pub fn put(&mut self, table: TableIndex, keys: &[u64], rows: &[f32]) {
        let SavedTable { schema, places, weights, free } = &mut self.tables[table];
        let (parts, floats, dim) = (parts(schema), schema.floats(), schema.weights());
        assert_eq!(rows.len(), keys.len() * floats, "a row for each key");
        for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
            let place = *places.entry(key).or_insert_with(|| {
                free.pop().unwrap_or_else(|| {
                    weights.resize(weights.len() + dim, 0.0);
                    weights.len() / dim - 1
                })
            });
            weigh(&parts, row, &mut weights[place * dim..][..dim]);
        }
    }

    /// Removes the row of a key, if there is one. Its place is used again.
    ///
    /// # Panics
    /// When there is no such table.
    pub fn remove(&mut self, table: TableIndex, key: u64) {
        let SavedTable { places, free, .. } = &mut self.tables[table];
        free.extend(places.remove(&key));
    }

    /// The rows of a table.
    ///
    /// # Panics
    /// When there is no such table.
    pub fn len(&self, table: TableIndex) -> usize {
        self.tables[table].places.len()
    }
}

impl SavedTables {
    /// The rows of a table: keys, and the weights of all segments.
    ///
    /// # Panics
    /// When there is no such table.
    pub fn rows(&self, table: TableIndex) -> impl Iterator<Item = (u64, &[f32])> {
        let SavedTable { schema, places, weights, .. } = &self.tables[table];
        let dim = schema.weights();
        places.iter().map(move |(&key, &place)| (key, &weights[place * dim..][..dim]))
    }

    /// As [`weights`](WeightTables::weights), for threads that share the tables.
    pub(crate) fn read(&self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) {
        let SavedTable { schema, places, weights, .. } = &self.tables[table];
        let dim = schema.weights();
        out.resize(keys.len() * dim, 0.0);
        for (key, row) in keys.iter().zip(out.chunks_exact_mut(dim)) {
            match places.get(key) {
                Some(&place) => row.copy_from_slice(&weights[place * dim..][..dim]),
                None => schema.first_weights(*key, row),
            }
        }
    }
}

impl WeightTables for SavedTables {
    fn schema(&self, table: TableIndex) -> &Schema {
        &self.tables[table].schema
    }

    fn weights(&mut self, table: TableIndex, keys: &[u64], out: &mut Vec<f32>) -> Result<(), BackendError> {
        self.read(table, keys, out);
        Ok(())
    }
}
