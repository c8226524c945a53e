//! The thread of a client. It owns the worker, does what calls ask of it in their order, and keeps the links alive
//! between calls: pings, heartbeats, and pushes on their way.

use crate::batch::Batch;
use crate::eviction::Evictions;
use crate::failure::CallFailure;
use crate::rows::Buffers;
use crate::waiting::Maker;
use gannet::table::TableId;
use gannet::worker::{CLIENTS, PullId, PushId, PushRows, WorkerError};
use gannet::{Read, Transports, Worker, WorkerConfig, Write};
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pushes of a client on their way. One more waits for the oldest, so that their memory stays in the cache.
const PUSHES_MAX: usize = 4;
/// The first pause between turns of the links while requests are on their way, and no call waits. A server may send
/// only so much ahead, so a longer pause would stop it. Each pause in which nothing comes doubles the next.
const BUSY_PAUSE_MIN: Duration = Duration::from_micros(50);
/// The longest such pause. Pushes of a synchronous step wait for other workers, and that may take long.
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(2);
/// The most turns in a row, while something comes, before the thread looks for tasks again.
const TURNS_MAX: usize = 64;
/// How often the links have a turn otherwise.
const IDLE_TURN: Duration = Duration::from_millis(100);

/// Something for the thread to do.
type Task = Box<dyn FnOnce(&mut Owner) + Send>;

/// What other threads may know of a client's thread at any time.
#[derive(Debug, Default)]
pub struct FlushProgress {
    /// Pushes are on their way, so the process should not end yet.
    owes: AtomicBool,
    /// Ctrl-C has ended a wait, so the thread may be busy with something that nobody waits for.
    pub interrupted: AtomicBool,
}

/// What a client does about rows that the servers have dropped, because a value was NaN, infinite or beyond the row
/// type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotFinite {
    /// The first call that finds some warns.
    #[default]
    Warn,
    /// A call that finds new ones fails.
    Raise,
    /// They are counted.
    Count,
}

/// Rows of pulls, or why they failed, by the number of the pull. The client's thread puts them here as soon as they
/// have come. A caller then need not wait until the thread has done what it was asked later.
#[derive(Debug, Default)]
pub struct EndedPulls(Mutex<HashMap<u64, Result<Vec<f32>, CallFailure>>>);

impl EndedPulls {
    /// Takes the rows of a pull, if they are here.
    pub fn take(&self, number: u64) -> Option<Result<Vec<f32>, CallFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    fn put(&self, number: u64, rows: Result<Vec<f32>, CallFailure>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, rows);
    }
}

/// What a client's thread shares with callers.
#[derive(Debug, Default)]
pub struct SharedState {
    /// Buffers of rows.
    pub buffers: Arc<Buffers>,
    /// Pulls that have ended, and that nobody has asked for.
    pub pulled: EndedPulls,
    /// What other threads may know of the client's thread.
    pub progress: Arc<FlushProgress>,
    /// A warning about rows that servers have dropped. The next call takes it.
    pub warning: Mutex<Option<String>>,
}

/// The worker, and what is on its way. It belongs to the client's thread.
pub struct Owner {
    /// The worker.
    pub worker: Worker<Transports>,
    /// Tables that keep step with other workers, and whether their steps are synchronous.
    pub joined: Vec<(TableId, bool)>,
    /// Tables that were pushed to.
    pub pushed: Vec<TableId>,
    /// What was said of rows that die.
    pub evictions: Evictions,
    /// Pulls on their way, in the order in which they began.
    pulls: BTreeMap<u64, Result<PullId, CallFailure>>,
    pushes: VecDeque<PushId>,
    state: Arc<SharedState>,
    /// An error between calls, which the next call returns.
    failure: Option<CallFailure>,
    about_not_finite: NotFinite,
    /// Rows that servers had dropped when the thread last looked.
    not_finite: u64,
    ends: bool,
}

