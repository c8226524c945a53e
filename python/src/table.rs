//! Pulls and pushes of numpy arrays. The Python files check shapes and types first, and say what is wrong with them.

use crate::batch::{Batch, KEYS_MAX};
use crate::client::Shared;
use crate::failure::{CallFailure, wrong_type};
use crate::keyset::KeySet;
use crate::lent::{LentArray, free_ended_arrays};
use crate::owner::Owner;
use gannet::optim::{Float16, Update, Visitor};
use gannet::table::{TableId, init_row};
use gannet::worker::PushRows;
use gannet::{Rule, Schema};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2,
};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches of keys whose memory is used again.
const BATCHES_MAX: usize = 8;

/// A table of a client.
#[pyclass(module = "gannet._native", frozen)]
pub struct Table {
    shared: Arc<Shared>,
    id: TableId,
    dim: usize,
    shards: u32,
    rule: Rule,
    /// Batches, the one that was used last at the end.
    batches: Mutex<Vec<Arc<Batch>>>,
}

impl Table {
    /// An opened table.
    pub fn new(shared: Arc<Shared>, id: TableId, schema: &Schema) -> Table {
        let (dim, shards, rule) = (schema.dim as usize, schema.shards, schema.rule);
        Table { shared, id, dim, shards, rule, batches: Mutex::default() }
    }

    /// Its number at the client.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The batch of these keys: that of the last call if that had the same keys, or another one.
    fn batch(&self, keys: &[u64]) -> Result<Arc<Batch>, CallFailure> {
        if keys.len() > KEYS_MAX {
            let count = keys.len();
            return Err(CallFailure::input(format!(
                "{count} keys in one call; at most {KEYS_MAX} are possible"
            )));
        }
        let batches = || self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = {
            let mut all = batches();
            if let Some(last) = all.last().filter(|last| last.is_of(keys)) {
                return Ok(last.clone());
            }
            let free = all.iter().position(|batch| Arc::strong_count(batch) == 1);
            match (free, all.len() < BATCHES_MAX) {
                (Some(at), _) => all.remove(at),
                (None, true) => Arc::default(),
                (None, false) => {
                    all.remove(0);
                    Arc::default()
                }
            }
        };
        if Arc::get_mut(&mut batch).is_none() {
            batch = Arc::default();
        }
        if let Some(own) = Arc::get_mut(&mut batch) {
            own.fill(keys, self.shards);
        }
        batches().push(batch.clone());
        Ok(batch)
    }

    fn begin(&self, py: Python<'_>, keys: &PyReadonlyArray1<'_, u64>) -> PyResult<(u64, Arc<Batch>)> {
        let keys = keys.as_slice().map_err(|_| wrong_type("keys are not contiguous".into()))?;
        self.shared.thread()?;
        let batch = py.detach(|| self.batch(keys))?;
        Ok((self.begin_batch(&batch)?, batch))
    }

    /// Begins to pull the rows of a batch. Returns the pull's number.
    fn begin_batch(&self, batch: &Arc<Batch>) -> Result<u64, CallFailure> {
        let thread = self.shared.thread()?;
        let (table, dim, sent) = (self.id, self.dim, batch.clone());
        let number = self.shared.next_pull.fetch_add(1, Relaxed);
        thread.tell(move |owner| owner.begin_pull(number, table, dim, &sent));
        Ok(number)
    }

    /// Checks that an array has a row for each of so many keys.
    fn check_rows(&self, what: &str, rows: &[f32], keys: usize) -> Result<(), CallFailure> {
        let (got, dim) = (rows.len(), self.dim);
        if got == keys * dim {
            return Ok(());
        }
        Err(CallFailure::input(format!("{what} has {got} floats; {keys} rows of {dim} are wanted")))
    }

    /// The batch of a set of keys, for a call of this table.
    fn batch_of<'a>(&self, keys: &'a KeySet) -> Result<&'a Arc<Batch>, CallFailure> {
        let theirs = keys.table.get();
        if Arc::ptr_eq(&theirs.shared, &self.shared) && theirs.id == self.id {
            return Ok(&keys.batch);
        }
        let text = "these keys were made for another table: make them with the method keyset of this one";
        Err(CallFailure::input(text))
    }
}

#[pymethods]
impl Table {
    /// Takes keys for several calls.
    fn keyset(slf: Py<Table>, py: Python<'_>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<KeySet> {
        let (table, keys) = (slf.get(), keys.as_slice());
        let keys = keys.map_err(|_| wrong_type("keys are not contiguous".into()))?;
        table.shared.thread()?;
        let batch = py.detach(|| table.batch(keys))?;
        Ok(KeySet { batch, table: slf })
    }

