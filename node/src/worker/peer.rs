//! One thread of one server as the worker sees it: a link while there is one, and the requests that wait for answers.
//!
//! ```text
//! queue:  | posted, in the order in which answers come | not yet posted |
//! ```
//! When the link is lost nothing of the queue is: pushes go again first, in order and by key (the server drops what
//! it has by name), then what is unanswered; so a pull that goes again sees every push before it and some after it.

use super::cache::{Delta, Followed};
use super::in_flight::{InFlight, InFlightOwner, PullInFlight, Request, RequestWork};
use super::one_sided::OneSidedReads;
use super::opening::Opening;
use crate::counters::WorkerCounters;
use crate::error::{Refusal, WorkerError};
use crate::frames::control::{self, WaitsV1};
use crate::frames::{
    self, AckFrame, DeltaFrame, FenceFrame, FrameError, FrameKind, RefusedFrame, RowsFrame, TickFrame,
    TickedFrame, WaitsFrame, answer_to,
};
use gannet_transport::{Filled, Frame, Link, Stream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Receives in a row before other links have their turn.
const FILLS_PER_TURN: usize = 8;

pub(super) struct Peer<S> {
    pub(super) addr: String,
    /// Address and thread, for messages.
    pub(super) name: Arc<str>,
    pub(super) server: u32,
    pub(super) thread: u32,
    pub(super) threads: u32,
    pub(super) link: Option<Link<S>>,
    /// What carries the link, or carried the last one.
    pub(super) transport: &'static str,
    /// A connection that is to become the link.
    pub(super) opening: Option<Opening<S>>,
    /// Attempts to connect since there was a link.
    pub(super) attempts: usize,
    pub(super) credit: Credit,
    /// Bytes of what is posted, answers included.
    posted_bytes: u64,
    /// The credit is used up: requests wait for it.
    short: bool,
    pub(super) session: u32,
    /// Which life of the server it is.
    pub(super) incarnation: u64,
    /// Counts this peer's links from 1.
    pub(super) epoch: u64,
    /// The number of each of the worker's tables on this link.
    pub(super) tables: Vec<u32>,
    /// By table, the own clock that this peer has acknowledged, and who had left then.
    pub(super) clocks: Vec<(u64, u64)>,
    /// What was pushed to it since, of a synchronous step: requests and bytes.
    pub(super) step: (usize, u64),
    /// Whom it says that its next answer waits for.
    pub(super) waits: Option<WaitsV1>,
    pub(super) queue: VecDeque<Request>,
    pub(super) posted: usize,
    unsent: VecDeque<u64>,
    /// Requests of the credit that only fences may take: what takes the rest may wait for them.
    pub(super) fences: usize,
    /// The last answer, or when the first of the waiting requests came.
    pub(super) good_at: Duration,
    pub(super) linked_at: Duration,
    pub(super) attempt_at: Duration,
    pub(super) backoff: Duration,
    /// What happened last, until the next answer.
    pub(super) trouble: String,
    pub(super) wait_logged: bool,
    /// When the log last said that its link was lost.
    pub(super) loss_logged: Option<Duration>,
    /// By table, rows that it keeps fresh in the cache.
    pub(super) followed: Vec<Followed>,
    /// Its images, when it is on this host.
    pub(super) near: OneSidedReads,
    /// Places of keysets that are free.
    free_keysets: Vec<u32>,
    next_keyset: u32,
}

/// What the server lets this worker have under way on a link.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Credit {
    pub(super) frames: usize,
    pub(super) bytes: u64,
    /// A link on which nothing was said for so long is to be pinged.
    pub(super) ping_after: Duration,
}

/// What became of an answer.
pub(super) enum ReplyResult {
    /// A part of this flight, perhaps its last.
    Part(u32),
    /// Refused for good.
    Refused { request: Request, refusal: Refusal, text: String },
    /// Not yet: other workers are waited for.
    Waits,
    /// No answer: rows that are followed have changed.
    Delta(Box<Delta>),
}

impl<S: Stream> Peer<S> {
    pub(super) fn new(addr: &str, server: u32, thread: u32, threads: u32, now: Duration) -> Peer<S> {
        Peer {
            addr: addr.to_owned(),
            name: format!("{addr} (thread {thread})").into(),
            server,
            thread,
            threads,
            link: None,
            transport: "",
            opening: None,
            attempts: 0,
            credit: Credit::default(),
            posted_bytes: 0,
            short: false,
            session: 0,
            incarnation: 0,
            epoch: 0,
            tables: Vec::new(),
            clocks: Vec::new(),
            step: (0, 0),
            waits: None,
            queue: VecDeque::new(),
            posted: 0,
            fences: 0,
            unsent: VecDeque::new(),
            good_at: now,
            linked_at: now,
            attempt_at: now,
            backoff: crate::limits::BACKOFF.0,
            trouble: String::from("no connection yet"),
            wait_logged: false,
            loss_logged: None,
            followed: Vec::new(),
            near: OneSidedReads::new(),
            free_keysets: Vec::new(),
            next_keyset: 0,
        }
    }

