//! The native part of the Python package `gannet`: connections, pulls and pushes of numpy arrays.
//!
//! A client has a thread of its own, which owns the worker (owner.rs). A call hands it some work, and waits for the
//! answer without the GIL, in slices, so that Ctrl-C works (waiting.rs). What needs no worker is done on the calling
//! thread: each key once, in the order of the shards (batch.rs), and copies of rows to and from numpy arrays
//! (table.rs). A numpy array can also show the rows of a pull where they are (rows.rs).
//!
//! A data set (dataset.rs) is what the readers of the train crate read: files, a matrix, or the record batches of a
//! Python object (arrow_source.rs). A thread reads its batches ahead (batches.rs). A saved model (model.rs) scores such
//! data, read as its own was (model_data.rs).
#![deny(unsafe_code)]

mod ahead;
mod arrow_source;
mod batch;
mod batches;
mod client;
mod connecting;
mod dataset;
mod eviction;
mod failure;
mod keyset;
mod lent;
mod model;
mod model_data;
mod owner;
mod rows;
mod schema;
mod table;
mod trainer;
mod waiting;

use gannet::train::limits::{FIELD_FACTORS_MAX, SURVEYED_EXAMPLES};
use gannet::train::{ColumnKeys, text_key};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

/// The keys of values of a categorical column, by their texts.
#[pyfunction]
fn text_keys<'py>(py: Python<'py>, column: &str, texts: Vec<String>) -> Bound<'py, PyArray1<u64>> {
    let keys = ColumnKeys::new(column);
    let keys: Vec<u64> = texts.iter().map(|text| keys.categorical(text.as_bytes())).collect();
    keys.into_pyarray(py)
}

/// The number of a field in blocks, by its name.
#[pyfunction]
fn field_key(name: &str) -> u64 {
    text_key(0, name.as_bytes())
}

/// The native part of gannet. Use the package `gannet`.
#[pymodule]
mod _native {
    use super::*;
    #[pymodule_export]
    use super::{field_key, text_keys};
    #[pymodule_export]
    use crate::batches::{Batches, end_readings};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::dataset::Dataset;
    #[pymodule_export]
    use crate::keyset::KeySet;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::owner::wait_for_pushes;
    #[pymodule_export]
    use crate::table::{Pull, Table};
    #[pymodule_export]
    use crate::trainer::{KeyPlaces, Normalization, Trainer, drop_tables, train_lbfgs};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("FIELD_FACTORS_MAX", FIELD_FACTORS_MAX)?;
        module.add("SURVEYED_EXAMPLES", SURVEYED_EXAMPLES)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