    /// Begins to push a row for each key of a set: from a copy, or from the array itself, which is then made read-only.
    /// Whatever can be refused here is refused before.
    fn push_set(
        &self,
        py: Python<'_>,
        keys: Py<KeySet>,
        grads: PyReadonlyArray2<'_, f32>,
        copy: bool,
    ) -> PyResult<()> {
        let batch = self.batch_of(keys.get())?.clone();
        let given = grads.as_slice().map_err(|_| wrong_type("grads are not contiguous".into()))?;
        self.check_rows("grads", given, batch.unique())?;
        let buffers = self.shared.thread()?.state.buffers.clone();
        let rows = match copy {
            false => PushRows::lent(LentArray::new(&grads, given)?),
            true => py.detach(|| {
                let mut rows = buffers.take(given.len());
                rows.clear();
                rows.extend_from_slice(given);
                rows.into()
            }),
        };
        let table = self.id;
        self.shared.call(py, move |owner| owner.begin_push(table, &batch, rows))
    }

    /// Begins to store a row for each key: these weights, and the optimizer's state as in the beginning.
    fn assign(
        &self,
        py: Python<'_>,
        keys: PyReadonlyArray1<'_, u64>,
        weights: PyReadonlyArray2<'_, f32>,
    ) -> PyResult<()> {
        let keys = keys.as_slice().map_err(|_| wrong_type("keys are not contiguous".into()))?;
        let given = weights.as_slice().map_err(|_| wrong_type("rows are not contiguous".into()))?;
        self.check_rows("rows", given, keys.len())?;
        self.shared.thread()?;
        let (table, dim, rule) = (self.id, self.dim, self.rule);
        let largest = rule.float16().map_or(f32::MAX, Float16::largest);
        let (batch, rows) = py.detach(|| {
            if let Some(at) = given.iter().position(|weight| weight.is_nan() || weight.abs() > largest) {
                let (key, weight, row_type) = (keys[at / dim], given[at], rule.float16().map_or("f32", Float16::name));
                return Err(CallFailure::input(format!(
                    "the row of key {key} has the value {weight}: rows of type {row_type:?} take finite numbers up to \
                     {largest:e}; change the value, or choose another row_type"
                )));
            }
            let batch = self.batch(keys)?;
            if !batch.is_unique() {
                let count = batch.len() - batch.unique();
                return Err(CallFailure::input(format!(
                    "{count} keys are there more than once: give each key one row"
                )));
            }
            let mut weights = Vec::new();
            batch.reduce(given, dim, false, &mut weights);
            let mut rows = Vec::new();
            rule.visit(InitRows { keys: batch.keys().keys(), weights: &weights, dim, out: &mut rows });
            Ok::<_, CallFailure>((batch, rows))
        })?;
        self.shared.call(py, move |owner| owner.begin_assign(table, &batch, rows))
    }

    /// Begins a pull.
    fn begin_pull(slf: Py<Table>, py: Python<'_>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<Pull> {
        let (number, batch) = slf.get().begin(py, &keys)?;
        Ok(Pull::new(slf, number, batch, Order::Given))
    }

    /// Begins a pull of the keys of a set.
    fn begin_pull_set(slf: Py<Table>, keys: Py<KeySet>) -> PyResult<Pull> {
        let table = slf.get();
        let batch = table.batch_of(keys.get())?.clone();
        let number = table.begin_batch(&batch)?;
        Ok(Pull::new(slf, number, batch, Order::Shards))
    }

    /// Begins to push a row for each key. The rows of a key that repeats are added, or averaged.
    fn push(
        &self,
        py: Python<'_>,
        keys: PyReadonlyArray1<'_, u64>,
        grads: PyReadonlyArray2<'_, f32>,
        mean: bool,
    ) -> PyResult<()> {
        let keys = keys.as_slice().map_err(|_| wrong_type("keys are not contiguous".into()))?;
        let given = grads.as_slice().map_err(|_| wrong_type("grads are not contiguous".into()))?;
        let (table, dim) = (self.id, self.dim);
        self.check_rows("grads", given, keys.len())?;
        let buffers = self.shared.thread()?.state.buffers.clone();
        let (batch, rows) = py.detach(|| {
            let batch = self.batch(keys)?;
            let mut rows = buffers.take(batch.unique() * dim);
            batch.reduce(given, dim, mean, &mut rows);
            Ok::<_, CallFailure>((batch, rows))
        })?;
        self.shared.call(py, move |owner| owner.begin_push(table, &batch, rows.into()))
    }

    /// All rows: keys, and their weights.
    #[allow(clippy::type_complexity)]
    fn items<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyArray1<u64>>, Bound<'py, PyArray2<f32>>)> {
        let (table, dim, rule) = (self.id, self.dim, self.rule);
        let (keys, weights) = self.shared.call(py, move |owner| items(owner, table, dim, rule))?;
        let count = keys.len();
        Ok((keys.into_pyarray(py), weights.into_pyarray(py).reshape([count, dim])?))
    }

    /// Rows, bytes and shards over all servers, and the rows of this client's pushes that servers have dropped.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let table = self.id;
        let (status, dropped) = self.shared.call(py, move |owner| {
            owner.flush()?;
            Ok((owner.worker.status(table)?.stats, owner.worker.not_finite_rows(table)))
        })?;
        Ok((status.rows, status.bytes, u64::from(status.shards), dropped))
    }

    /// Writes all rows, with their optimizer state, into a folder. Returns their number.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<u64> {
        let table = self.id;
        self.shared.call(py, move |owner| {
            owner.flush()?;
            Ok(owner.worker.save(table, &folder)?)
        })
    }

    /// Stores the rows of a folder. Returns their number.
    fn load(&self, py: Python<'_>, folder: PathBuf) -> PyResult<u64> {
        let table = self.id;
        self.shared.call(py, move |owner| owner.load(table, &folder))
    }
}

