//! A connection to the servers of a job.

use crate::connecting::{Connecting, configuration};
use crate::eviction::EvictionTexts;
use crate::failure::{CallFailure, Kind};
use crate::lent::free_ended_arrays;
use crate::owner::{NotFinite, Owner, OwnerThread};
use crate::schema::Description;
use crate::table::Table;
use crate::waiting::{Maker, wait_for, wait_until};
use gannet::sync::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet::table::TableId;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeWarning};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the end of a client waits until the servers know of it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What a client and its tables share.
#[derive(Debug)]
pub struct Shared {
    /// `None` only while this is dropped.
    thread: Option<OwnerThread>,
    maker: Maker,
    closed: AtomicBool,
    /// Numbers of pulls.
    pub next_pull: AtomicU64,
}

impl Shared {
    /// The thread, for a call in the process that connected, before the client is closed.
    pub fn thread(&self) -> Result<&OwnerThread, CallFailure> {
        self.maker.check()?;
        let closed = || CallFailure::input("this client is closed: call gannet.connect again");
        self.thread.as_ref().filter(|_| !self.closed.load(Relaxed)).ok_or_else(closed)
    }

    /// Asks the thread, and waits for its answer.
    pub fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Owner) -> Result<T, CallFailure> + Send + 'static,
    ) -> PyResult<T> {
        let thread = self.thread()?;
        let answer = thread.ask(work);
        let result = noted(py, thread, wait_for(py, answer));
        free_ended_arrays(py);
        self.warn(py)?;
        result
    }

    /// Passes a warning of the thread on to Python. The frames above are a method of the package, and its caller.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let warning = thread.state.warning.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(text) = warning.and_then(|text| CString::new(text).ok()) else { return Ok(()) };
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
    }

    /// Tells the thread something, if it is still there.
    pub fn tell(&self, work: impl FnOnce(&mut Owner) + Send + 'static) {
        if let Ok(thread) = self.thread() {
            thread.tell(work);
        }
    }
}

/// Notes that Ctrl-C has ended a wait.
fn noted<T>(py: Python<'_>, thread: &OwnerThread, result: PyResult<T>) -> PyResult<T> {
    if result.as_ref().is_err_and(|error| error.is_instance_of::<PyKeyboardInterrupt>(py)) {
        thread.state.progress.interrupted.store(true, Relaxed);
    }
    result
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A fork has copies of locks that a thread of the other process may have held.
        if !self.maker.is_here() {
            std::mem::forget(self.thread.take());
        }
    }
}

/// How a client keeps step with others.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Joining {
    rank: u32,
    workers: u32,
    /// "asp", "ssp" or "bsp".
    mode: String,
    /// Steps, for ssp.
    bound: u32,
    /// Whether pushes of a step are averaged, for bsp.
    mean: bool,
    /// Seconds.
    worker_timeout: f64,
}

impl Joining {
    fn config(self) -> Result<SyncConfig, CallFailure> {
        let Joining { rank, workers, bound, mean, worker_timeout: seconds, .. } = self;
        let merge = if mean { Merge::Mean } else { Merge::Sum };
        let mode = match &*self.mode {
            "asp" => SyncMode::Asp,
            "ssp" => SyncMode::Ssp(bound),
            _ => SyncMode::Bsp(StepReduce { aggregate: workers, merge }),
        };
        let wrong = || {
            CallFailure::input(format!("worker_timeout is {seconds}; a number of seconds above 0 is wanted"))
        };
        let worker_timeout = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
        Ok(SyncConfig { rank, workers, mode, worker_timeout, strict: false })
    }
}

/// A connection to the servers of a job.
#[pyclass(module = "gannet._native", frozen)]
pub struct Client {
    shared: Arc<Shared>,
    /// The transport of its links.
    #[pyo3(get)]
    transport: String,
}

