//! Logistic regression in this process, for the estimators of `gannet.sklearn`: what `gannet train` does with the same
//! rows, bit for bit.

use crate::failure::{CallFailure, Kind};
use crate::waiting::wait_for;
use gannet::Schema;
use gannet::optim::{Ftrl, Rule};
use gannet::train::{Backend, BackendError, CsrRows, Data, FlatTable, Options, TrainError, train};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A table of weights that FTRL learns, in this process.
#[pyclass(frozen, module = "gannet._native")]
pub struct FtrlTrainer {
    table: Arc<Mutex<FlatTable>>,
    /// Floats of a row: the weight's state.
    floats: usize,
}

/// What a training reports: its examples, and the mean log loss of each example before it was learned.
type Trained = (u64, Option<f64>);

/// Keys, and their rows.
type Rows<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray2<f32>>);

fn lock(table: &Mutex<FlatTable>) -> MutexGuard<'_, FlatTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &TrainError) -> CallFailure {
    let kind = if matches!(error, TrainError::Read(_)) { Kind::Input } else { Kind::Machine };
    CallFailure::new(kind, error.to_string())
}

fn table_failed(error: &BackendError) -> CallFailure {
    CallFailure::new(Kind::Machine, error.to_string())
}

/// The values of a contiguous array, as a vector.
fn values<T: numpy::Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    Ok(array.as_slice()?.to_vec())
}

#[pymethods]
impl FtrlTrainer {
    /// An empty table: all weights are 0.
    #[new]
    fn new(alpha: f32, beta: f32, l1: f32, l2: f32) -> PyResult<FtrlTrainer> {
        let schema = Schema::scalar("lr", Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }));
        let table = FlatTable::new(&schema).map_err(|error| CallFailure::input(error.to_string()))?;
        Ok(FtrlTrainer { table: Arc::new(Mutex::new(table)), floats: schema.floats() })
    }

    /// Learns the rows of a compressed sparse matrix, in their order, `epochs` times. Labels are 0 and 1. An empty
    /// array of importances: each example counts once.
    #[allow(clippy::too_many_arguments)] // the parts of a matrix
    #[pyo3(signature = (indptr, keys, values_of, labels, importances, *, epochs, batch, intercept))]
    fn train(
        &self,
        py: Python<'_>,
        indptr: PyReadonlyArray1<'_, u64>,
        keys: PyReadonlyArray1<'_, u64>,
        values_of: PyReadonlyArray1<'_, f32>,
        labels: PyReadonlyArray1<'_, f32>,
        importances: PyReadonlyArray1<'_, f32>,
        epochs: u32,
        batch: usize,
        intercept: bool,
    ) -> PyResult<Trained> {
        let (indptr, keys, labels) = (values(&indptr)?, values(&keys)?, values(&labels)?);
        let (values, importances) = (values(&values_of)?, values(&importances)?);
        let (table, stop) = (self.table.clone(), Arc::new(AtomicBool::new(false)));
        let (send, answer) = channel();
        let stopped = stop.clone();
        let learn = move || {
            let learned = CsrRows::new(indptr, keys, values, labels, importances)
                .map_err(CallFailure::input)
                .and_then(|rows| {
                    let data = Data { intercept, ..Data::rows(Arc::new(rows)) };
                    let options = Options { epochs, batch, ..Options::new(data) };
                    let report = train(&options, &mut *lock(&table), &stopped, &mut |_| {});
                    let report = report.map_err(|error| failed(&error))?;
                    Ok((report.examples, report.progressive.map(|quality| quality.log_loss)))
                });
            let _ = send.send(learned);
        };
        let thread = std::thread::Builder::new().name("gannet-train".into()).spawn(learn);
        let thread = thread
            .map_err(|error| CallFailure::new(Kind::Machine, format!("no thread to train: {error}")))?;
        let trained = wait_for(py, answer);
        // After Ctrl-C the training ends behind its batch, and the table is whole.
        stop.store(true, Relaxed);
        py.detach(|| drop(thread.join()));
        trained
    }

    /// The weight of each key, float32 (n,). A key without a row has weight 0.
    fn weights<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (keys, table) = (values(&keys)?, self.table.clone());
        let weights = py.detach(move || {
            let mut weights = vec![0.0; keys.len()];
            lock(&table).weights(&keys, &mut weights).map_err(|error| table_failed(&error))?;
            Ok::<_, CallFailure>(weights)
        })?;
        Ok(PyArray1::from_vec(py, weights))
    }

    /// All rows: keys uint64 (n,), and the optimizer's state float32 (n, floats).
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        let (table, floats) = (self.table.clone(), self.floats);
        let (keys, rows) = py.detach(move || {
            let (mut keys, mut rows) = (Vec::new(), Vec::new());
            let mut page = |some: &[u64], of: &[f32]| {
                keys.extend_from_slice(some);
                rows.extend_from_slice(of);
            };
            lock(&table).scan(&mut page).map_err(|error| table_failed(&error))?;
            Ok::<_, CallFailure>((keys, rows))
        })?;
        let count = keys.len();
        let rows = PyArray1::from_vec(py, rows).reshape([count, floats])?;
        Ok((PyArray1::from_vec(py, keys), rows))
    }

    /// Puts rows back that [`rows`](Self::rows) has returned.
    fn restore(
        &self,
        py: Python<'_>,
        keys: PyReadonlyArray1<'_, u64>,
        rows: PyReadonlyArray2<'_, f32>,
    ) -> PyResult<()> {
        let (count, floats) = (keys.len(), self.floats);
        if rows.shape() != [count, floats] {
            let text = format!("rows have shape {:?}; [{count}, {floats}] is wanted", rows.shape());
            return Err(CallFailure::input(text).into());
        }
        let (keys, rows, table) = (values(&keys)?, rows.as_slice()?.to_vec(), self.table.clone());
        let restored = py.detach(move || lock(&table).restore(&keys, &rows));
        restored.map_err(|error| table_failed(&error).into())
    }
}