/// The weights of all rows of a table. Memory holds them once, and a page of rows.
fn items(
    owner: &mut Owner,
    table: TableId,
    dim: usize,
    rule: Rule,
) -> Result<(Vec<u64>, Vec<f32>), CallFailure> {
    owner.flush()?;
    let (mut keys, mut weights) = (Vec::new(), Vec::new());
    owner.worker.scan(table, |page, rows| {
        keys.extend_from_slice(page);
        rule.visit(AddWeights { rows, dim, out: &mut weights });
    })?;
    Ok((keys, weights))
}

/// Appends the weights of stored rows.
struct AddWeights<'a> {
    rows: &'a [f32],
    dim: usize,
    out: &'a mut Vec<f32>,
}

impl Visitor for AddWeights<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        for row in self.rows.chunks_exact(U::floats(self.dim)) {
            let begin = self.out.len();
            self.out.resize(begin + self.dim, 0.0);
            rule.weights(row, &mut self.out[begin..]);
        }
    }
}

/// Appends rows of these keys with these weights, and the state that they begin with.
struct InitRows<'a> {
    keys: &'a [u64],
    weights: &'a [f32],
    dim: usize,
    out: &'a mut Vec<f32>,
}

impl Visitor for InitRows<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        for (&key, weights) in self.keys.iter().zip(self.weights.chunks_exact(self.dim)) {
            let begin = self.out.len();
            self.out.resize(begin + U::floats(self.dim), 0.0);
            init_row(rule, key, weights, &mut self.out[begin..]);
        }
    }
}

/// The order of a pull's rows.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// A row for each key, as they were given.
    Given,
    /// A row for each key of a set.
    Shards,
}

/// A pull on its way.
#[pyclass(module = "gannet._native", frozen)]
pub struct Pull {
    table: Py<Table>,
    number: u64,
    batch: Arc<Batch>,
    order: Order,
    /// Whether somebody has asked for the rows.
    is_asked: AtomicBool,
}

impl Pull {
    fn new(table: Py<Table>, number: u64, batch: Arc<Batch>, order: Order) -> Pull {
        Pull { table, number, batch, order, is_asked: AtomicBool::new(false) }
    }

    /// Keys that a row is returned for.
    fn len(&self) -> usize {
        match self.order {
            Order::Given => self.batch.len(),
            Order::Shards => self.batch.unique(),
        }
    }

    /// Waits for the rows, in the order of the shards.
    fn wait(&self, py: Python<'_>) -> PyResult<Vec<f32>> {
        let number = self.number;
        self.is_asked.store(true, Relaxed);
        free_ended_arrays(py);
        let shared = &self.table.get().shared;
        match shared.thread()?.state.pulled.take(number) {
            Some(rows) => Ok(rows?),
            None => shared.call(py, move |owner| owner.finish_pull(number)),
        }
    }

    /// Copies the rows in the order of this pull.
    fn copy(&self, rows: &[f32], out: &mut [f32]) {
        match self.order {
            Order::Given => self.batch.rows_as_given(rows, self.table.get().dim, out),
            Order::Shards => out.copy_from_slice(rows),
        }
    }
}

#[pymethods]
impl Pull {
    /// Waits for the rows, and writes them into `out`.
    fn finish_into(&self, py: Python<'_>, mut out: PyReadwriteArray2<'_, f32>) -> PyResult<()> {
        let out = out.as_slice_mut().map_err(|_| wrong_type("out is not contiguous".into()))?;
        let table = self.table.get();
        table.check_rows("out", out, self.len())?;
        let rows = self.wait(py)?;
        py.detach(|| self.copy(&rows, out));
        table.shared.thread()?.state.buffers.keep(rows);
        Ok(())
    }

    /// Waits for the rows, and returns them.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (table, mut rows) = (self.table.get(), self.wait(py)?);
        let buffers = table.shared.thread()?.state.buffers.clone();
        if let Order::Given = self.order {
            rows = py.detach(|| {
                let floats = self.len() * table.dim;
                let mut given = buffers.take(floats);
                given.resize(floats, 0.0);
                self.copy(&rows, &mut given);
                buffers.keep(rows);
                given
            });
        }
        buffers.array(py, rows, table.dim)
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        if !*self.is_asked.get_mut() {
            let number = self.number;
            self.table.get().shared.tell(move |owner| owner.drop_pull(number));
        }
    }
}
