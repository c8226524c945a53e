//! How a worker keeps step with others over a table. Its clock counts its steps, and it tells the clock to every server
//! thread behind the pushes of each step. Its pulls wait for slower workers.

use crate::calls::tables::ask_of_links;
use crate::error::WorkerError;
use crate::links::control::post_requests;
use crate::links::read_paths::request_read_path;
use crate::links::steps::too_large;
use crate::requests::control::{ControlRequest, Recipients};
use crate::requests::in_flight::{ControlInFlight, PullPart};
use crate::requests::names::TableId;
use crate::requests::relayout::Relayout;
use crate::tables::clock::TableClock;
use crate::worker::Worker;
use gannet_core::NO_CLOCK;
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::{FenceFrame, JoinFrame, LeaveFrame, TickFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::JoinedV1;
use gannet_wire::sync::{StepReduce, SyncConfig, SyncMode};

/// A slow worker that this one waits for.
///
/// ```
/// # use gannet_core::{Read, Schema};
/// # use gannet_wire::{SyncConfig, SyncMode};
/// # use gannet_optim::{Add, Rule};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
/// # let worker_timeout = std::time::Duration::from_secs(30);
/// # let sync = SyncConfig { rank: 0, workers: 2, mode: SyncMode::Ssp(0), worker_timeout, strict: false };
/// # worker.join(table, sync)?;
/// # let keys = std::sync::Arc::new(worker.cut(table, &[7]));
/// // Worker 0 of 2 is at step 1 of ssp:0. Worker 1 has not begun.
/// worker.tick(table)?;
/// let pull = worker.begin_pull(table, keys, Read::Weights, Vec::new(), false)?;
/// while worker.waiting_for().is_none() {
///     worker.poll()?; // servers report a wait after a second
/// }
/// let slow = worker.waiting_for().map(|slow| (slow.rank, slow.clock, slow.here));
/// assert_eq!(slow, Some((1, 0, false)));
/// assert!(!worker.is_pulled(pull));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingFor {
    /// Its rank.
    pub rank: u32,
    /// The step that it is in.
    pub clock: u64,
    /// It has a connection to the server.
    pub here: bool,
}

impl<N: Net> Worker<N> {
    /// Joins the workers that keep step over a table. From now on its pulls belong to the step that this worker is in,
    /// and [`Worker::tick`] ends the step. Returns the clock to begin at: that of the slowest worker.
    ///
    /// ```
    /// # use gannet_core::{Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// use gannet_wire::{SyncConfig, SyncMode};
    /// use std::time::Duration;
    ///
    /// let (mode, worker_timeout) = (SyncMode::Ssp(8), Duration::from_secs(30));
    /// let sync = SyncConfig { rank: 0, workers: 1, mode, worker_timeout, strict: false };
    /// assert_eq!(worker.join(table, sync)?, 0);
    /// worker.push(table, &[7], Write::Gradient, &[1.0])?;
    /// assert_eq!(worker.tick(table)?, 1); // step 0 has ended
    /// worker.leave(table)?;
    /// assert_eq!(worker.clock(table), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The others keep step in another way, a newer incarnation of this worker has joined, this one has joined before,
    /// or a peer is lost for good.
    pub fn join(&mut self, table: TableId, sync: SyncConfig) -> Result<u64, WorkerError> {
        sync.check().map_err(WorkerError::Call)?;
        if self.tables[table.0].group.is_some() {
            return Err(WorkerError::Call("this worker has joined before".into()));
        }
        self.drain()?;
        let payload = |_: usize, _: u32| control::seal(&sync.request(NO_CLOCK, 0));
        let join = ControlRequest::with_payload(&JoinFrame { table: 0 }, Some(table), &payload);
        let mut clock = 0;
        for answer in ask_of_links(self, &join)? {
            let peer = &mut self.links.peers[answer.link];
            let joined = control::open::<JoinedV1>(&answer.payload).map_err(|error| {
                WorkerError::Protocol { peer: peer.name.clone(), what: error.to_string() }
            })?;
            peer.steps.clocks.resize(peer.steps.clocks.len().max(table.0 + 1), (0, 0));
            peer.steps.clocks[table.0] = (joined.clock, 0);
            clock = clock.max(joined.clock);
        }
        self.tables[table.0].group = Some(TableClock { sync, clock, open: false, late: Vec::new() });
        let links: Vec<usize> = self.links.wanted().collect();
        links.into_iter().try_for_each(|link| self.links.peers[link].check_credit(&self.tables))?;
        // In groups with a lower clock this worker has no pushes for the steps up to it.
        send_clock(self, table, clock, true)?;
        Ok(clock)
    }

