//! A set of keys for several calls: each key once, in the order of the table's shards.

use crate::batch::Batch;
use crate::table::Table;
use numpy::PyArray1;
use pyo3::prelude::*;
use std::sync::Arc;

/// The keys of a call, and where each of them is among the keys without repeats.
#[pyclass(module = "gannet._native", frozen)]
pub struct KeySet {
    /// The keys.
    pub batch: Arc<Batch>,
    /// The table that has sorted them.
    pub table: Py<Table>,
}

#[pymethods]
impl KeySet {
    /// Each key once, uint64 (m,).
    fn keys<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_slice(py, self.batch.keys().keys())
    }

    /// For each given key its place in [`keys`](Self::keys), int64 (n,).
    fn inverse<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.batch.places().into_iter().map(i64::from))
    }

    /// Keys without repeats.
    fn __len__(&self) -> usize {
        self.batch.unique()
    }
}
