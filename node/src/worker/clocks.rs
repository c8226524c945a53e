//! Keeping step with the other workers over a table: a clock that counts this worker's steps, said to every server
//! thread behind the pushes of each step, and pulls that wait for the others.

use super::Worker;
use super::in_flight::{ControlInFlight, PullPart, Request, RequestWork};
use super::relayout::Relayout;
use super::tables::{ControlRequest, Recipients, TableId};
use crate::error::WorkerError;
use crate::frames::control::{self, JoinedV1, WaitsV1};
use crate::frames::{FenceFrame, FrameKind, JoinFrame, LeaveFrame, TickFrame, UnsentFrame};
use crate::limits::{WAITS_LOGGED, WAITS_SILENCE};
use crate::sync::{StepReduce, SyncConfig, SyncMode};
use gannet_core::NO_CLOCK;
use gannet_transport::Net;
use std::time::Duration;

/// How a worker keeps step over one table.
pub(super) struct TableClock {
    pub(super) member: SyncConfig,
    /// The step that it is in.
    clock: u64,
    /// Pushes of a synchronous step have begun, and it has not been said to be made.
    open: bool,
    /// Pushes that came too late, of which nobody has been told.
    late: Vec<u64>,
    /// Those that this worker has had fenced, in which life, for which peer and over which link of it: one that never
    /// came is forgotten with the server.
    fenced: Vec<(u32, u64, usize, u64)>,
}

/// A worker that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingFor {
    /// Which.
    pub rank: u32,
    /// The step that it is in.
    pub clock: u64,
    /// It has a connection to the server.
    pub here: bool,
    /// Since its last sign.
    pub silent: Duration,
}

impl<N: Net> Worker<N> {
    /// Joins those that keep step over a table: from now on pulls of it are of the step that this worker is in, and
    /// [`Worker::tick`] ends it. Answers the clock to begin at: that of the worker furthest behind.
    ///
    /// # Errors
    /// The others keep step in another way, a newer incarnation of this worker is there, it has joined before, or a
    /// peer is lost for good.
    pub fn join(&mut self, table: TableId, member: SyncConfig) -> Result<u64, WorkerError> {
        member.check().map_err(WorkerError::Call)?;
        if self.tables[table.0].group.is_some() {
            return Err(WorkerError::Call("this worker has joined before".into()));
        }
        self.drain()?;
        let payload = |_: usize, _: u32| control::seal(&member.request(NO_CLOCK, 0));
        let join = ControlRequest::with_payload(&JoinFrame { table: 0 }, Some(table), &payload);
        let mut clock = 0;
        for answer in self.ask_of_links(&join)? {
            let peer = &mut self.peers[answer.link];
            let joined = control::open::<JoinedV1>(&answer.payload).map_err(|error| {
                WorkerError::Protocol { peer: peer.name.clone(), what: error.to_string() }
            })?;
            peer.clocks.resize(peer.clocks.len().max(table.0 + 1), (0, 0));
            peer.clocks[table.0] = (joined.clock, 0);
            clock = clock.max(joined.clock);
        }
        let (late, fenced) = (Vec::new(), Vec::new());
        self.tables[table.0].group = Some(TableClock { member, clock, open: false, late, fenced });
        let links: Vec<usize> = self.links_now().collect();
        links.into_iter().try_for_each(|link| self.keep_for_fences(link))?;
        // Where the group is not as far, this worker has nothing for the steps before.
        self.say_clock(table, clock, true)?;
        Ok(clock)
    }

    /// Joins over several tables of which every step has a part in each: it begins at the same clock in all of them,
    /// that of the table whose group is furthest. (At different ones a worker could wait in one table for a step that
    /// others make only when this worker has made one in the other.) End the step of each table before another is
    /// pushed to.
    ///
    /// # Errors
    /// As [`Worker::join`]; or the steps would be made by some of the workers, which could be others in each table.
    pub fn join_all(&mut self, tables: &[TableId], member: SyncConfig) -> Result<u64, WorkerError> {
        if let SyncMode::Bsp(StepReduce { aggregate, .. }) = member.mode
            && aggregate < member.workers
            && tables.len() > 1
        {
            let (n, all) = (tables.len(), member.workers);
            return Err(WorkerError::Call(format!(
                "steps of {n} tables cannot be made by {aggregate} of {all} workers: each table would wait for others of them"
            )));
        }
        let clocks = tables.iter().map(|&table| self.join(table, member)).collect::<Result<Vec<_>, _>>()?;
        let most = clocks.iter().copied().max().unwrap_or(0);
        for (&table, clock) in tables.iter().zip(clocks) {
            if let Some(group) = self.tables[table.0].group.as_mut().filter(|_| clock < most) {
                group.clock = most;
                self.say_clock(table, most, true)?;
            }
        }
        Ok(most)
    }