impl Owner {
    fn new(worker: Worker<Transports>, state: Arc<SharedState>, about_not_finite: NotFinite) -> Owner {
        let (joined, pushed, pulls, pushes) = (Vec::new(), Vec::new(), BTreeMap::new(), VecDeque::new());
        let (failure, not_finite, ends) = (None, 0, false);
        let evictions = Evictions::default();
        Owner {
            worker,
            joined,
            pushed,
            evictions,
            pulls,
            pushes,
            state,
            failure,
            about_not_finite,
            not_finite,
            ends,
        }
    }

    /// The thread: does what it is asked until nobody can ask any more, or until it is told to end.
    fn run(mut self, tasks: &Receiver<Task>) {
        let mut pause = BUSY_PAUSE_MIN;
        while !self.ends {
            let busy = !self.pulls.is_empty() || !self.pushes.is_empty();
            match tasks.recv_timeout(if busy { pause } else { IDLE_TURN }) {
                Ok(task) => {
                    task(&mut self);
                    self.end_pulls();
                    pause = BUSY_PAUSE_MIN;
                }
                Err(RecvTimeoutError::Timeout) => {
                    pause = if self.turn() { BUSY_PAUSE_MIN } else { (2 * pause).min(BUSY_PAUSE_MAX) };
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // Nobody has closed the client: what was pushed must still arrive.
                    if self.close().is_ok() {
                        self.farewell();
                    }
                    return;
                }
            }
        }
    }

