//! Batches of a data set. A thread reads ahead, into a bounded queue (ahead.rs). It needs the GIL only where the data
//! is a Python object that needs it.
//!
//! Threads of Python may share the batches. At the end of the interpreter no thread may be inside a call here, and no
//! thread that reads may need the GIL: the system would abort the process. So that end closes all batches first.

use crate::ahead::{Queue, Taken};
use crate::dataset::unreadable;
use crate::failure::{CallFailure, Kind};
use crate::waiting::{Maker, SLICE};
use gannet::train::{BadLines, Block, Data, ReadError, Reader, Share, StopFlag, UnchangedFiles};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    bases: Vec<f32>,
    fields: Vec<u64>,
}

/// A batch in arrays: epoch, labels, offsets, keys, values, importances, bases, fields.
type Arrays<'py> = (
    u32,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<u64>>,
);

impl Numbers {
    fn of(block: Block, epoch: u32) -> Numbers {
        let Block { labels, offsets, keys, values, mut importances, mut bases, fields, .. } = block;
        let offsets = offsets.into_iter().map(i64::from).collect();
        importances.resize(labels.len(), 1.0);
        bases.resize(labels.len(), 0.0);
        Numbers { epoch, labels, offsets, keys, values, importances, bases, fields }
    }

    /// Hands the memory to numpy. Nothing is copied.
    fn arrays(self, py: Python<'_>) -> Arrays<'_> {
        let Numbers { epoch, labels, offsets, keys, values, importances, bases, fields } = self;
        let (labels, offsets) = (labels.into_pyarray(py), offsets.into_pyarray(py));
        let (keys, values) = (keys.into_pyarray(py), values.into_pyarray(py));
        let (importances, bases) = (importances.into_pyarray(py), bases.into_pyarray(py));
        (epoch, labels, offsets, keys, values, importances, bases, fields.into_pyarray(py))
    }
}

type Batched = Queue<Result<Item, CallFailure>>;

/// What the thread does. It returns early if nobody wants its batches any more.
fn read(data: &Data, size: usize, epochs: u32, share: Share, queue: &Batched) -> Result<(), ReadError> {
    let (mut warning, unchanged) = (None, UnchangedFiles::of(data, epochs)?);
    for epoch in 0..epochs {
        let mut reader = Reader::open(data, size, share)?;
        let mut block = Block::default();
        while reader.next(&mut block)? {
            let numbers = Numbers::of(std::mem::take(&mut block), epoch);
            if data.stop.is_set() || !queue.put(Ok(Item::Batch(numbers))) {
                return Ok(());
            }
        }
        warning = skipped(reader.bad_lines());
        unchanged.check()?;
    }
    let crosses = (share == Share::ALL).then(|| data.fields.unmade(1)).flatten();
    let warning = [warning, crosses.map(without_features)].into_iter().flatten().collect::<Vec<_>>();
    let warning = (!warning.is_empty()).then(|| warning.join("\n"));
    // If it is closed, nobody wants to know.
    queue.put_last(Ok(Item::End(warning)));
    Ok(())
}

/// A warning about lines that were skipped.
pub fn skipped(bad: &BadLines) -> Option<String> {
    let first = bad.first.first()?;
    Some(format!("bad lines were skipped: {} in each pass; the first: {first}", bad.count))
}

/// A warning about crosses that made no feature.
fn without_features((crosses, examples): (Vec<String>, u64)) -> String {
    format!(
        "these crosses (cross=) made no feature in {examples} examples: {}; see how the data spells the names of their \
         fields",
        crosses.join(", ")
    )
}

/// A reading thread, and its batches.
struct Reading {
    queue: Batched,
    stop: Arc<AtomicBool>,
    /// `None`: somebody waits for its end, or has done so.
    thread: Mutex<Option<ReadThread>>,
}

/// A thread, and a channel that is disconnected when the thread has ended.
struct ReadThread {
    ended: Receiver<()>,
    handle: JoinHandle<()>,
}

impl ReadThread {
    /// Waits for the end of the thread. A thread that is inside a call for longer is given back.
    fn join(self, most: Duration) -> Option<ReadThread> {
        if self.ended.recv_timeout(most) != Err(RecvTimeoutError::Disconnected) {
            return Some(self);
        }
        // It sends nothing more, and its panic was printed.
        drop(self.handle.join());
        None
    }
}

impl Reading {
    fn take_thread(&self) -> Option<ReadThread> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stops the thread, and waits for its end. A thread that is inside a call for long ends after that call.
    fn end(&self) {
        self.stop.store(true, Relaxed);
        let Some(thread) = self.take_thread() else { return };
        let left = thread.join(END_MAX);
        let mut all = all();
        all.left.retain(|thread| !thread.handle.is_finished());
        all.left.extend(left);
    }
}

/// All readings of this process.
struct Readings {
    /// The interpreter ends.
    ends: bool,
    open: Vec<Weak<Reading>>,
    /// Stopped threads that were inside a call for long.
    left: Vec<ReadThread>,
}

static READINGS: Mutex<Readings> = Mutex::new(Readings { ends: false, open: Vec::new(), left: Vec::new() });

fn all() -> MutexGuard<'static, Readings> {
    READINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that wait without the GIL, and want it back.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The interpreter ends, so no call may begin to wait.
static ENDS: AtomicBool = AtomicBool::new(false);

/// A call that may wait without the GIL, or calls Python. It is made and dropped with the GIL.
pub struct Inside;

impl Inside {
    /// `None`: the interpreter ends.
    fn enter() -> Option<Inside> {
        let inside = Inside;
        INSIDE.fetch_add(1, SeqCst);
        (!ENDS.load(SeqCst)).then_some(inside)
    }

