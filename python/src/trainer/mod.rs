//! Training for the estimators of `gannet.sklearn`: what `gannet train` does with the same rows, bit for bit. The table
//! is in this process, or on servers. L-BFGS keeps no table between calls, so it is a function (lbfgs.rs).

mod examples;
mod kept_rows;
mod key_places;
mod lbfgs;
mod learner;
mod normalization;
mod servers;
mod stopping;

pub use key_places::KeyPlaces;
pub use lbfgs::train_lbfgs;
pub use normalization::Normalization;
pub use servers::drop_tables;

use crate::connecting::Connecting;
use crate::failure::{CallFailure, Kind};
use crate::waiting::{Joins, Maker};
use examples::values;
use gannet::train::{Data, Normalize, Options};
use learner::{Learner, Learning, TrainedWeights};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use servers::EstimatorServers;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use stopping::run_until_ctrl_c;

pub use examples::ExampleArrays;

/// How often a training says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// A model and its tables.
#[pyclass(frozen, module = "gannet._native")]
pub struct Trainer {
    learner: Arc<Mutex<Learner>>,
    maker: Maker,
    joins: Joins,
    /// Weights of a row of each table, and all its floats.
    dims: Vec<usize>,
    floats: Vec<usize>,
}

/// The rows of a table: keys, and their rows.
type Rows<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray2<f32>>);
/// [`Rows`] that Python gives back.
type GivenRows<'py> = (PyReadonlyArray1<'py, u64>, PyReadonlyArray2<'py, f32>);
/// The weights of some keys, those of each layer, and how many updates were left out.
type LearnedArrays<'py> = (Bound<'py, PyArray2<f32>>, Vec<Bound<'py, PyArray2<f32>>>, u64);

/// Rows of so many floats each.
fn in_rows<'py>(py: Python<'py>, floats: Vec<f32>, each: usize) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let count = floats.len() / each;
    PyArray1::from_vec(py, floats).reshape([count, each])
}

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
    /// A model without rows. With `servers` its tables are there, and `name` goes before the names of the tables.
    #[new]
    #[pyo3(signature = (learning, servers, name))]
    fn new(learning: Learning, servers: Option<Connecting>, name: String) -> PyResult<Trainer> {
        let servers = servers.map(|servers| EstimatorServers::new(servers, name)).transpose()?;
        let joins = if servers.is_some() { Joins::No } else { Joins::Yes };
        let learner = Learner::new(learning, servers)?;
        let schemas = learner.schemas();
        let dims = schemas.iter().map(|schema| schema.weights()).collect();
        let floats = schemas.iter().map(|schema| schema.floats()).collect();
        Ok(Trainer { learner: Arc::new(Mutex::new(learner)), maker: Maker::this(), joins, dims, floats })
    }

    /// Learns examples in their order, `epochs` times. Returns the weights of the keys `wanted` then, float32 (n, dim),
    /// those of the units of each layer, float32 (units, inputs + 1) with the bias at the end, and how many updates
    /// were left out, because they had made a number infinite or NaN. Without a normalization values are learned as
    /// they are. `progress` is called with the examples so far.
    #[pyo3(signature = (examples, wanted, *, epochs, batch, intercept, normalization, progress))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn train<'py>(
        &self,
        py: Python<'py>,
        examples: ExampleArrays<'py>,
        wanted: PyReadonlyArray1<'py, u64>,
        epochs: u32,
        batch: usize,
        intercept: bool,
        normalization: Option<PyRef<'py, Normalization>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<LearnedArrays<'py>> {
        let (rows, wanted, learner) = (examples.copy()?, values(&wanted)?, self.learner()?);
        let normalize = normalization.map_or_else(Normalize::off, |normalization| normalization.shared());
        let learned = run_until_ctrl_c(py, self.joins, progress, move |watch| {
            let mut learner = lock(&learner);
            let rows = Arc::new(rows.check()?);
            let data = Data { intercept, normalize, labels: learner.labels(), ..Data::rows(rows) };
            let mut options = Options { epochs, batch, ..Options::new(data) };
            options.progress_every = PROGRESS_EVERY;
            options.stop_on(&watch.stop);
            learner.train(&options, &wanted, &watch)
        })?;
        let TrainedWeights { weights, layers, left_out } = learned;
        let layers = layers.into_iter().zip(&self.dims[1..]);
        let layers = layers.map(|(layer, &dim)| in_rows(py, layer, dim)).collect::<PyResult<_>>()?;
        Ok((in_rows(py, weights, self.dims[0])?, layers, left_out))
    }

    /// All rows of each table: keys uint64 (n,), and their weights and optimizer state, float32 (n, floats).
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Rows<'py>>> {
        let learner = self.learner()?;
        let all = run_until_ctrl_c(py, self.joins, None, move |_| lock(&learner).rows())?;
        let tables = all.into_iter().zip(&self.floats);
        tables
            .map(|((keys, rows), &floats)| Ok((PyArray1::from_vec(py, keys), in_rows(py, rows, floats)?)))
            .collect()
    }

    /// Puts rows back that [`rows`](Self::rows) has returned.
    fn restore(&self, py: Python<'_>, tables: Vec<GivenRows<'_>>) -> PyResult<()> {
        if tables.len() != self.floats.len() {
            let text = format!("rows of {} tables; those of {} are wanted", tables.len(), self.floats.len());
            return Err(CallFailure::input(text).into());
        }
        let mut all = Vec::new();
        for ((keys, rows), &floats) in tables.iter().zip(&self.floats) {
            let count = keys.len();
            if rows.shape() != [count, floats] {
                let text = format!("rows have shape {:?}; [{count}, {floats}] is wanted", rows.shape());
                return Err(CallFailure::input(text).into());
            }
            all.push((values(keys)?, rows.as_slice()?.to_vec()));
        }
        let learner = self.learner()?;
        run_until_ctrl_c(py, self.joins, None, move |_| lock(&learner).restore(&all))
    }
}
