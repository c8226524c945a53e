//! Batches of a data set. A thread reads ahead, into a bounded queue. It needs the GIL only where the data is a Python
//! object that needs it.

use crate::dataset::unreadable;
use crate::failure::{CallFailure, Kind};
use crate::waiting::{Maker, wait_next};
use gannet::train::{BadLines, Block, Data, ReadError, Reader, Share, StopFlag};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Batches that wait for the program.
const AHEAD_MAX: usize = 2;
/// How long the end of a reading waits for the thread, which may be inside a call of the data's owner.
const END_MAX: Duration = Duration::from_secs(1);

/// What the thread sends.
enum Item {
    Batch(Numbers),
    /// All passes have ended. There may be something to warn of.
    End(Option<String>),
}

/// A batch.
struct Numbers {
    epoch: u32,
    labels: Vec<f32>,
    offsets: Vec<i64>,
    keys: Vec<u64>,
    values: Vec<f32>,
    importances: Vec<f32>,
}

/// A batch in arrays: epoch, labels, offsets, keys, values, importances.
type Arrays<'py> = (
    u32,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f32>>,
);

impl Numbers {
    fn of(block: Block, epoch: u32) -> Numbers {
        let Block { labels, offsets, keys, values, mut importances, .. } = block;
        let offsets = offsets.into_iter().map(i64::from).collect();
        importances.resize(labels.len(), 1.0);
        Numbers { epoch, labels, offsets, keys, values, importances }
    }

    /// Hands the memory to numpy. Nothing is copied.
    fn arrays(self, py: Python<'_>) -> Arrays<'_> {
        let Numbers { epoch, labels, offsets, keys, values, importances } = self;
        let (labels, offsets) = (labels.into_pyarray(py), offsets.into_pyarray(py));
        let (keys, values) = (keys.into_pyarray(py), values.into_pyarray(py));
        (epoch, labels, offsets, keys, values, importances.into_pyarray(py))
    }
}

type Sender = SyncSender<Result<Item, CallFailure>>;

/// What the thread does. It returns early if nobody wants its batches any more.
fn read(data: &Data, size: usize, epochs: u32, share: Share, send: &Sender) -> Result<(), ReadError> {
    let mut warning = None;
    for epoch in 0..epochs {
        let mut reader = Reader::open(data, size, share)?;
        let mut block = Block::default();
        while reader.next(&mut block)? {
            let numbers = Numbers::of(std::mem::take(&mut block), epoch);
            if data.stop.is_set() || send.send(Ok(Item::Batch(numbers))).is_err() {
                return Ok(());
            }
        }
        warning = skipped(reader.bad_lines());
    }
    // If the receiver is gone, nobody wants to know.
    let _ = send.send(Ok(Item::End(warning)));
    Ok(())
}

/// A warning about lines that were skipped.
fn skipped(bad: &BadLines) -> Option<String> {
    let first = bad.first.first()?;
    Some(format!("bad lines were skipped: {} in each pass; the first: {first}", bad.count))
}

/// The thread, while there is one.
struct ReadAhead {
    items: Receiver<Result<Item, CallFailure>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ReadAhead {
    /// Stops the thread, and waits for its end. A thread that is inside a call for long ends after that call.
    fn end(self) {
        let ReadAhead { items, ended, stop, thread } = self;
        stop.store(true, Relaxed);
        drop(items);
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|(_, thread)| !thread.is_finished());
        drop(left);
        if !joined(&ended, END_MAX) {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((ended, thread));
        } else {
            // It sends nothing more, and its panic was printed.
            drop(thread.join());
        }
    }
}

/// Stopped threads that were inside a call for long.
static LEFT: Mutex<Vec<(Receiver<()>, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Waits for the end of a thread. Returns whether it has ended.
fn joined(ended: &Receiver<()>, most: Duration) -> bool {
    ended.recv_timeout(most) == Err(RecvTimeoutError::Disconnected)
}

/// Waits for stopped threads that are still inside a call, at most so long. The end of the interpreter would abort the
/// process if a thread needed the GIL then.
#[pyfunction]
pub fn wait_for_readers(py: Python<'_>, seconds: f64) {
    py.detach(|| {
        let end = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
        let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
        for (ended, thread) in left {
            if joined(&ended, end.saturating_duration_since(Instant::now())) {
                drop(thread.join());
            }
        }
    });
}

/// The batches that a thread reads.
#[pyclass(module = "gannet._native", frozen)]
pub struct Batches {
    /// `None`: they have ended, or a call waits for the next one.
    reading: Mutex<Option<ReadAhead>>,
    maker: Maker,
}

impl Batches {
    /// Starts the thread.
    pub fn start(data: Data, size: usize, epochs: u32, share: Share) -> Result<Batches, CallFailure> {
        let (send, items) = sync_channel(AHEAD_MAX);
        let (alive, ended) = sync_channel(0);
        let stop = Arc::new(AtomicBool::new(false));
        let data = Data { stop: StopFlag::from(stop.clone()), ..data };
        let work = move || {
            let _alive: SyncSender<()> = alive;
            if let Err(error) = read(&data, size, epochs, share, &send) {
                let _ = send.send(Err(unreadable(&error)));
            }
            drop(data);
        };
        let thread = std::thread::Builder::new().name("gannet-read".into()).spawn(work);
        let thread =
            thread.map_err(|error| CallFailure::new(Kind::Machine, format!("no thread to read: {error}")))?;
        let reading = Mutex::new(Some(ReadAhead { items, ended, stop, thread }));
        Ok(Batches { reading, maker: Maker::this() })
    }

    fn take(&self) -> Option<ReadAhead> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Batches {
    /// Waits for the next batch. `None`, and what to warn of: there are no more.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<(Option<Arrays<'py>>, Option<String>)> {
        if !self.maker.is_here() {
            let text = "these batches were begun in another process, whose fork this is: a fork has none of its \
                        threads; call batches() here";
            return Err(CallFailure::new(Kind::Fork, text).into());
        }
        let Some(mut reading) = self.take() else { return Ok((None, None)) };
        let next;
        (reading.items, next) = wait_next(py, reading.items);
        match next {
            Ok(Item::Batch(numbers)) => {
                *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
                Ok((Some(numbers.arrays(py)), None))
            }
            Ok(Item::End(warning)) => {
                py.detach(|| reading.end());
                Ok((None, warning))
            }
            Err(error) => {
                py.detach(|| reading.end());
                Err(error)
            }
        }
    }

    /// Ends the reading, and its thread.
    fn close(&self, py: Python<'_>) {
        if self.maker.is_here()
            && let Some(reading) = self.take()
        {
            py.detach(|| reading.end());
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        let Some(reading) = self.take() else { return };
        if !self.maker.is_here() {
            // A fork has copies of locks that the thread may have held.
            std::mem::forget(reading);
            return;
        }
        // The thread may need the GIL to end. Without an interpreter there is nobody to give it.
        let mut reading = Some(reading);
        let ended = Python::try_attach(|py| {
            let reading = reading.take();
            py.detach(|| reading.map(ReadAhead::end));
        });
        if ended.is_none() {
            std::mem::forget(reading);
        }
    }
}