    /// Joins over several tables, each of which takes part in every step. The worker begins at the same clock in all of
    /// them: that of the table whose group is furthest. At different clocks workers could wait for each other: this one
    /// for a step of one table, the others for its step of another. End the step of each table before you push to
    /// another.
    ///
    /// # Errors
    /// As [`Worker::join`]; or only some of the workers make each step, and these could differ between the tables.
    pub fn join_all(&mut self, tables: &[TableId], sync: SyncConfig) -> Result<u64, WorkerError> {
        if let SyncMode::Bsp(StepReduce { aggregate, .. }) = sync.mode
            && aggregate < sync.workers
            && tables.len() > 1
        {
            let (n, all) = (tables.len(), sync.workers);
            return Err(WorkerError::Call(format!(
                "steps over {n} tables need all {all} workers, not {aggregate}: each table could wait for different workers"
            )));
        }
        let clocks = tables.iter().map(|&table| self.join(table, sync)).collect::<Result<Vec<_>, _>>()?;
        let most = clocks.iter().copied().max().unwrap_or(0);
        for (&table, clock) in tables.iter().zip(clocks) {
            if let Some(group) = self.tables[table.0].group.as_mut().filter(|_| clock < most) {
                group.clock = most;
                send_clock(self, table, most, true)?;
            }
        }
        Ok(most)
    }

    /// The step that this worker is in; `None` if it has not joined. [`Worker::join`] has an example.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn clock(&self, table: TableId) -> Option<u64> {
        self.tables[table.0].group.as_ref().map(|group| group.clock)
    }

    /// Ends the step: all its pushes have begun. Returns the clock of the next. [`Worker::join`] has an example.
    ///
    /// # Errors
    /// This worker has not joined; or a request was refused.
    pub fn tick(&mut self, table: TableId) -> Result<u64, WorkerError> {
        let Some(group) = &mut self.tables[table.0].group else {
            return Err(WorkerError::Call("a worker that has not joined has no clock".into()));
        };
        (group.clock, group.open) = (group.clock + 1, false);
        let clock = group.clock;
        send_clock(self, table, clock, false)?;
        end_step(self)?;
        Ok(clock)
    }

    /// Leaves the workers that keep step, once all pushes have been acknowledged. No worker waits for this one any
    /// longer. [`Worker::join`] has an example.
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn leave(&mut self, table: TableId) -> Result<(), WorkerError> {
        if self.tables[table.0].group.is_none() {
            return Ok(());
        }
        self.drain()?;
        self.ask(&ControlRequest::about(table, &LeaveFrame { table: 0 }), Recipients::All)?;
        self.tables[table.0].group = None;
        Ok(())
    }

    /// The worker that this one waits for, as the servers last reported. [`WaitingFor`] has an example.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        let lowest = self
            .links
            .peers
            .iter()
            .filter_map(|peer| peer.steps.waits.as_ref())
            .min_by_key(|waits| waits.clock);
        lowest.map(|waits| WaitingFor { rank: waits.rank, clock: waits.clock, here: waits.here })
    }

    /// The sequence numbers of pushes to a table with rows that came too late for their step, since the last call.
    pub fn take_late(&mut self, table: TableId) -> Vec<u64> {
        self.tables[table.0].group.as_mut().map(|group| std::mem::take(&mut group.late)).unwrap_or_default()
    }

    /// Has every server refuse what an incarnation of a worker, and those before it, push to a table. Returns when all
    /// do.
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn fence(&mut self, table: TableId, pusher: u64, incarnation: u64) -> Result<(), WorkerError> {
        // A worker that keeps step pushes under its rank + 1.
        let rank = u32::try_from(pusher.wrapping_sub(1)).unwrap_or(u32::MAX);
        let fence = FenceFrame { table: 0, index: rank, pusher, incarnation };
        self.ask(&ControlRequest::about(table, &fence), Recipients::All).map(|_| ())
    }
}

