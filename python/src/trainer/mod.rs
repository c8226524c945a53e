//! Training for the estimators of `gannet.sklearn`: what `gannet train` does with the same rows, bit for bit. The table
//! is in this process, or on servers. L-BFGS keeps no table between calls, so it is a function (lbfgs.rs).

mod examples;
mod lbfgs;
mod learner;
mod servers;
mod stopping;

pub use lbfgs::train_lbfgs;
pub use servers::drop_tables;

use crate::connecting::Connecting;
use crate::failure::{CallFailure, Kind};
use crate::waiting::Maker;
use examples::values;
use gannet::train::{Data, Options};
use learner::{Learner, Learning};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use servers::EstimatorServers;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use stopping::{Joins, run_until_ctrl_c};

pub use examples::ExampleArrays;

/// How often a training says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// A model and its table.
#[pyclass(frozen, module = "gannet._native")]
pub struct Trainer {
    learner: Arc<Mutex<Learner>>,
    maker: Maker,
    joins: Joins,
    /// Weights of a row, and all its floats.
    dim: usize,
    floats: usize,
}

/// Keys, and their rows.
type Rows<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray2<f32>>);

fn lock(learner: &Mutex<Learner>) -> MutexGuard<'_, Learner> {
    learner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trainer {
    /// The model. A fork may have it too, unless a thread was learning when the process was forked: the fork has the
    /// lock of that thread, and would wait for ever.
    fn learner(&self) -> Result<Arc<Mutex<Learner>>, CallFailure> {
        if !self.maker.is_here()
            && let Err(TryLockError::WouldBlock) = self.learner.try_lock()
        {
            let text = "another thread was learning with this estimator when this process was forked: fork before \
                        the fit, or after it, or start processes with multiprocessing.get_context(\"spawn\")";
            return Err(CallFailure::new(Kind::Fork, text));
        }
        Ok(self.learner.clone())
    }
}

#[pymethods]
impl Trainer {
    /// A model without rows. With `servers` its table is there, and `name` goes before the table's name.
    #[new]
    #[pyo3(signature = (learning, servers, name))]
    fn new(learning: Learning, servers: Option<Connecting>, name: String) -> PyResult<Trainer> {
        let servers = servers.map(|servers| EstimatorServers::new(servers, name)).transpose()?;
        let joins = if servers.is_some() { Joins::No } else { Joins::Yes };
        let learner = Learner::new(learning, servers)?;
        let (dim, floats) = (learner.schema().weights(), learner.schema().floats());
        Ok(Trainer { learner: Arc::new(Mutex::new(learner)), maker: Maker::this(), joins, dim, floats })
    }

    /// Learns examples in their order, `epochs` times. Returns the weights of the keys `wanted` then, float32 (n, dim),
    /// and how many updates were left out, because they had made a number infinite or NaN. `progress` is called with
    /// the examples so far.
    #[pyo3(signature = (examples, wanted, *, epochs, batch, intercept, progress))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn train<'py>(
        &self,
        py: Python<'py>,
        examples: ExampleArrays<'py>,
        wanted: PyReadonlyArray1<'py, u64>,
        epochs: u32,
        batch: usize,
        intercept: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, u64)> {
        let (rows, wanted, learner) = (examples.copy()?, values(&wanted)?, self.learner()?);
        let count = wanted.len();
        let (weights, left_out) = run_until_ctrl_c(py, self.joins, progress, move |watch| {
            let mut learner = lock(&learner);
            let data = Data { intercept, labels: learner.labels(), ..Data::rows(Arc::new(rows.check()?)) };
            let mut options = Options { epochs, batch, ..Options::new(data) };
            options.progress_every = PROGRESS_EVERY;
            options.stop_on(&watch.stop);
            learner.train(&options, &wanted, &watch)
        })?;
        Ok((PyArray1::from_vec(py, weights).reshape([count, self.dim])?, left_out))
    }

    /// All rows: keys uint64 (n,), and their weights and optimizer state, float32 (n, floats).
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        let learner = self.learner()?;
        let (keys, rows) = run_until_ctrl_c(py, self.joins, None, move |_| lock(&learner).rows())?;
        let count = keys.len();
        let rows = PyArray1::from_vec(py, rows).reshape([count, self.floats])?;
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
        let (keys, rows, learner) = (values(&keys)?, rows.as_slice()?.to_vec(), self.learner()?);
        run_until_ctrl_c(py, self.joins, None, move |_| lock(&learner).restore(&keys, &rows))
    }
}