    /// Its server has this thread.
    pub(super) fn is_wanted(&self) -> bool {
        self.threads == 0 || self.thread < self.threads
    }

    /// Queues a request.
    pub(super) fn enqueue(&mut self, request: Request, now: Duration) {
        if self.queue.is_empty() {
            self.good_at = now;
        }
        self.queue.push_back(request);
    }

    /// Queues a request that goes before all that are not posted: they may wait for it.
    pub(super) fn enqueue_first(&mut self, request: Request, now: Duration) {
        if self.queue.is_empty() {
            self.good_at = now;
        }
        self.queue.insert(self.posted, request);
    }

    /// Moves what can be moved, without waiting; `true` when anything was.
    pub(super) fn turn(
        &mut self,
        flights: &mut InFlight,
        tally: &WorkerCounters,
        answers: &mut Vec<ReplyResult>,
        now: Duration,
    ) -> Result<bool, WorkerError> {
        let Peer { link: Some(link), queue, unsent, .. } = self else { return Ok(false) };
        let mut moved = false;
        for _ in 0..FILLS_PER_TURN {
            if !link.is_readable() {
                break;
            }
            let filled = link.fill(&mut InFlightOwner { flights, queue, unsent })?;
            moved |= matches!(filled, Filled::Bytes(_));
            loop {
                let (receive, _) = link.halves();
                let Some(frame) = receive.peek(&mut InFlightOwner { flights, queue, unsent })? else { break };
                if frame.head.kind == WaitsFrame::KIND {
                    self.waits = Some(waits(&frame, self.posted, &self.name)?);
                    receive.consume();
                    answers.push(ReplyResult::Waits);
                    (self.good_at, self.wait_logged) = (now, false);
                    continue;
                }
                if frame.head.kind == DeltaFrame::KIND {
                    let payload = bytemuck::cast_slice(frame.payload).to_vec();
                    answers.push(ReplyResult::Delta(Box::new(Delta { head: frame.head, payload })));
                    tally.bytes_received.add(u64::from(frame.head.len));
                    receive.consume();
                    continue;
                }
                let (name, session_epoch) = (&self.name, self.epoch);
                let (clocks, near) = (&mut self.clocks, &mut self.near);
                let context = Context { name, session_epoch, clocks, near };
                answers.push(answer(&frame, context, flights, queue, unsent, self.posted, tally)?);
                receive.consume();
                if let Some(request) = queue.pop_front() {
                    self.posted_bytes -= u64::from(request.bytes);
                }
                self.posted -= 1;
                self.waits = None;
                (self.good_at, self.wait_logged) = (now, false);
                self.trouble.clear();
                self.backoff = crate::limits::BACKOFF.0;
                tally.frames_received.add(1);
            }
        }
        moved |= self.post(flights, tally)?;
        Ok(moved)
    }

    /// Posts what there is room for, and sends.
    pub(super) fn post(
        &mut self,
        flights: &mut InFlight,
        tally: &WorkerCounters,
    ) -> Result<bool, WorkerError> {
        let Peer { link: Some(link), queue, unsent, tables, .. } = self else { return Ok(false) };
        let mut moved = false;
        loop {
            while self.posted < queue.len() {
                let request = queue[self.posted];
                let sum = self.posted_bytes + u64::from(request.bytes);
                let fences = flights.kind(request.index) == Some(FenceFrame::KIND);
                let (kept, bytes_max) = if fences { (0, u64::MAX) } else { (self.fences, self.credit.bytes) };
                let frames = self.credit.frames.saturating_sub(kept);
                if self.posted > 0 && (self.posted >= frames || sum > bytes_max) {
                    tally.credit_waits.add(u64::from(!std::mem::replace(&mut self.short, true)));
                    break;
                }
                let (head, bytes) =
                    flights.head(request, |table| tables.get(table).copied().unwrap_or(u32::MAX));
                let owner = InFlightOwner { flights, queue, unsent };
                if link.transmit().post(head, bytes, request.id(), &owner).is_err() {
                    break;
                }
                if bytes > 0 {
                    unsent.push_back(request.id());
                }
                (self.posted, self.posted_bytes, self.short) = (self.posted + 1, sum, false);
                tally.frames_sent.add(1);
                tally.bytes_sent.add(bytes as u64);
            }
            if !link.can_send() {
                return Ok(moved);
            }
            moved = true;
            // When all has gone there may be room for more.
            if !link.flush(&mut InFlightOwner { flights, queue, unsent })? || self.posted == queue.len() {
                return Ok(moved);
            }
        }
    }