    /// [`enter`](Self::enter), or an error. It is one of Python's own: to make one of this package calls Python.
    pub fn enter_or_refuse() -> PyResult<Inside> {
        let text = "the interpreter ends, so nothing more can be read: end the threads that read before";
        Inside::enter().ok_or_else(|| PyRuntimeError::new_err(text))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, SeqCst);
    }
}

/// Closes all batches, and waits for their threads and for the calls of other threads, at most so long. The end of the
/// interpreter would abort the process if one of them needed the GIL then. There are no batches afterwards.
#[pyfunction]
pub fn end_readings(py: Python<'_>, seconds: f64) {
    ENDS.store(true, SeqCst);
    py.detach(|| {
        let end = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
        let (open, mut threads) = {
            let mut all = all();
            all.ends = true;
            (std::mem::take(&mut all.open), std::mem::take(&mut all.left))
        };
        for reading in open.iter().filter_map(Weak::upgrade) {
            reading.queue.close();
            reading.stop.store(true, Relaxed);
            threads.extend(reading.take_thread());
        }
        for thread in threads {
            // One that is still inside a call stays there.
            drop(thread.join(end.saturating_duration_since(Instant::now())));
        }
        while INSIDE.load(SeqCst) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// The batches that a thread reads. Threads of Python may share them.
#[pyclass(module = "gannet._native", frozen)]
pub struct Batches {
    /// `None` only while this is dropped.
    reading: Option<Arc<Reading>>,
    maker: Maker,
}

impl Batches {
    /// Starts the thread.
    pub fn start(data: Data, size: usize, epochs: u32, share: Share) -> Result<Batches, CallFailure> {
        let (alive, ended) = sync_channel(0);
        let stop = Arc::new(AtomicBool::new(false));
        let data = Data { stop: StopFlag::from(stop.clone()), ..data };
        let (queue, thread) = (Queue::new(AHEAD_MAX), Mutex::new(None));
        let reading = Arc::new(Reading { queue, stop, thread });
        let shared = reading.clone();
        let work = move || {
            let _alive: SyncSender<()> = alive;
            // Also if it panics.
            let leaves = Leaves(&shared.queue);
            if let Err(error) = read(&data, size, epochs, share, &shared.queue) {
                shared.queue.put_last(Err(unreadable(&error)));
            }
            drop(leaves);
            drop(data);
        };
        let mut all = all();
        if all.ends {
            return Err(CallFailure::new(Kind::Machine, "the interpreter ends, so nothing more can be read"));
        }
        let handle = std::thread::Builder::new().name("gannet-read".into()).spawn(work);
        let handle =
            handle.map_err(|error| CallFailure::new(Kind::Machine, format!("no thread to read: {error}")))?;
        *reading.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(ReadThread { ended, handle });
        all.open.retain(|open| open.strong_count() > 0);
        all.open.push(Arc::downgrade(&reading));
        Ok(Batches { reading: Some(reading), maker: Maker::this() })
    }
}

/// Tells the queue that its thread is gone.
struct Leaves<'a>(&'a Batched);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave();
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
        let (Some(reading), Some(_inside)) = (&self.reading, Inside::enter()) else {
            return Ok((None, None));
        };
        let failed = loop {
            match py.detach(|| reading.queue.take(SLICE)) {
                // It was closed while this thread waited for the GIL.
                Taken::Item(Ok(Item::Batch(_))) if reading.queue.is_closed() => return Ok((None, None)),
                Taken::Item(Ok(Item::Batch(numbers))) => return Ok((Some(numbers.arrays(py)), None)),
                Taken::Item(Ok(Item::End(warning))) => {
                    py.detach(|| reading.end());
                    return Ok((None, warning));
                }
                Taken::Over => return Ok((None, None)),
                Taken::Item(Err(failure)) => break failure.into(),
                Taken::Lost => break CallFailure::reading_ended().into(),
                Taken::Nothing => {
                    if let Err(interrupt) = py.check_signals() {
                        reading.queue.close();
                        break interrupt;
                    }
                }
            }
        };
        py.detach(|| reading.end());
        Err(failed)
    }

    /// Ends the reading, and its thread. Threads that wait in `next` get no more batches.
    fn close(&self, py: Python<'_>) {
        if self.maker.is_here()
            && let (Some(reading), Some(_inside)) = (&self.reading, Inside::enter())
        {
            reading.queue.close();
            py.detach(|| reading.end());
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        if !self.maker.is_here() {
            // A fork has copies of locks that the thread may have held.
            std::mem::forget(reading);
            return;
        }
        reading.queue.close();
        // The thread may need the GIL to end. Without an interpreter there is nobody to give it.
        let ended = Python::try_attach(|py| {
            if let Some(_inside) = Inside::enter() {
                py.detach(|| reading.end());
            }
        });
        if ended.is_none() {
            std::mem::forget(reading);
        }
    }
}
