//! Examples that come as numpy arrays: the parts of a compressed sparse matrix, labels and importances.

use crate::failure::CallFailure;
use gannet::train::CsrRows;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Whole numbers from 0, as scipy has them, or keys.
#[derive(FromPyObject)]
enum WholeNumbers<'py> {
    Keys(PyReadonlyArray1<'py, u64>),
    Narrow(PyReadonlyArray1<'py, i32>),
    Wide(PyReadonlyArray1<'py, i64>),
}

impl WholeNumbers<'_> {
    fn copy(&self) -> PyResult<Vec<u64>> {
        Ok(match self {
            WholeNumbers::Keys(array) => values(array)?,
            WholeNumbers::Narrow(array) => array.as_slice()?.iter().map(|&number| number as u64).collect(),
            WholeNumbers::Wide(array) => array.as_slice()?.iter().map(|&number| number as u64).collect(),
        })
    }
}

/// Arrays of Python: those of a compressed sparse matrix, and others. Example `i` has the features
/// `indices[indptr[i]..indptr[i + 1]]`, which are also their keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ExampleArrays<'py> {
    indptr: WholeNumbers<'py>,
    indices: WholeNumbers<'py>,
    data: PyReadonlyArray1<'py, f64>,
    labels: PyReadonlyArray1<'py, f32>,
    /// One for each example, or none at all: each example then counts once.
    importances: PyReadonlyArray1<'py, f32>,
    /// Whether the examples are rows of a table with columns.
    has_columns: bool,
    /// The place of the field of each feature, or none at all.
    fields: PyReadonlyArray1<'py, u64>,
}

/// Copies of the arrays, for another thread.
pub struct ExampleVectors {
    indptr: Vec<u64>,
    keys: Vec<u64>,
    values: Vec<f32>,
    labels: Vec<f32>,
    importances: Vec<f32>,
    has_columns: bool,
    fields: Vec<u64>,
}

/// The values of a contiguous array, as a vector.
pub fn values<T: numpy::Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    Ok(array.as_slice()?.to_vec())
}

impl ExampleArrays<'_> {
    /// Copies the arrays.
    pub fn copy(&self) -> PyResult<ExampleVectors> {
        Ok(ExampleVectors {
            indptr: self.indptr.copy()?,
            keys: self.indices.copy()?,
            values: self.data.as_slice()?.iter().map(|&value| value as f32).collect(),
            labels: values(&self.labels)?,
            importances: values(&self.importances)?,
            has_columns: self.has_columns,
            fields: values(&self.fields)?,
        })
    }
}

impl ExampleVectors {
    /// The examples, if they are sound.
    pub fn check(self) -> Result<CsrRows, CallFailure> {
        let ExampleVectors { indptr, keys, values, labels, importances, has_columns, fields } = self;
        let rows = CsrRows::new(indptr, keys, values, labels, importances);
        let rows = if has_columns { rows.and_then(|rows| rows.of_columns(fields)) } else { rows };
        rows.map_err(CallFailure::input)
    }
}
