//! How a worker keeps step with others over a table. Its clock counts its steps, and it tells the clock to every server
//! thread behind the pushes of each step. Its pulls wait for slower workers.

use crate::config::registrars::deciding_server;
use crate::error::WorkerError;
use crate::limits::{STEP_CREDIT_MIN, WAITS_LOGGED, WAITS_SILENCE};
use crate::links::peer::Peer;
use crate::requests::control::{ControlRequest, Recipients};
use crate::requests::ids::Request;
use crate::requests::in_flight::{ControlInFlight, PullPart, RequestWork};
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
use gannet_wire::messages::control::{JoinedV1, WaitsV2};
use gannet_wire::sync::{StepReduce, SyncConfig, SyncMode};
use std::collections::BTreeSet;
use std::time::Duration;

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
        for answer in self.ask_of_links(&join)? {
            let peer = &mut self.peers[answer.link];
            let joined = control::open::<JoinedV1>(&answer.payload).map_err(|error| {
                WorkerError::Protocol { peer: peer.name.clone(), what: error.to_string() }
            })?;
            peer.steps.clocks.resize(peer.steps.clocks.len().max(table.0 + 1), (0, 0));
            peer.steps.clocks[table.0] = (joined.clock, 0);
            clock = clock.max(joined.clock);
        }
        self.tables[table.0].group = Some(TableClock { sync, clock, open: false, late: Vec::new() });
        let links: Vec<usize> = self.links_now().collect();
        links.into_iter().try_for_each(|link| self.check_credit(link))?;
        // In groups with a lower clock this worker has no pushes for the steps up to it.
        self.send_clock(table, clock, true)?;
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
                self.send_clock(table, most, true)?;
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
        self.send_clock(table, clock, false)?;
        self.end_step()?;
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
        let lowest =
            self.peers.iter().filter_map(|peer| peer.steps.waits.as_ref()).min_by_key(|waits| waits.clock);
        lowest.map(|waits| WaitingFor { rank: waits.rank, clock: waits.clock, here: waits.here })
    }

    /// The sequence numbers of pushes to a table with rows that came too late for their step, since the last call.
    pub fn take_late(&mut self, table: TableId) -> Vec<u64> {
        self.tables[table.0].group.as_mut().map(|group| std::mem::take(&mut group.late)).unwrap_or_default()
    }

    /// Tells every server thread this worker's clock.
    fn send_clock(&mut self, table: TableId, clock: u64, skip: bool) -> Result<(), WorkerError> {
        self.counters.clock.set(clock);
        self.request_all(table, &TickFrame { table: 0, clock, skip })
    }

    /// Queues a request to every server thread. No call waits for the answers.
    fn request_all(&mut self, table: TableId, frame: &impl FrameKind) -> Result<(), WorkerError> {
        let (now, links) = (self.net.now(), self.links_now().collect::<Vec<_>>());
        let (frame, table, answers) = (UnsentFrame::new(frame), Some(table.0), vec![None; links.len()]);
        let control = ControlInFlight { frame, table, answers, ..ControlInFlight::default() };
        let id = self.flights.add(RequestWork::Control(control), links.len(), 0, now);
        for (chunk, number) in links.into_iter().enumerate() {
            let request = Request { index: id.index, chunk: chunk as u32, push: false, bytes: 0 };
            self.peers[number].enqueue(request, now);
            self.send(number)?;
        }
        Ok(())
    }

    /// If no synchronous step is open any longer, sends the requests for read paths that it delayed.
    fn end_step(&mut self) -> Result<(), WorkerError> {
        if self.is_in_step() {
            return Ok(());
        }
        for number in 0..self.peers.len() {
            if std::mem::take(&mut self.peers[number].steps.pushed).0 > 0 {
                self.request_read_path(number)?;
            }
        }
        Ok(())
    }

    fn is_in_step(&self) -> bool {
        self.tables.iter().any(|table| table.group.as_ref().is_some_and(|group| group.open))
    }

    /// Fails in the middle of a synchronous step, because the answer would wait for its end.
    pub(crate) fn must_have_ticked(&self, what: &str) -> Result<(), WorkerError> {
        if self.is_in_step() {
            let text =
                format!("{what} in the middle of a synchronous step would wait for ever: call tick first");
            return Err(WorkerError::Call(text));
        }
        Ok(())
    }

    /// How often the thread behind this link must hear of this worker while it keeps step. The deciding thread would
    /// otherwise take a worker for dead that waits elsewhere.
    pub(crate) fn heartbeat_every(&self, link: usize) -> Duration {
        let peer = &self.peers[link];
        if peer.thread != 0
            || deciding_server(&self.config) != Some(&peer.addr) && self.config.places.is_none()
        {
            return Duration::MAX;
        }
        let timeouts = self.tables.iter().filter_map(|table| table.group.as_ref());
        timeouts.map(|group| group.sync.worker_timeout / 3).min().unwrap_or(Duration::MAX)
    }

    /// How long a server may be silent. A server at which a worker waits for others reports that in time.
    pub(crate) fn patience(&self) -> Duration {
        let waits = |clock: &TableClock| clock.sync.mode != SyncMode::Asp;
        let least = match self.tables.iter().any(|table| table.group.as_ref().is_some_and(waits)) {
            true => WAITS_SILENCE,
            false => Duration::ZERO,
        };
        self.config.peer_timeout.max(least)
    }

    /// Begins a push. Returns `true` if it belongs to a synchronous step, whose pushes must all be in flight at once.
    pub(crate) fn begin_step_push(&mut self, table: TableId, bytes: usize) -> Result<bool, WorkerError> {
        let Some(group) = self.tables[table.0].group.as_mut().filter(|group| group.sync.mode.is_bsp()) else {
            return Ok(false);
        };
        let was_open = std::mem::replace(&mut group.open, true);
        if was_open && self.flights.bytes + bytes > self.config.in_flight_bytes_max {
            return Err(too_large(0, self.flights.bytes as u64 + bytes as u64));
        }
        Ok(true)
    }

    /// Counts a push of a synchronous step on each of its links.
    pub(crate) fn count_step_push(&mut self, laid: &Relayout, floats: usize) -> Result<(), WorkerError> {
        let mut most: (usize, u64) = (0, 0);
        for chunk in laid.chunks() {
            let peer = &mut self.peers[chunk.peer as usize];
            peer.steps.pushed.0 += 1;
            peer.steps.pushed.1 += u64::from(chunk.len) * (8 + 4 * floats as u64);
            let over = peer.steps.pushed.0 > peer.requests.credit.frames / 2
                || peer.steps.pushed.1 > peer.requests.credit.bytes / 2;
            if over && peer.link.is_some() && peer.steps.pushed.0 > 1 {
                most = most.max(peer.steps.pushed);
            }
        }
        if most == (0, 0) { Ok(()) } else { Err(too_large(most.0, most.1)) }
    }

    /// Counts again which requests of the open step go over a new link. A server acknowledges a step only when it has
    /// all of it, so a step that exceeds the link's credit would wait for ever. That can happen when one thread now
    /// owns the shards of several.
    pub(crate) fn recount_step(&mut self, number: usize) -> Result<(), WorkerError> {
        self.check_credit(number)?;
        let in_step = self.is_in_step();
        let Worker { peers, flights, tables, .. } = self;
        let peer = &mut peers[number];
        let is_bsp =
            |table: usize| tables[table].group.as_ref().is_some_and(|group| group.sync.mode.is_bsp());
        let mut step: (usize, u64) = (0, 0);
        for request in &peer.requests.queue {
            match flights.at(request.index).map(|flight| &flight.work) {
                Some(RequestWork::Push(push)) if is_bsp(push.laid.table()) => {
                    step = (step.0 + 1, step.1 + u64::from(request.bytes));
                    if step.0 > 1
                        && (step.0 >= peer.requests.credit.frames || step.1 > peer.requests.credit.bytes)
                    {
                        return Err(too_large(step.0, step.1));
                    }
                }
                Some(RequestWork::Control(control)) if control.kind() == TickFrame::KIND => step = (0, 0),
                _ => {}
            }
        }
        peer.steps.pushed = if in_step { step } else { (0, 0) };
        Ok(())
    }

    /// Refuses a link on which no synchronous step can be made.
    fn check_credit(&self, number: usize) -> Result<(), WorkerError> {
        let peer = &self.peers[number];
        let is_bsp = |clock: &TableClock| clock.sync.mode.is_bsp();
        let is_in_bsp = self.tables.iter().any(|table| table.group.as_ref().is_some_and(is_bsp));
        if is_in_bsp && peer.link.is_some() && peer.requests.credit.frames < STEP_CREDIT_MIN {
            let (name, frames) = (&peer.name, peer.requests.credit.frames);
            return Err(WorkerError::Call(format!(
                "a job in synchronous steps (--sync bsp) needs {STEP_CREDIT_MIN} requests in flight, and {name} allows \
                 {frames}: start it with --credit-requests {STEP_CREDIT_MIN} or more"
            )));
        }
        Ok(())
    }

    /// The clock of a pull, if the worker has joined.
    pub(crate) fn pull_clock(&self, table: TableId, ahead: u64) -> Result<Option<u64>, WorkerError> {
        self.must_have_ticked("a pull")?;
        let Some(group) = &self.tables[table.0].group else { return Ok(None) };
        if ahead > group.sync.mode.ahead_max() {
            let text = format!(
                "a pull {ahead} steps ahead of its worker would wait for that worker: {} allows {}",
                group.sync.mode.name(),
                group.sync.mode.ahead_max()
            );
            return Err(WorkerError::Call(text));
        }
        Ok(Some(group.clock + ahead))
    }

    /// The clock that the slowest worker must have for a pull at `clock`.
    pub(crate) fn least(&self, table: TableId, clock: Option<u64>) -> u64 {
        let Some((group, clock)) = self.tables[table.0].group.as_ref().zip(clock) else { return 0 };
        match group.sync.mode {
            SyncMode::Asp => 0,
            SyncMode::Ssp(bound) => clock.saturating_sub(u64::from(bound)),
            SyncMode::Bsp(_) => clock,
        }
    }

    /// Notes the clock that the answer to a pull reported, and counts how far the slowest worker was behind. A worker
    /// that is itself behind its group moves to the group's clock.
    pub(crate) fn note_lowest(
        &mut self,
        table: TableId,
        clock: Option<u64>,
        parts: &[PullPart],
    ) -> Result<Option<u64>, WorkerError> {
        let Some(clock) = clock else { return Ok(None) };
        let lowest = parts.iter().filter_map(|part| part.lowest).min();
        if let Some(lowest) = lowest {
            self.counters.behind.observe(clock.saturating_sub(lowest));
        }
        let furthest = parts.iter().filter_map(|part| part.lowest).max().unwrap_or(0);
        if let Some(group) = &mut self.tables[table.0].group
            && group.sync.mode.is_bsp()
            && furthest > group.clock
            && !group.open
        {
            // The group has applied steps without this worker. Its pushes for them would come too late.
            group.clock = furthest;
            self.send_clock(table, furthest, true)?;
        }
        Ok(lowest)
    }

    /// Notes a push with rows that came too late.
    pub(crate) fn note_late(&mut self, table: usize, seq: u64) {
        if let Some(group) = &mut self.tables[table].group {
            group.late.push(seq);
        }
    }

    /// Logs which worker a request waits for, as a server reports.
    pub(crate) fn log_wait(&mut self, number: usize) {
        let now = self.net.now();
        let peer = &self.peers[number];
        let Some(waits) = &peer.steps.waits else { return };
        let WaitsV2 { rank, clock, here, .. } = *waits;
        let logged = self.wait_logged_at.filter(|logged| (logged.0, logged.1) == (rank, clock));
        if logged.is_none_or(|(_, _, at)| now.saturating_sub(at) >= WAITS_LOGGED) {
            self.wait_logged_at = Some((rank, clock, now));
            tracing::warn!(server = %peer.name, connected = here, "waiting for worker {rank}, which is at clock {clock}");
        }
    }

    /// For whom requests over each table wait, as the servers last reported. A worker whose link was lost may wait for
    /// itself, until a server has its last step. It asks nobody whether it is dead.
    pub(crate) fn awaited(&self) -> BTreeSet<(usize, u32, u64, u64)> {
        let waits = |peer: &Peer<N::Stream>| {
            let waits = peer.steps.waits.as_ref()?;
            let table = peer.session.tables.iter().position(|&table| table == waits.table)?;
            let own = self.tables[table].group.as_ref().map(|group| group.sync.rank);
            (own != Some(waits.rank)).then_some((table, waits.rank, waits.pusher, waits.incarnation))
        };
        self.peers.iter().filter_map(waits).collect()
    }

    /// Whether the workers that keep step over a table need each of them.
    pub(crate) fn needs_all(&self, table: usize) -> bool {
        self.tables[table].group.as_ref().is_some_and(|group| group.sync.strict)
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

/// The error of a step with more in flight than the credit allows.
fn too_large(requests: usize, bytes: u64) -> WorkerError {
    WorkerError::Call(format!(
        "a synchronous step pushes {requests} requests of {bytes} bytes to one server thread, which is more than half \
         of what may be under way: a smaller --batch, more servers or threads, or a larger --credit-requests of theirs helps"
    ))
}