    /// The link is gone: everything in the queue is to go again, but for what was of this link only.
    pub(super) fn lose(
        &mut self,
        why: String,
        flights: &mut InFlight,
        tally: &WorkerCounters,
        now: Duration,
    ) {
        if self.link.take().is_some() {
            tally.links.sub(1);
            tally.links_lost.add(1);
            tally.resends.add(self.posted as u64);
        }
        (self.trouble, self.attempt_at, self.posted) = (why, now, 0);
        (self.posted_bytes, self.short) = (0, false);
        (self.waits, self.step) = (None, (0, 0));
        self.unsent.clear();
        self.near.lose();
        self.followed.iter_mut().for_each(Followed::lose);
        self.queue.retain(|request| {
            let of_this_link = flights.kind(request.index).is_some_and(frames::is_of_link);
            if of_this_link {
                flights.take(request.index);
            }
            !of_this_link
        });
        for push in self.queue.iter().filter(|request| request.push) {
            if let Some(RequestWork::Push(flight)) = flights.at(push.index).map(|flight| &mut flight.work) {
                flight.keysets[push.chunk as usize] = 0;
            }
        }
    }

    /// Puts the queue in the order in which it goes over a new link: fences, then pushes and what says which step they
    /// are of.
    pub(super) fn reorder(&mut self, flights: &InFlight) {
        let place = |request: &Request| match flights.kind(request.index) {
            Some(FenceFrame::KIND) => 0,
            Some(kind) if frames::is_ordered(kind) => 1,
            _ => 2,
        };
        self.queue.make_contiguous().sort_by_key(place);
    }

    /// What it keeps fresh of a table.
    pub(super) fn followed_of(&mut self, table: usize) -> &mut Followed {
        if self.followed.len() <= table {
            self.followed.resize_with(table + 1, Followed::default);
        }
        &mut self.followed[table]
    }

    /// A place for a keyset, plus 1; 0 when all are taken.
    pub(super) fn take_keyset(&mut self) -> u32 {
        if let Some(place) = self.free_keysets.pop() {
            return place;
        }
        if self.next_keyset as usize == crate::limits::KEYSETS_MAX {
            return 0;
        }
        self.next_keyset += 1;
        self.next_keyset
    }

    pub(super) fn give_keyset(&mut self, place: u32) {
        if place != 0 {
            self.free_keysets.push(place);
        }
    }
}

struct Context<'a> {
    name: &'a Arc<str>,
    session_epoch: u64,
    clocks: &'a mut Vec<(u64, u64)>,
    near: &'a mut OneSidedReads,
}

impl Context<'_> {
    fn nonsense(&self, what: String) -> WorkerError {
        WorkerError::Protocol { peer: self.name.clone(), what }
    }

    fn unreadable(&self, error: FrameError) -> WorkerError {
        self.nonsense(error.to_string())
    }
}

/// Whom the server says that a request waits for.
fn waits(frame: &Frame<'_>, posted: usize, peer: &Arc<str>) -> Result<WaitsV1, WorkerError> {
    let nonsense = |what| WorkerError::Protocol { peer: peer.clone(), what };
    if posted == 0 {
        return Err(nonsense("a report that a request waits, but none was sent".into()));
    }
    control::open(frame.payload).map_err(|error| nonsense(error.to_string()))
}

