//! Work on a thread of its own, which Ctrl-C stops.

use crate::failure::{CallFailure, Kind};
use crate::waiting::wait_for;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;

/// Whether a call that Ctrl-C ends waits for the end of its work.
#[derive(Clone, Copy)]
pub enum Joins {
    /// The work ends soon after its flag is set, and the table is whole then.
    Yes,
    /// The work may wait for a server that is away. It ends by itself, at the latest when the wait does.
    No,
}

/// Runs `work` on another thread and waits for it. `work` gets a flag that Ctrl-C sets.
pub fn run_until_ctrl_c<T: Send + 'static>(
    py: Python<'_>,
    joins: Joins,
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, CallFailure> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (send, answer) = channel();
    let stopped = stop.clone();
    let run = move || drop(send.send(work(stopped)));
    let thread = std::thread::Builder::new().name("gannet-train".into()).spawn(run);
    let failed = |error| CallFailure::new(Kind::Machine, format!("no thread to train: {error}"));
    let thread = thread.map_err(failed)?;
    let result = wait_for(py, answer);
    stop.store(true, Relaxed);
    if let Joins::Yes = joins {
        py.detach(|| drop(thread.join()));
    }
    result
}
