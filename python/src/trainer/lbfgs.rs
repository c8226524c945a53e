//! Logistic regression by L-BFGS, and with L1 by OWL-QN. The columns are in this process, or on servers as long as the
//! training lasts.

use super::examples::{ExampleArrays, ExampleVectors, values};
use super::learner::table_failed;
use super::normalization::Normalization;
use super::servers::EstimatorServers;
use super::stopping::{TrainingWatch, run_until_ctrl_c};
use crate::connecting::Connecting;
use crate::failure::{CallFailure, Kind};
use crate::waiting::Joins;
use gannet::storage::Store;
use gannet::train::lbfgs::{
    CELLS_TABLE, Chief, Columns, Examples, Layout, LbfgsError, LbfgsSettings, LearnedWeights, LocalColumns,
    RemoteColumns, TABLE,
};
use gannet::train::{Data, Normalize, Share};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What `gannet train` has without flags. Sums depend on the number of threads, so it is the same here.
const HISTORY: u16 = 10;
const THREADS: usize = 2;
/// The most time that a worker may take for a command. There is one worker, which waits for none.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is minimized, and when that ends.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LbfgsAsked {
    l1: f64,
    l2: f64,
    intercept: bool,
    max_iter: u32,
    tol: f64,
}

/// Where the search ended: the weights of the wanted keys, the iterations, whether it has converged, and the length of
/// the gradient of the mean objective.
type Minimum = (Vec<f64>, u64, bool, f64);
/// [`Minimum`] with an array of Python.
type MinimumArray<'py> = (Bound<'py, PyArray1<f64>>, u64, bool, f64);

/// The examples, their normalization, and what is minimized.
type What<'a> = (ExampleVectors, Normalize, &'a LbfgsAsked);

/// Weights to begin from, by key.
type Begin = (Vec<u64>, Vec<f32>);

/// Finds the weights of the smallest loss. `begin` has keys and their weights to begin from; an empty one means zeros.
/// With `servers` the columns are there, in tables whose names begin with `name`, until the training has ended.
/// Without a normalization values are learned as they are. `progress` is called with the iterations so far.
#[pyfunction]
#[pyo3(signature = (examples, asked, begin, wanted, servers, name, normalization, progress))]
#[allow(clippy::too_many_arguments)] // what a function of Python takes
pub fn train_lbfgs<'py>(
    py: Python<'py>,
    examples: ExampleArrays<'py>,
    asked: LbfgsAsked,
    begin: (PyReadonlyArray1<'py, u64>, PyReadonlyArray1<'py, f32>),
    wanted: PyReadonlyArray1<'py, u64>,
    servers: Option<Connecting>,
    name: String,
    normalization: Option<PyRef<'py, Normalization>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<MinimumArray<'py>> {
    let (rows, wanted) = (examples.copy()?, values(&wanted)?);
    let begin = (values(&begin.0)?, values(&begin.1)?);
    let servers = servers.map(|servers| EstimatorServers::new(servers, name)).transpose()?;
    let normalize = normalization.map_or_else(Normalize::off, |normalization| normalization.shared());
    let joins = if servers.is_some() { Joins::No } else { Joins::Yes };
    let (weights, iterations, converged, slope) = run_until_ctrl_c(py, joins, progress, move |watch| {
        minimize(servers, (rows, normalize, &asked), &begin, &wanted, &watch)
    })?;
    Ok((PyArray1::from_vec(py, weights), iterations, converged, slope))
}

/// Trains where the columns are to be.
fn minimize(
    servers: Option<EstimatorServers>,
    what: What<'_>,
    begin: &Begin,
    wanted: &[u64],
    watch: &TrainingWatch,
) -> Result<Minimum, CallFailure> {
    let layout = Layout { history: HISTORY };
    let Some(servers) = servers else {
        let mut columns = LocalColumns::open(&Store::memory(), layout).map_err(table_failed)?;
        return lead(&mut columns, what, begin, wanted, watch);
    };
    let mut columns = RemoteColumns::open(servers.connect()?, layout).map_err(table_failed)?;
    let minimum = lead(&mut columns, what, begin, wanted, watch);
    // What failed is what the caller wants to know.
    let dropped = [TABLE, CELLS_TABLE].iter().try_for_each(|table| {
        let table = format!("{}.{table}", servers.name());
        Ok(columns.worker().drop_table(&table)?)
    });
    minimum.and_then(|minimum| dropped.map(|()| minimum))
}

/// Trains as the one worker, and reads the weights.
fn lead<C: Columns>(
    columns: &mut C,
    (rows, normalize, asked): What<'_>,
    begin: &Begin,
    wanted: &[u64],
    watch: &TrainingWatch,
) -> Result<Minimum, CallFailure> {
    let LbfgsAsked { l1, l2, intercept, max_iter: iterations, tol: tolerance } = *asked;
    let settings = LbfgsSettings { l1, l2, intercept, iterations, tolerance, workers: 1, patience: PATIENCE };
    let shards = columns.layout().schema().shards;
    let data = Data { intercept, normalize, ..Data::rows(Arc::new(rows.check()?)) };
    let read = Examples::read(&data, Share::ALL, shards, THREADS, u64::MAX);
    let (mut examples, _) = read.map_err(failed)?;
    // The examples have a copy.
    drop(data);
    let mut chief = Chief::new(columns, &mut examples, settings, &watch.stop).map_err(failed)?;
    if !begin.0.is_empty() {
        chief.begin_from(|page| page(&begin.0, &begin.1)).map_err(failed)?;
    }
    let trained = chief.train(&mut |to| watch.done.store(to.iterations, Relaxed)).map_err(failed)?;
    let mut learned = LearnedWeights::new(columns, "lr").map_err(table_failed)?;
    let mut by_key = HashMap::new();
    let mut page = |keys: &[u64], weights: &[f64]| {
        by_key.extend(keys.iter().copied().zip(weights.iter().copied()));
    };
    learned.exact(&mut page).map_err(table_failed)?;
    let weights = wanted.iter().map(|key| by_key.get(key).copied().unwrap_or_default()).collect();
    Ok((weights, trained.iterations, trained.converged, trained.mean_slope()))
}

fn failed(error: LbfgsError) -> CallFailure {
    match error {
        LbfgsError::Backend(error) => table_failed(error),
        LbfgsError::Read(error) => CallFailure::input(error.to_string()),
        LbfgsError::NotFinite(what) => CallFailure::input(format!(
            "the {what} is not finite: the features may be too large (scale them), or l2 too small"
        )),
        other => CallFailure::new(Kind::Machine, other.to_string()),
    }
}