    /// Turns for the links, as long as something comes. Returns whether anything did.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..TURNS_MAX {
            match self.worker.poll() {
                Ok(true) => moved = true,
                Ok(false) => break,
                Err(error) => {
                    self.failure.get_or_insert(error.into());
                    break;
                }
            }
        }
        while self.pushes.front().is_some_and(|&push| self.worker.is_acked(push)) {
            self.pushes.pop_front();
        }
        if self.pushes.is_empty() {
            self.state.progress.owes.store(false, Relaxed);
        }
        self.end_pulls();
        self.note_not_finite();
        moved
    }

    /// Looks whether servers have dropped more rows of pushes. A warning is for the caller, an error for the next call.
    fn note_not_finite(&mut self) {
        let rows = self.worker.counters().not_finite;
        let new = rows - std::mem::replace(&mut self.not_finite, rows);
        if new == 0 {
            return;
        }
        let are = if new == 1 { "row of a push was" } else { "rows of pushes were" };
        let text = format!(
            "the servers have dropped rows: {new} {are} NaN, infinite or beyond the table's row type, so nothing was \
             learned from them: look for such gradients, or lower the rate. Table.stats counts such rows"
        );
        match self.about_not_finite {
            NotFinite::Warn if new == rows => {
                let text = format!("{text}, and connect(not_finite=\"raise\") makes an error of them");
                *self.state.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
            NotFinite::Raise => drop(self.failure.get_or_insert(CallFailure::input(text))),
            NotFinite::Warn | NotFinite::Count => {}
        }
    }

    /// Ends the oldest pulls, as far as their rows have come.
    fn end_pulls(&mut self) {
        while let Some(oldest) = self.pulls.first_entry() {
            if oldest.get().as_ref().is_ok_and(|&pull| !self.worker.is_pulled(pull)) {
                return;
            }
            let (number, begun) = oldest.remove_entry();
            let rows = begun.and_then(|pull| Ok(self.worker.finish_pull(pull)?.values));
            self.state.pulled.put(number, rows);
        }
    }

    /// Begins a pull of rows of `dim` floats under this number.
    pub fn begin_pull(&mut self, number: u64, table: TableId, dim: usize, batch: &Batch) {
        let buffer = self.state.buffers.take(batch.unique() * dim);
        let begun = self.worker.begin_pull(table, batch.keys().clone(), Read::Weights, buffer, false);
        self.pulls.insert(number, begun.map_err(CallFailure::from));
    }

    /// Waits for the rows of a pull.
    pub fn finish_pull(&mut self, number: u64) -> Result<Vec<f32>, CallFailure> {
        if let Some(rows) = self.state.pulled.take(number) {
            return rows;
        }
        let again = || {
            CallFailure::input(
                "this pull has been finished before, or Ctrl-C has ended its wait: keep the array that it returned, or \
                     pull again",
            )
        };
        let pull = self.pulls.remove(&number).ok_or_else(again)??;
        Ok(self.worker.finish_pull(pull)?.values)
    }

    /// Forgets a pull that nobody wants any more.
    pub fn drop_pull(&mut self, number: u64) {
        let rows = match self.pulls.remove(&number) {
            Some(Ok(pull)) => self.worker.finish_pull(pull).ok().map(|pulled| pulled.values),
            _ => self.state.pulled.take(number).and_then(Result::ok),
        };
        rows.into_iter().for_each(|rows| self.state.buffers.keep(rows));
    }

    /// Begins a push of gradients. With too many on their way it waits for the oldest.
    pub fn begin_push(&mut self, table: TableId, batch: &Batch, rows: PushRows) -> Result<(), CallFailure> {
        self.begin_write(table, batch, Write::Gradient, rows)
    }

    /// Begins to store whole rows, with the optimizer's state.
    pub fn begin_assign(&mut self, table: TableId, batch: &Batch, rows: Vec<f32>) -> Result<(), CallFailure> {
        self.begin_write(table, batch, Write::Row, rows.into())
    }

    fn begin_write(
        &mut self,
        table: TableId,
        batch: &Batch,
        write: Write,
        rows: PushRows,
    ) -> Result<(), CallFailure> {
        while self.pushes.len() >= PUSHES_MAX && !self.is_synchronous() {
            if let Some(oldest) = self.pushes.pop_front() {
                self.worker.finish_push(oldest)?;
            }
        }
        self.note_push(table);
        let seq = self.worker.next_seq(table);
        let push = self.worker.begin_push(table, batch.keys().clone(), write, rows, None, seq)?;
        self.pushes.push_back(push);
        self.state.buffers.keep(self.worker.spare());
        Ok(())
    }

    /// Remembers that this table was pushed to.
    fn note_push(&mut self, table: TableId) {
        self.state.progress.owes.store(true, Relaxed);
        if !self.pushed.contains(&table) {
            self.pushed.push(table);
        }
    }

    /// Whether pushes belong to synchronous steps. Those are acknowledged when their step has ended, so nothing may
    /// wait for them before.
    fn is_synchronous(&self) -> bool {
        self.joined.iter().any(|&(_, synchronous)| synchronous)
    }

    /// Stores the rows of a folder into a table. Returns their number.
    pub fn load(&mut self, table: TableId, folder: &Path) -> Result<u64, CallFailure> {
        self.note_push(table);
        let rows = self.worker.load(table, folder)?;
        self.flush()?;
        Ok(rows)
    }

    /// Waits until all pushes are acknowledged.
    pub fn flush(&mut self) -> Result<(), CallFailure> {
        self.worker.drain()?;
        self.pushes.clear();
        self.state.progress.owes.store(false, Relaxed);
        self.note_not_finite();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Leaves, and waits for all pushes. The thread then ends.
    fn close(&mut self) -> Result<(), CallFailure> {
        self.ends = true;
        let failed = self.failure.take();
        for (table, _) in std::mem::take(&mut self.joined) {
            self.worker.leave(table)?;
        }
        let flushed = self.flush();
        failed.map_or(flushed, Err)
    }

    /// Says to the servers that this pusher has ended, so that another one may have its place there. It matters only to
    /// servers that live for thousands of clients.
    fn farewell(&mut self) {
        let tables = std::mem::take(&mut self.pushed);
        // A server that is gone has forgotten the pusher anyway.
        let _ = tables.into_iter().try_for_each(|table| self.worker.close_pusher(table));
    }
}

/// How other threads reach the thread of a client.
#[derive(Debug)]
pub struct OwnerThread {
    tasks: Sender<Task>,
    /// What the thread shares with callers.
    pub state: Arc<SharedState>,
}

impl OwnerThread {
    /// Starts the thread, which connects. The answer comes when it has, and says over which transport.
    pub fn start(
        net: Transports,
        config: WorkerConfig,
        about_not_finite: NotFinite,
    ) -> std::io::Result<(OwnerThread, Receiver<Result<String, CallFailure>>)> {
        let (tasks, queue) = channel::<Task>();
        let (connected, answer) = sync_channel(1);
        let state: Arc<SharedState> = Arc::default();
        let shared = state.clone();
        let run = move || match connect(net, config) {
            Ok(worker) => {
                let named = connected.send(Ok(worker.transport()));
                // If nobody waits any more, Ctrl-C has ended the call.
                if named.is_ok() {
                    Owner::new(worker, shared, about_not_finite).run(&queue);
                }
            }
            Err(error) => drop(connected.send(Err(error.into()))),
        };
        let thread = thread::Builder::new().name("gannet-client".into()).spawn(run)?;
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|known| !known.thread.is_finished());
        threads.push(KnownThread { maker: Maker::this(), thread, progress: state.progress.clone() });
        Ok((OwnerThread { tasks, state }, answer))
    }

    /// Asks the thread to do something. The answer comes when it is done, after everything that it was asked before.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Owner) -> Result<T, CallFailure> + Send + 'static,
    ) -> Receiver<Result<T, CallFailure>> {
        let (done, answer) = sync_channel(1);
        self.tell(move |owner| {
            let result = match owner.failure.take() {
                Some(failure) => Err(failure),
                None => work(owner),
            };
            owner.note_not_finite();
            // Nobody waits any more after Ctrl-C. A failure is then for the next call.
            if let Err(lost) = done.send(result)
                && let Err(failure) = lost.0
            {
                owner.failure.get_or_insert(failure);
            }
        });
        answer
    }

    /// Asks the thread to do something that has no answer.
    pub fn tell(&self, work: impl FnOnce(&mut Owner) + Send + 'static) {
        // If the thread has ended, the answer's sender is dropped with the task, and who waits learns of it.
        drop(self.tasks.send(Box::new(work)));
    }

    /// Asks the thread to end, also after an error. The first answer comes when all pushes are acknowledged, the second
    /// when the servers know that this pusher has ended.
    pub fn close(&self) -> [Receiver<Result<(), CallFailure>>; 2] {
        let ((done, answer), (ended, end)) = (sync_channel(1), sync_channel(1));
        self.tell(move |owner| {
            let closed = owner.close();
            let is_closed = closed.is_ok();
            drop(done.send(closed));
            if is_closed {
                owner.farewell();
            }
            drop(ended.send(Ok(())));
        });
        [answer, end]
    }
}

