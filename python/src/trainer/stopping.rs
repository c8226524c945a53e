//! Trainings on a thread of their own, which Ctrl-C stops.

use crate::failure::CallFailure;
use crate::waiting::{Joins, on_thread};
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What work and the call that waits for it share.
#[derive(Debug, Clone, Default)]
pub struct TrainingWatch {
    /// Ctrl-C has ended the call, so the work should end.
    pub stop: Arc<AtomicBool>,
    /// How much is done: examples, or iterations.
    pub done: Arc<AtomicU64>,
}

/// Runs `work` on another thread and waits for it. `progress` is a function of Python, which is called with what is
/// done. If it fails, the work is stopped, too.
pub fn run_until_ctrl_c<T: Send + 'static>(
    py: Python<'_>,
    joins: Joins,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(TrainingWatch) -> Result<T, CallFailure> + Send + 'static,
) -> PyResult<T> {
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let tell = || progress.as_ref().map_or(Ok(()), |tell| tell.call1(py, (seen.load(Relaxed),)).map(drop));
    on_thread(py, ("gannet-train", joins), move |stop| work(TrainingWatch { stop, done }), tell)
}
