//! Work on a thread of its own, which Ctrl-C stops.

use crate::failure::{CallFailure, Kind};
use crate::waiting::wait_and;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;

/// Whether a call that Ctrl-C ends waits for the end of its work.
#[derive(Clone, Copy)]
pub enum Joins {
    /// The work ends soon after its flag is set, and the table is whole then.
    Yes,
    /// The work may wait for a server that is away. It ends by itself, at the latest when the wait does.
    No,
}

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
    let watch = TrainingWatch::default();
    let (send, answer) = channel();
    let watched = watch.clone();
    let run = move || drop(send.send(work(watched)));
    let thread = std::thread::Builder::new().name("gannet-train".into()).spawn(run);
    let failed = |error| CallFailure::new(Kind::Machine, format!("no thread to train: {error}"));
    let thread = thread.map_err(failed)?;
    let result = wait_and(py, answer, || {
        let Some(progress) = &progress else { return Ok(()) };
        progress.call1(py, (watch.done.load(Relaxed),)).map(drop)
    });
    watch.stop.store(true, Relaxed);
    if let Joins::Yes = joins {
        py.detach(|| drop(thread.join()));
    }
    result
}