/// Tells every server thread this worker's clock.
fn send_clock<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    clock: u64,
    skip: bool,
) -> Result<(), WorkerError> {
    worker.links.counters.clock.set(clock);
    request_all(worker, table, &TickFrame { table: 0, clock, skip })
}

/// Queues a request to every server thread. No call waits for the answers.
fn request_all<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    frame: &impl FrameKind,
) -> Result<(), WorkerError> {
    let (now, links) = (worker.links.net.now(), worker.links.wanted().collect::<Vec<_>>());
    let (frame, table) = (UnsentFrame::new(frame), Some(table.0));
    let control = ControlInFlight { frame, table, ..ControlInFlight::default() };
    post_requests(&mut worker.links, control, &links, now).map(drop)
}

/// If no synchronous step is open any longer, sends the requests for read paths that it delayed.
fn end_step<N: Net>(worker: &mut Worker<N>) -> Result<(), WorkerError> {
    if worker.tables.is_in_step() {
        return Ok(());
    }
    for number in 0..worker.links.peers.len() {
        if std::mem::take(&mut worker.links.peers[number].steps.pushed).0 > 0 {
            request_read_path(&mut worker.links, &worker.tables, number)?;
        }
    }
    Ok(())
}

/// Begins a push. Returns `true` if it belongs to a synchronous step, whose pushes must all be in flight at once.
pub(crate) fn begin_step_push<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    bytes: usize,
) -> Result<bool, WorkerError> {
    let Some(group) = worker.tables[table.0].group.as_mut().filter(|group| group.sync.mode.is_bsp()) else {
        return Ok(false);
    };
    let was_open = std::mem::replace(&mut group.open, true);
    if was_open && worker.links.flights.bytes + bytes > worker.links.config.in_flight_bytes_max {
        return Err(too_large(0, worker.links.flights.bytes as u64 + bytes as u64));
    }
    Ok(true)
}

/// Counts a push of a synchronous step on each of its links.
pub(crate) fn count_step_push<N: Net>(
    worker: &mut Worker<N>,
    laid: &Relayout,
    floats: usize,
) -> Result<(), WorkerError> {
    let mut most: (usize, u64) = (0, 0);
    for chunk in laid.chunks() {
        let bytes = u64::from(chunk.len) * (8 + 4 * floats as u64);
        let over = worker.links.peers[chunk.peer as usize].count_step_push(bytes);
        most = most.max(over.unwrap_or_default());
    }
    if most == (0, 0) { Ok(()) } else { Err(too_large(most.0, most.1)) }
}

/// Notes the clock that the answer to a pull reported, and counts how far the slowest worker was behind. A worker
/// that is itself behind its group moves to the group's clock.
pub(crate) fn note_lowest<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    clock: Option<u64>,
    parts: &[PullPart],
) -> Result<Option<u64>, WorkerError> {
    let Some(clock) = clock else { return Ok(None) };
    let lowest = parts.iter().filter_map(|part| part.lowest).min();
    if let Some(lowest) = lowest {
        worker.links.counters.behind.observe(clock.saturating_sub(lowest));
    }
    let furthest = parts.iter().filter_map(|part| part.lowest).max().unwrap_or(0);
    if let Some(group) = &mut worker.tables[table.0].group
        && group.sync.mode.is_bsp()
        && furthest > group.clock
        && !group.open
    {
        // The group has applied steps without this worker. Its pushes for them would come too late.
        group.clock = furthest;
        send_clock(worker, table, furthest, true)?;
    }
    Ok(lowest)
}