#[pymethods]
impl Client {
    /// Connects to every server. `not_finite` is "warn", "raise" or "count".
    #[new]
    fn new(py: Python<'_>, asked: Connecting, not_finite: &str) -> PyResult<Client> {
        let about_not_finite = match not_finite {
            "raise" => NotFinite::Raise,
            "count" => NotFinite::Count,
            _ => NotFinite::Warn,
        };
        let (net, config) = configuration(asked)?;
        let failed =
            |error| CallFailure::new(Kind::Machine, format!("starting the client's thread: {error}"));
        let (thread, answer) = OwnerThread::start(net, config, about_not_finite).map_err(failed)?;
        let transport = wait_for(py, answer)?;
        let shared = Shared {
            thread: Some(thread),
            maker: Maker::this(),
            closed: AtomicBool::new(false),
            next_pull: AtomicU64::new(0),
        };
        Ok(Client { shared: Arc::new(shared), transport })
    }

    /// Creates or opens a table.
    fn table(&self, py: Python<'_>, description: Description, eviction: EvictionTexts) -> PyResult<Table> {
        let (schema, eviction) = (description.schema()?, eviction.eviction()?);
        let opened = schema.clone();
        let id =
            self.shared.call(py, move |owner| owner.evictions.open(&mut owner.worker, &opened, eviction))?;
        Ok(Table::new(self.shared.clone(), id, &schema))
    }

    /// Waits until the servers have acknowledged all pushes.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.call(py, Owner::flush)
    }

    /// What the client has done so far.
    fn counters(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, u64>> {
        let counters = self.shared.call(py, |owner| Ok(owner.worker.counters()))?;
        Ok(HashMap::from([
            ("applied", counters.applied),
            ("duplicate", counters.duplicate),
            ("not_finite", counters.not_finite),
            ("not_admitted", counters.not_admitted),
            ("late_rows", counters.late_rows),
            ("resends", counters.resends),
            ("links_lost", counters.links_lost),
            ("bytes_sent", counters.bytes_sent),
            ("bytes_received", counters.bytes_received),
        ]))
    }

    /// Joins the workers that keep step over these tables. Returns the clock to begin at.
    fn join(&self, py: Python<'_>, tables: Vec<PyRef<'_, Table>>, joining: Joining) -> PyResult<u64> {
        let tables: Vec<TableId> = tables.iter().map(|table| table.id()).collect();
        let sync = joining.config()?;
        self.shared.call(py, move |owner| {
            let clock = owner.worker.join_all(&tables, sync)?;
            owner.joined.extend(tables.into_iter().map(|table| (table, sync.mode.is_bsp())));
            Ok(clock)
        })
    }

    /// Ends the step over the tables that were joined. Returns the clock of the next step, the lowest of the tables'.
    fn tick(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared.call(py, |owner| {
            let mut lowest = None;
            for (table, _) in owner.joined.clone() {
                let clock = owner.worker.tick(table)?;
                lowest = Some(lowest.unwrap_or(clock).min(clock));
            }
            lowest.ok_or_else(|| {
                CallFailure::input("this client has not joined, so it has no steps: call join first")
            })
        })
    }

    /// Leaves the workers that keep step, once all pushes have been acknowledged.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.call(py, |owner| {
            for (table, _) in std::mem::take(&mut owner.joined) {
                owner.worker.leave(table)?;
            }
            Ok(())
        })
    }

    /// Waits for all pushes, leaves, and closes the connection. With `seconds` it waits at most so long for the pushes.
    /// Returns whether all were acknowledged.
    #[pyo3(signature = (seconds = None))]
    fn close(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<bool> {
        if self.shared.closed.swap(true, Relaxed) || !self.shared.maker.is_here() {
            return Ok(true);
        }
        let Some(thread) = &self.shared.thread else { return Ok(true) };
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e6)));
        let [answer, farewell] = thread.close();
        let closed = noted(py, thread, wait_until(py, answer, end));
        free_ended_arrays(py);
        self.shared.warn(py)?;
        let closed = closed?.is_some();
        if closed {
            let end = Instant::now() + FAREWELL_MAX;
            noted(py, thread, wait_until(py, farewell, Some(end)))?;
        }
        Ok(closed)
    }

    /// Whether the client is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.closed.load(Relaxed)
    }

    /// Whether Ctrl-C has ended a wait.
    #[getter]
    fn interrupted(&self) -> bool {
        self.shared.thread.as_ref().is_some_and(|thread| thread.state.progress.interrupted.load(Relaxed))
    }
}
