//! Waits of Python threads: without the GIL, in slices, so that Ctrl-C works. Also the refusal of forked processes.

use crate::failure::{CallFailure, Kind};
use pyo3::prelude::*;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a wait lasts before it looks for signals.
pub const SLICE: Duration = Duration::from_millis(50);

/// Waits for an answer. Python's signal handlers run meanwhile, so this can fail with `KeyboardInterrupt`.
pub fn wait_for<T: Send>(py: Python<'_>, answer: Receiver<Result<T, CallFailure>>) -> PyResult<T> {
    wait_until(py, answer, None)?.ok_or_else(|| CallFailure::ended().into())
}

/// [`wait_for`], but at most until this moment: then the answer is `None`.
pub fn wait_until<T: Send>(
    py: Python<'_>,
    answer: Receiver<Result<T, CallFailure>>,
    end: Option<Instant>,
) -> PyResult<Option<T>> {
    wait_in_slices(py, answer, end, || Ok(()))
}

fn wait_in_slices<T: Send>(
    py: Python<'_>,
    mut answer: Receiver<Result<T, CallFailure>>,
    end: Option<Instant>,
    mut meanwhile: impl FnMut() -> PyResult<()>,
) -> PyResult<Option<T>> {
    loop {
        let slice = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
        let received;
        (answer, received) = py.detach(move || {
            let received = answer.recv_timeout(slice);
            (answer, received)
        });
        match received {
            Ok(answer) => return Ok(Some(answer?)),
            Err(RecvTimeoutError::Disconnected) => return Err(CallFailure::ended().into()),
            Err(RecvTimeoutError::Timeout) => py.check_signals().and_then(|()| meanwhile())?,
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(None);
        }
    }
}

/// Whether a call that Ctrl-C ends waits for the end of its work.
#[derive(Clone, Copy)]
pub enum Joins {
    /// The work ends soon after its flag is set, and what it changes is whole then.
    Yes,
    /// The work may go on for a while. It needs no Python, and ends by itself.
    No,
}

/// Runs `work` on a thread of this name, and waits for it. `meanwhile` is called between the slices of the wait. If it
/// fails, or on Ctrl-C, the flag that `work` has is set.
pub fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    (name, joins): (&str, Joins),
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, CallFailure> + Send + 'static,
    meanwhile: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let (stop, (send, answer)) = (Arc::new(AtomicBool::new(false)), channel());
    let watched = stop.clone();
    let run = move || drop(send.send(work(watched)));
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    let failed = |error| CallFailure::new(Kind::Machine, format!("no thread {name}: {error}"));
    let thread = thread.map_err(failed)?;
    let result = wait_in_slices(py, answer, None, meanwhile);
    stop.store(true, Relaxed);
    if let Joins::Yes = joins {
        py.detach(|| drop(thread.join()));
    }
    result?.ok_or_else(|| CallFailure::ended().into())
}

/// The process that made an object. Its connections and threads are not those of a forked process.
#[derive(Debug, Clone, Copy)]
pub struct Maker(u32);

impl Maker {
    /// This process.
    pub fn this() -> Maker {
        Maker(process::id())
    }

    /// Whether this process is the one that made the object.
    pub fn is_here(self) -> bool {
        process::id() == self.0
    }

    /// Refuses a call in a forked process.
    pub fn check(self) -> Result<(), CallFailure> {
        if self.is_here() {
            return Ok(());
        }
        let (made, here) = (self.0, process::id());
        Err(CallFailure::new(
            Kind::Fork,
            format!(
                "this client was connected in process {made}, and this is process {here}, a fork of it: a fork has \
                 none of the client's threads; call gannet.connect here, or start processes with \
                 multiprocessing.get_context(\"spawn\")"
            ),
        ))
    }
}