/// Takes in the answer to the request at the front of the queue.
fn answer(
    frame: &Frame<'_>,
    context: Context<'_>,
    flights: &mut InFlight,
    queue: &VecDeque<Request>,
    unsent: &VecDeque<u64>,
    posted: usize,
    tally: &WorkerCounters,
) -> Result<ReplyResult, WorkerError> {
    let head = &frame.head;
    let Some(&request) = queue.front().filter(|request| posted > 0 && request.id() == head.id) else {
        return Err(context.nonsense(format!(
            "an answer (kind {}) to request {:#x}, which is not the next",
            head.kind, head.id
        )));
    };
    if unsent.front() == Some(&head.id) {
        return Err(context
            .nonsense(format!("an answer (kind {}) to a request that has not all been sent", head.kind)));
    }
    let kind = flights.kind(request.index).unwrap_or(0);
    if head.kind == RefusedFrame::KIND {
        return refused(frame, request, &context, flights);
    }
    if head.kind != answer_to(kind) {
        return Err(context.nonsense(format!("kind {} in answer to kind {kind}", head.kind)));
    }
    let Some(flight) = flights.at(request.index) else {
        return Err(context.nonsense("an answer to a request that is not in flight".into()));
    };
    match &mut flight.work {
        RequestWork::Pull(pull) if pull.asks_newer(request.chunk as usize) => {
            tally.cache_same.add(take_newer_rows(frame, pull, request.chunk as usize, &context)?);
            tally.bytes_received.add(u64::from(head.len));
        }
        RequestWork::Pull(pull) => {
            take_rows(frame, pull, request.chunk as usize, context)?;
            tally.bytes_received.add(u64::from(head.len));
        }
        RequestWork::Push(push) => {
            let ack = AckFrame::decode(head).map_err(|error| context.unreadable(error))?;
            let (applied, late) = (ack.applied(), ack.late);
            tally.pushed.count(&applied);
            tally.late_rows.add(u64::from(late));
            push.late |= late > 0;
            if late > 0 || applied.duplicate > 0 || applied.not_finite > 0 || applied.not_admitted > 0 {
                push.doubt(request.chunk as usize);
            }
        }
        RequestWork::Control(control) => {
            if let (Some(table), Some(tick)) = (control.table, control.frame.get::<TickFrame>()) {
                let left = TickedFrame::decode(head).map_err(|error| context.unreadable(error))?.left;
                context.clocks.resize(context.clocks.len().max(table + 1), (0, 0));
                context.clocks[table] = (tick.clock, left);
            }
            control.answers[request.chunk as usize] = Some((*head, frame.payload.to_vec()))
        }
    }
    Ok(ReplyResult::Part(request.index))
}

/// A refusal. The link ends if the push is to go again, so that everything from this push on goes again, in order.
fn refused(
    frame: &Frame<'_>,
    request: Request,
    context: &Context<'_>,
    flights: &mut InFlight,
) -> Result<ReplyResult, WorkerError> {
    let refusal =
        Refusal::of(RefusedFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?.code);
    let text = crate::frames::control::open::<crate::frames::control::RefusedV1>(frame.payload)
        .map(|refused| refused.text);
    let text = text.unwrap_or_else(|error| error.to_string());
    if request.push && refusal.asks_for_resend() {
        let what = format!("push {:#x}", frame.head.id);
        return Err(WorkerError::Refused { peer: context.name.clone(), what, refusal, text });
    }
    if let Some(RequestWork::Push(push)) = flights.at(request.index).map(|flight| &flight.work) {
        push.doubt(request.chunk as usize);
    }
    Ok(ReplyResult::Refused { request, refusal, text })
}

/// The rows of a part of a pull that asked only for newer rows than the worker has; how many were the same.
fn take_newer_rows(
    frame: &Frame<'_>,
    pull: &mut PullInFlight,
    chunk: usize,
    context: &Context<'_>,
) -> Result<u64, WorkerError> {
    let rows = RowsFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?;
    let Some(same) = pull.settle_newer(chunk, frame.payload, rows.version, rows.lowest) else {
        return Err(context.nonsense(format!("{} bytes of rows that do not fit the request", frame.head.len)));
    };
    let part = &mut pull.parts[chunk];
    let kept = part.keep != 0 && rows.kept == part.keep;
    part.kept = if kept { context.session_epoch } else { 0 };
    Ok(same)
}

/// The rows of a part of a pull.
fn take_rows(
    frame: &Frame<'_>,
    pull: &mut PullInFlight,
    chunk: usize,
    context: Context<'_>,
) -> Result<(), WorkerError> {
    let rows = RowsFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?;
    let bytes = pull.answer_floats(chunk) * 4;
    if frame.head.len as usize != bytes.next_multiple_of(8) {
        return Err(context.nonsense(format!("{} bytes of rows where {bytes} were expected", frame.head.len)));
    }
    let part = &mut pull.parts[chunk];
    let kept = part.keep != 0 && rows.kept == part.keep;
    part.kept = if kept { context.session_epoch } else { 0 };
    if let Some((keys, slots)) = pull.found(chunk) {
        context.near.learn(pull.laid.table(), keys, slots);
    }
    pull.settle(chunk, rows.lowest);
    Ok(())
}