/// A client's thread, for the end of the process.
struct KnownThread {
    maker: Maker,
    thread: JoinHandle<()>,
    progress: Arc<FlushProgress>,
}

/// The threads of all clients that may not have ended.
static THREADS: Mutex<Vec<KnownThread>> = Mutex::new(Vec::new());

/// Waits until no client of this process has pushes on their way: at most so many seconds, and at most a second for
/// those whose waits Ctrl-C has ended.
#[pyfunction]
pub fn wait_for_pushes(py: Python<'_>, seconds: f64) -> PyResult<()> {
    let (begin, limit) = (Instant::now(), Duration::from_secs_f64(seconds.clamp(0.0, 1e6)));
    loop {
        let waited = begin.elapsed();
        let owes = |known: &KnownThread| {
            let patience =
                if known.progress.interrupted.load(Relaxed) { Duration::from_secs(1) } else { limit };
            let owes =
                known.maker.is_here() && known.progress.owes.load(Relaxed) && !known.thread.is_finished();
            owes && waited < patience
        };
        if !THREADS.lock().unwrap_or_else(PoisonError::into_inner).iter().any(owes) {
            return Ok(());
        }
        py.detach(|| thread::sleep(Duration::from_millis(5)));
        py.check_signals()?;
    }
}

/// Connects. A configuration without a pusher (0) gets one that nobody has had.
pub fn connect(net: Transports, mut config: WorkerConfig) -> Result<Worker<Transports>, WorkerError> {
    if config.pusher == 0 {
        config.incarnation = Worker::allocate_incarnation(net.clone(), &config)?;
        config.pusher = CLIENTS + config.incarnation;
        config.seed = config.incarnation.rotate_left(32);
    }
    Worker::connect(net, config)
}