    /// The step that this worker is in; `None` when it has not joined.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn clock(&self, table: TableId) -> Option<u64> {
        self.tables[table.0].group.as_ref().map(|group| group.clock)
    }

    /// The step is made: all its pushes have begun. Answers the clock of the next.
    ///
    /// # Errors
    /// This worker has not joined; or a request was refused.
    pub fn tick(&mut self, table: TableId) -> Result<u64, WorkerError> {
        let Some(group) = &mut self.tables[table.0].group else {
            return Err(WorkerError::Call("a worker that has not joined has no clock".into()));
        };
        (group.clock, group.open) = (group.clock + 1, false);
        let clock = group.clock;
        self.say_clock(table, clock, false)?;
        self.end_step()?;
        Ok(clock)
    }

    /// Leaves those that keep step, once all pushes have been acknowledged: nobody waits for this worker any longer.
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

    /// Whom this worker waits for, as the servers said last.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        let lowest = self.peers.iter().filter_map(|peer| peer.waits.as_ref()).min_by_key(|waits| waits.clock);
        lowest.map(|waits| WaitingFor {
            rank: waits.rank,
            clock: waits.clock,
            here: waits.here,
            silent: Duration::from_millis(waits.silent_ms),
        })
    }

    /// The sequence numbers of pushes to a table of which rows came too late for their step, since this was asked last.
    pub fn take_late(&mut self, table: TableId) -> Vec<u64> {
        self.tables[table.0].group.as_mut().map(|group| std::mem::take(&mut group.late)).unwrap_or_default()
    }

    /// Tells every server thread the own clock.
    fn say_clock(&mut self, table: TableId, clock: u64, skip: bool) -> Result<(), WorkerError> {
        self.tally.clock.set(clock);
        self.tell_all(table, &TickFrame { table: 0, clock, skip })
    }

    /// Queues a request to every server thread; nobody waits for the answers.
    fn tell_all(&mut self, table: TableId, frame: &impl FrameKind) -> Result<(), WorkerError> {
        let (now, links) = (self.net.now(), self.links_now().collect::<Vec<_>>());
        let (frame, table, answers) = (UnsentFrame::new(frame), Some(table.0), vec![None; links.len()]);
        let control = ControlInFlight { frame, table, answers, ..ControlInFlight::default() };
        let id = self.flights.add(RequestWork::Control(control), links.len(), 0, now);
        for (chunk, number) in links.into_iter().enumerate() {
            let request = Request { index: id.index, chunk: chunk as u32, push: false, bytes: 0 };
            match frame.kind() {
                FenceFrame::KIND => self.peers[number].enqueue_first(request, now),
                _ => self.peers[number].enqueue(request, now),
            }
            self.send(number)?;
        }
        Ok(())
    }

    /// No synchronous step is open any longer: what was put off goes on.
    fn end_step(&mut self) -> Result<(), WorkerError> {
        if self.is_in_step() {
            return Ok(());
        }
        for number in 0..self.peers.len() {
            if std::mem::take(&mut self.peers[number].step).0 > 0 {
                self.seek(number)?;
            }
        }
        Ok(())
    }

    fn is_in_step(&self) -> bool {
        self.tables.iter().any(|table| table.group.as_ref().is_some_and(|group| group.open))
    }

    /// Fails in the middle of a synchronous step: the answer would wait for its end.
    pub(super) fn must_have_ticked(&self, what: &str) -> Result<(), WorkerError> {
        if self.is_in_step() {
            let text =
                format!("{what} in the middle of a synchronous step would wait for ever: call tick first");
            return Err(WorkerError::Call(text));
        }
        Ok(())
    }

    /// How often each server thread is to hear of this worker while it keeps step with others. It may wait at one of
    /// them and have nothing to say to the rest, which are not to take that for its death.
    pub(super) fn sign_every(&self) -> Duration {
        let timeouts = self.tables.iter().filter_map(|table| table.group.as_ref());
        timeouts.map(|group| group.member.worker_timeout / 3).min().unwrap_or(Duration::MAX)
    }

    /// How long a server may give no sign: one that has others wait says so.
    pub(super) fn patience(&self) -> Duration {
        let waits = |keeping: &TableClock| keeping.member.mode != SyncMode::Asp;
        let least = match self.tables.iter().any(|table| table.group.as_ref().is_some_and(waits)) {
            true => WAITS_SILENCE,
            false => Duration::ZERO,
        };
        self.config.peer_timeout.max(least)
    }

    /// A push begins; `true` when it is of a synchronous step, of which all must be under way at once.
    pub(super) fn begin_step_push(&mut self, table: TableId, bytes: usize) -> Result<bool, WorkerError> {
        let Some(group) = self.tables[table.0].group.as_mut().filter(|group| group.member.mode.is_bsp())
        else {
            return Ok(false);
        };
        let again = std::mem::replace(&mut group.open, true);
        if again && self.flights.bytes + bytes > self.config.in_flight_bytes_max {
            return Err(too_large(0, self.flights.bytes as u64 + bytes as u64));
        }
        Ok(true)
    }

    /// Counts a push of a synchronous step on the links that it goes over.
    pub(super) fn count_step_push(&mut self, laid: &Relayout, floats: usize) -> Result<(), WorkerError> {
        let mut most: (usize, u64) = (0, 0);
        for chunk in laid.chunks() {
            let peer = &mut self.peers[chunk.peer as usize];
            peer.step.0 += 1;
            peer.step.1 += u64::from(chunk.len) * (8 + 4 * floats as u64);
            let over = peer.step.0 > peer.credit.frames / 2 || peer.step.1 > peer.credit.bytes / 2;
            if over && peer.link.is_some() && peer.step.0 > 1 {
                most = most.max(peer.step);
            }
        }
        if most == (0, 0) { Ok(()) } else { Err(too_large(most.0, most.1)) }
    }

    /// Counts again what of the step at hand goes over a link that has just been made. A step must go whole before any
    /// of it is acknowledged, so one that is more than this link's credit would wait for ever: a thread may have come
    /// to own the shards of several.
    pub(super) fn recount_step(&mut self, number: usize) -> Result<(), WorkerError> {
        self.keep_for_fences(number)?;
        let in_step = self.is_in_step();
        let Worker { peers, flights, tables, .. } = self;
        let peer = &mut peers[number];
        let is_bsp =
            |table: usize| tables[table].group.as_ref().is_some_and(|group| group.member.mode.is_bsp());
        let mut step: (usize, u64) = (0, 0);
        for request in &peer.queue {
            match flights.at(request.index).map(|flight| &flight.work) {
                Some(RequestWork::Push(push)) if is_bsp(push.laid.table()) => {
                    step = (step.0 + 1, step.1 + u64::from(request.bytes));
                    if step.0 > 1 && (step.0 >= peer.credit.frames || step.1 > peer.credit.bytes) {
                        return Err(too_large(step.0, step.1));
                    }
                }
                Some(RequestWork::Control(control)) if control.kind() == TickFrame::KIND => step = (0, 0),
                _ => {}
            }
        }
        peer.step = if in_step { step } else { (0, 0) };
        Ok(())
    }

    /// Keeps requests of a link's credit for fences. In synchronous steps all that is under way may wait for workers
    /// that are dead, of whom each is fenced in each table.
    fn keep_for_fences(&mut self, number: usize) -> Result<(), WorkerError> {
        let groups = self.tables.iter().filter_map(|table| table.group.as_ref());
        let workers =
            groups.filter(|group| group.member.mode.is_bsp()).map(|group| group.member.workers as usize);
        let fences: usize = workers.sum();
        let peer = &mut self.peers[number];
        // Half of the credit is a step's, which its clock ends.
        let least = 2 * fences + 2;
        if fences > 0 && peer.link.is_some() && peer.credit.frames < least {
            let (name, frames) = (&peer.name, peer.credit.frames);
            return Err(WorkerError::Call(format!(
                "a job in synchronous steps (--sync bsp) needs two requests under way for each worker and table, and two \
                 more: {least} here; {name} allows {frames}: start it with --credit-requests {least} or more"
            )));
        }
        peer.fences = fences;
        Ok(())
    }

    /// The clock of a pull, of a worker that has joined.
    pub(super) fn pull_clock(&self, table: TableId, ahead: u64) -> Result<Option<u64>, WorkerError> {
        self.must_have_ticked("a pull")?;
        let Some(group) = &self.tables[table.0].group else { return Ok(None) };
        if ahead > group.member.mode.ahead_max() {
            let text = format!(
                "a pull {ahead} steps ahead of its worker would wait for that worker: {} allows {}",
                group.member.mode.name(),
                group.member.mode.ahead_max()
            );
            return Err(WorkerError::Call(text));
        }
        Ok(Some(group.clock + ahead))
    }

    /// The clock that the worker furthest behind must have for a pull of this one.
    pub(super) fn least(&self, table: TableId, clock: Option<u64>) -> u64 {
        let Some((group, clock)) = self.tables[table.0].group.as_ref().zip(clock) else { return 0 };
        match group.member.mode {
            SyncMode::Asp => 0,
            SyncMode::Ssp(bound) => clock.saturating_sub(u64::from(bound)),
            SyncMode::Bsp(_) => clock,
        }
    }

    /// A pull has been answered: counts how far the furthest was behind. Who is behind the group itself goes on where
    /// it is.
    pub(super) fn note_lowest(
        &mut self,
        table: TableId,
        clock: Option<u64>,
        parts: &[PullPart],
    ) -> Result<Option<u64>, WorkerError> {
        let Some(clock) = clock else { return Ok(None) };
        let lowest = parts.iter().filter_map(|part| part.lowest).min();
        if let Some(lowest) = lowest {
            self.tally.behind.observe(clock.saturating_sub(lowest));
        }
        let furthest = parts.iter().filter_map(|part| part.lowest).max().unwrap_or(0);
        if let Some(group) = &mut self.tables[table.0].group
            && group.member.mode.is_bsp()
            && furthest > group.clock
            && !group.open
        {
            // Steps were applied without it; what it would push for them would come too late.
            group.clock = furthest;
            self.say_clock(table, furthest, true)?;
        }
        Ok(lowest)
    }

    /// Rows of a push came too late.
    pub(super) fn note_late(&mut self, table: usize, seq: u64) {
        if let Some(group) = &mut self.tables[table].group {
            group.late.push(seq);
        }
    }

    /// A server says whom a request waits for.
    pub(super) fn note_waits(&mut self, number: usize) {
        let now = self.net.now();
        let peer = &self.peers[number];
        let Some(waits) = &peer.waits else { return };
        let WaitsV1 { rank, clock, silent_ms, .. } = *waits;
        let told = self.wait_told.filter(|told| (told.0, told.1) == (rank, clock));
        if told.is_none_or(|(_, _, at)| now.saturating_sub(at) >= WAITS_LOGGED) {
            self.wait_told = Some((rank, clock, now));
            let (silent_s, server) = (silent_ms / 1000, &peer.name);
            tracing::warn!(%server, silent_s, "waiting for worker {rank}, which is at clock {clock}");
        }
    }

    /// Looks at those who are waited for and give no sign: a strict group fails; in a synchronous one the lowest worker
    /// that is there has them fenced everywhere, and the others follow.
    pub(super) fn look_at_waits(&mut self) -> Result<(), WorkerError> {
        for number in 0..self.peers.len() {
            let Some(waits) = self.peers[number].waits.clone() else { continue };
            let WaitsV1 { rank, clock, silent_ms, pusher, incarnation, decider, .. } = waits;
            let here = self.peers[number].tables.iter().position(|&table| table == waits.table);
            let Some(table) = here else { continue };
            let Some(group) = &mut self.tables[table].group else { continue };
            let (member, silent) = (group.member, Duration::from_millis(silent_ms));
            if silent < member.worker_timeout || rank == member.rank {
                continue;
            }
            if member.strict {
                return Err(WorkerError::WorkerLost { rank, clock, silent });
            }
            let decides = member.mode.is_bsp() && decider == member.rank;
            let of = (rank, incarnation, number, self.peers[number].epoch);
            if !decides || group.fenced.contains(&of) {
                continue;
            }
            group.fenced.retain(|&(.., peer, epoch)| peer != number || epoch == of.3);
            group.fenced.push(of);
            tracing::warn!(rank, clock, "no sign of a worker (--worker-timeout): all go on without it");
            self.fence_everywhere(TableId(table), rank, (pusher, incarnation))?;
        }
        Ok(())
    }

    /// Has every server refuse what a life of a worker, and those before it, push to a table: returns when all do.
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn fence(&mut self, table: TableId, pusher: u64, incarnation: u64) -> Result<(), WorkerError> {
        // Workers that keep step are called by their rank + 1.
        let rank = u32::try_from(pusher.wrapping_sub(1)).unwrap_or(u32::MAX);
        let fence = FenceFrame { table: 0, index: rank, pusher, incarnation };
        self.ask(&ControlRequest::about(table, &fence), Recipients::All).map(|_| ())
    }

    fn fence_everywhere(
        &mut self,
        table: TableId,
        rank: u32,
        (pusher, incarnation): (u64, u64),
    ) -> Result<(), WorkerError> {
        self.tell_all(table, &FenceFrame { table: 0, index: rank, pusher, incarnation })
    }
}

/// A step is more than may be under way at once.
fn too_large(requests: usize, bytes: u64) -> WorkerError {
    WorkerError::Call(format!(
        "a synchronous step pushes {requests} requests of {bytes} bytes to one server thread, which is more than half \
         of what may be under way: a smaller --batch, more servers or threads, or a larger --credit-requests of theirs helps"
    ))
}
