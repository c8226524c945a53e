//! One link of a server thread: its turn of the event loop, from received bytes to answers on their way.

use super::bulk::{Pusher, RequestBuffers, RequestFailure};
use super::dispatch::{RequestHandler, turn_away};
use super::incarnations::Incarnations;
use super::keysets::Keysets;
use super::memory::{SessionLimits, SessionMemory, SessionShare};
use super::pending_replies::{PendingReply, ReplyOutcome, WaitingRequest};
use super::subscriptions::Subscriptions;
use super::tables::ServerTables;
use crate::counters::{Carrier, RequestKind, ThreadCounters};
use crate::error::Refusal;
use crate::frames::control::{self, HelloV1, WelcomeV1};
use crate::frames::{FrameKind, WaitsFrame, WelcomeFrame};
use crate::limits::{
    CLOCK_BYTES, DELTAS_QUIET, FLUSH_BYTES, FRAME_TIME, FRAME_TIME_PRESSED, FRAMES_PER_TURN, REST_TIME,
    STALL_TIME,
};
use crate::log_limiter::LogLimiter;
use crate::runs::Registry;
use crate::scheduler::Schedulers;
use gannet_transport::limits::{HEAD_BYTES, LINK_BYTES_MAX};
use gannet_transport::{Event, Filled, Frame, Head, Link, LinkError, NoOwner, Stream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A connection that has said who it is: what the acceptor hands to a thread.
pub(super) struct GreetedConnection<S> {
    pub(super) link: Link<S>,
    pub(super) hello: HelloV1,
    pub(super) hello_id: u64,
}

/// One link and what belongs to it.
pub(super) struct Session<S> {
    pub(super) link: Link<S>,
    /// Its address.
    pub(super) peer: Arc<str>,
    /// What carries its bytes.
    pub(super) over: Carrier,
    pusher: Pusher,
    keysets: Keysets,
    subscriptions: Subscriptions,
    /// For the link's buffers: all or nothing.
    share: SessionShare,
    credit_frames: usize,
    /// The welcome, until there is memory to send it from.
    welcome: Option<(Head, Vec<u8>)>,
    /// The next answer found no room: nothing more is read until the queue has drained.
    blocked: bool,
    /// The next request waits for other workers, over this table and with this id: nothing more is read.
    parked: Option<(u32, u64)>,
    /// Answers that wait for a step to be applied, and those behind them.
    pending_replies: VecDeque<PendingReply>,
    waiting: Option<WaitingRequest>,
    /// Waits for memory.
    waiting_for_memory: bool,
    times: ProgressTimes,
    /// Bytes of answers that waited at `times.taken` and wait still.
    unsent_bytes: usize,
    /// Since when requests that are here whole, or on their way here, wait to be handled.
    since: Duration,
    /// Whole requests may be left of the turn before.
    held: bool,
}

/// When something last went on.
struct ProgressTimes {
    /// Bytes came or went.
    moved: Duration,
    /// Bytes came.
    heard: Duration,
    /// No frame was on its way, or one was handled; or the delay was ours.
    whole: Duration,
    /// Answers that had waited had all been taken.
    taken: Duration,
}

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{peer} has more requests under way than its credit of {credit}")]
    Overrun { peer: Arc<str>, credit: usize },
    #[error("{0} sent a frame, or took answers, too slowly: {1} s are the limit")]
    Stalled(Arc<str>, u64),
    #[error("{0} has said nothing for {1} s")]
    Silent(Arc<str>, u64),
    #[error("the others went on without {0}")]
    Fenced(Arc<str>),
    #[error("{0} has gone while a request of it waited for other workers")]
    Gone(Arc<str>),
}

/// What a turn came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct TurnOutcome {
    /// There is more to do at once.
    pub(super) more: bool,
    /// There is no memory for the session's buffers.
    pub(super) waiting_for_memory: bool,
    pub(super) frames: u64,
    /// The largest frame handled, received or sent.
    pub(super) largest: usize,
}

/// What a session needs of its thread.
pub(super) struct RequestContext<'a> {
    pub(super) tables: &'a mut ServerTables,
    pub(super) scratch: &'a mut RequestBuffers,
    pub(super) tally: &'a ThreadCounters,
    pub(super) log_limiter: &'a mut LogLimiter,
    /// In thread 0.
    pub(super) scheduler: Option<&'a mut Schedulers>,
    pub(super) runs: Option<&'a mut Registry>,
    pub(super) incarnations: Option<&'a mut Incarnations>,
    /// What time it is.
    pub(super) now: &'a dyn Fn() -> Duration,
}

/// Requests handled since the clock was looked at.
#[derive(Default)]
struct RequestBatch {
    frames: [u32; RequestKind::COUNT],
    bytes: usize,
}

impl RequestBatch {
    /// Looks at the clock: all of them have been answered by now.
    fn settle(&mut self, context: &RequestContext<'_>, since: Duration) {
        if self.bytes > 0 {
            let took = (context.now)().saturating_sub(since);
            for (&frames, histogram) in self.frames.iter().zip(&context.tally.took).filter(|(n, _)| **n > 0) {
                histogram.observe(took, u64::from(frames));
            }
            *self = RequestBatch::default();
        }
    }
}

impl<S: Stream> Session<S> {
    /// A session that will welcome its worker. `buffers` and `keysets` are the server's.
    pub(super) fn new(
        greeted: GreetedConnection<S>,
        welcome: (WelcomeFrame, WelcomeV1),
        limits: &SessionLimits,
        keysets: Keysets,
        buffers: Arc<SessionMemory>,
        now: Duration,
    ) -> Session<S> {
        let GreetedConnection { mut link, hello, hello_id } = greeted;
        link.rest();
        let (peer, over) = (link.peer().clone(), Carrier::of(link.stream().transport()));
        let (grant, welcome) = welcome;
        let (number, welcome) = (welcome.session, control::seal(&welcome));
        Session {
            link,
            peer,
            over,
            pusher: Pusher {
                pusher: hello.pusher,
                incarnation: hello.incarnation,
                session: number,
                blocked: false,
                introduced: Default::default(),
                ranks: Vec::new(),
            },
            subscriptions: Subscriptions::new(keysets.share()),
            keysets,
            share: SessionShare::new(buffers),
            credit_frames: limits.credit_frames as usize,
            welcome: Some((grant.encode(hello_id), welcome)),
            blocked: false,
            parked: None,
            pending_replies: VecDeque::new(),
            waiting: None,
            waiting_for_memory: false,
            times: ProgressTimes { moved: now, heard: now, whole: now, taken: now },
            unsent_bytes: 0,
            since: now,
            held: false,
        }
    }

    pub(super) fn note(&mut self, event: &Event) {
        self.link.note(event);
    }

    /// Receives once, handles what is whole, sends what can be sent.
    pub(super) fn turn(
        &mut self,
        context: &mut RequestContext<'_>,
        now: Duration,
    ) -> Result<TurnOutcome, SessionEnd> {
        let mut turn = TurnOutcome::default();
        if !self.reserve_buffers() {
            // The delay is ours.
            (self.times.whole, self.times.heard) = (now, now);
            turn.waiting_for_memory = true;
            return Ok(turn);
        }
        if !self.link.receive().is_partial() {
            self.times.whole = now;
        }
        let queued = self.link.transmit().queued_bytes();
        if self.link.can_send() && self.flush(now)? {
            self.blocked = false;
        }
        let mut moved = self.link.transmit().queued_bytes() != queued;
        if !self.blocked {
            if self.link.is_readable()
                && let Filled::Bytes(_) = self.link.fill(&mut NoOwner)?
            {
                (moved, self.times.heard) = (true, now);
            }
            if !self.held {
                self.since = now;
            }
            let mut untimed = RequestBatch::default();
            let handled = self.handle_frames(context, &mut turn, &mut untimed, now);
            untimed.settle(context, self.since);
            self.held = handled?;
            let drained = self.flush(now)?;
            self.blocked &= !drained;
            let stays = self.blocked || self.parked.is_some();
            turn.more = !stays && (self.held || self.link.is_readable());
            if !self.blocked {
                self.check_credit()?;
            }
            // What it sent before it went may fill the buffer, so that its end is never read.
            if self.parked.is_some() && self.link.is_ending() {
                return Err(SessionEnd::Gone(self.peer.clone()));
            }
        }
        self.note_wait(now);
        if turn.frames > 0 || self.blocked {
            self.times.whole = now;
        }
        if moved || turn.frames > 0 {
            self.times.moved = now;
        }
        Ok(turn)
    }

    /// Sends what the peer takes. `true`: nothing is left.
    ///
    /// A slow peer is timed by batches of answers. A batch is all bytes that wait when the batch before has been sent.
    /// Answers that come later do not extend the time of the batch before them.
    fn flush(&mut self, now: Duration) -> Result<bool, LinkError> {
        let before = self.link.transmit().queued_bytes();
        let drained = self.link.flush(&mut NoOwner)?;
        let left = self.link.transmit().queued_bytes();
        self.unsent_bytes = self.unsent_bytes.saturating_sub(before - left);
        if self.unsent_bytes == 0 {
            (self.unsent_bytes, self.times.taken) = (left, now);
        }
        Ok(drained)
    }

    /// Reserves memory for the buffers, and sends the welcome once there is some; `false` while there is none.
    fn reserve_buffers(&mut self) -> bool {
        self.waiting_for_memory = self.share.bytes() == 0 && !self.share.resize(LINK_BYTES_MAX);
        if !self.waiting_for_memory
            && let Some((head, welcome)) = self.welcome.take()
        {
            let sent = self.link.transmit().send_copy(head, &welcome);
            debug_assert!(sent.is_ok(), "a new link has room");
        }
        !self.waiting_for_memory
    }

    /// Requests whose answers are owed, and those that wait here whole, are under way: more of them than the credit,
    /// and the worker does not keep to it.
    fn check_credit(&mut self) -> Result<(), SessionEnd> {
        let (credit, receive) = (self.credit_frames, self.link.receive());
        let within = |left: usize| {
            !self.held
                || receive.pending_bytes() <= left.saturating_mul(HEAD_BYTES)
                || receive.count_frames(left.saturating_add(1)) <= left
        };
        // One may always be under way.
        if credit.max(1).checked_sub(self.pending_replies.len()).is_some_and(within) {
            return Ok(());
        }
        let end = SessionEnd::Overrun { peer: self.link.peer().clone(), credit };
        turn_away(&mut self.link, 0, Refusal::Limit, end.to_string());
        Err(end)
    }

    /// Gives the buffers' memory back if nothing stands in them, and, unless others wait for it, nothing has moved for
    /// a while.
    pub(super) fn rest(&mut self, now: Duration, pressed: bool) {
        if self.share.bytes() > 0 && (pressed || now.saturating_sub(self.times.moved) >= REST_TIME) {
            self.link.rest();
            if self.link.held_bytes() == 0 {
                self.share.resize(0);
            }
        }
    }

    /// A second has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        self.keysets.tick();
        self.rest(now, false);
    }

    /// Handles frames up to the turn's limit; `true` when whole ones may be left.
    fn handle_frames(
        &mut self,
        context: &mut RequestContext<'_>,
        turn: &mut TurnOutcome,
        untimed: &mut RequestBatch,
        now: Duration,
    ) -> Result<bool, LinkError> {
        self.parked = None;
        if !self.settle_owed(context, now) {
            self.blocked = true;
            return Ok(true);
        }
        while turn.frames < FRAMES_PER_TURN as u64 {
            let (receive, transmit, stream) = self.link.parts();
            let before = transmit.queued_bytes();
            let Some(frame) = receive.peek(&mut NoOwner)? else { return Ok(false) };
            let Session { keysets, subscriptions, pusher, pending_replies: pending, .. } = self;
            let mut handler =
                RequestHandler { context, keysets, pusher, subscriptions, pending, now, transmit };
            let handled = handler.dispatch(&frame, stream).or_else(|stop| handler.put_aside(&frame, stop));
            let handled = match handled {
                Err(RequestFailure::Refused(refusal, text)) => {
                    handler.refuse(&self.peer, &frame.head, refusal, text)
                }
                handled => handled,
            };
            match handled {
                Ok(()) => {}
                Err(RequestFailure::Parked(table)) => {
                    self.parked = Some((table, frame.head.id));
                    return Ok(true);
                }
                Err(_) => {
                    self.blocked = true;
                    context.tally.full_turns.add(1);
                    return Ok(true);
                }
            }
            turn.frames += 1;
            let queued = transmit.queued_bytes();
            let (got, sent) = (frame.payload.len(), queued.saturating_sub(before));
            turn.largest = turn.largest.max(got).max(sent);
            let over = context.tally.over(self.over);
            over.received_bytes.add((HEAD_BYTES + got) as u64);
            over.sent_bytes.add(sent as u64);
            untimed.frames[RequestKind::of(frame.head.kind) as usize] += 1;
            untimed.bytes += HEAD_BYTES + got + sent;
            receive.consume();
            if untimed.bytes >= CLOCK_BYTES {
                untimed.settle(context, self.since);
            }
            if queued >= FLUSH_BYTES {
                self.flush(now)?;
            }
            if !self.settle_owed(context, now) {
                self.blocked = true;
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Gives the answers that have come due; `false` when there is no room for one.
    fn settle_owed(&mut self, context: &mut RequestContext<'_>, now: Duration) -> bool {
        while let Some(pending) = self.pending_replies.front() {
            let settled = match pending {
                PendingReply::Request { .. } => self.answer_request(context, now),
                pending => pending.settle(context.tables, &mut self.pusher, self.link.transmit()),
            };
            match settled {
                ReplyOutcome::Given => drop(self.pending_replies.pop_front()),
                ReplyOutcome::Waits => return true,
                ReplyOutcome::NoRoom => return false,
            }
        }
        true
    }

    /// Does what the first of the requests asks that were put off, and takes it away if that could be done.
    fn answer_request(&mut self, context: &mut RequestContext<'_>, now: Duration) -> ReplyOutcome {
        // To itself it stands before all others.
        let pending = std::mem::take(&mut self.pending_replies);
        let (_, transmit, stream) = self.link.parts();
        let Session { keysets, subscriptions, pusher, pending_replies, .. } = self;
        let mut handler = RequestHandler {
            context,
            keysets,
            pusher,
            subscriptions,
            pending: pending_replies,
            now,
            transmit,
        };
        let handled = match pending.front() {
            Some(PendingReply::Request { head, payload, bytes, .. }) => {
                let frame = Frame { head: *head, payload: &bytemuck::cast_slice(payload)[..*bytes] };
                match handler.dispatch(&frame, stream) {
                    Err(RequestFailure::Refused(refusal, text)) => {
                        handler.refuse(&self.peer, head, refusal, text)
                    }
                    handled => handled,
                }
            }
            _ => Ok(()),
        };
        self.pending_replies = pending;
        match handled {
            Ok(()) => ReplyOutcome::Given,
            Err(RequestFailure::Parked(_)) => ReplyOutcome::Waits,
            Err(_) => ReplyOutcome::NoRoom,
        }
    }

    /// Takes note of what waits for other workers now, and since when.
    fn note_wait(&mut self, now: Duration) {
        let pending = self.pending_replies.iter().find_map(PendingReply::waits_for);
        self.waiting = match pending.or(self.parked) {
            None => None,
            Some((table, id)) => match self.waiting.take().filter(|waiting| waiting.id == id) {
                None => Some(WaitingRequest { table, id, since: now, told: None }),
                same => same,
            },
        };
    }

    /// Tells a peer whose request waits for other workers of that, now and then; `true` when something is to be sent.
    /// That it says nothing meanwhile is no wonder.
    pub(super) fn tell_wait(&mut self, tables: &ServerTables, now: Duration) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        (self.times.heard, self.times.whole, self.times.moved) = (now, now, now);
        if !waiting.is_due(now) {
            return false;
        }
        waiting.told = Some(now);
        let Some(payload) = tables.waits(waiting.table, now) else { return false };
        self.link.transmit().send_copy(WaitsFrame {}.encode(waiting.id), &payload).is_ok()
    }

    /// Something of it waits for other workers.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// When what has changed of the rows that it has subscribed is to be sent.
    pub(super) fn next_sweep(&self) -> Duration {
        self.subscriptions.due()
    }

    /// Sends what has changed of them, unless its peer takes nothing, or has not asked for anything lately.
    pub(super) fn sweep(&mut self, context: &mut RequestContext<'_>, now: Duration) {
        let waits = !self.link.transmit().is_empty() && self.subscriptions.is_between();
        let quiet = now.saturating_sub(self.times.heard) > DELTAS_QUIET;
        if waits || quiet || self.blocked || !self.reserve_buffers() {
            return self.subscriptions.skip(now);
        }
        self.subscriptions.sweep(context.tables, context.scratch, self.link.transmit(), now);
    }

    /// Whose session it is.
    pub(super) fn pusher(&self) -> &Pusher {
        &self.pusher
    }

    /// When it was last heard of.
    pub(super) fn heard(&self) -> Duration {
        self.times.heard
    }

    /// Tells the peer that the others went on without it.
    pub(super) fn fence(&mut self) -> SessionEnd {
        let why = "the others went on without this worker (--worker-timeout): start it again";
        turn_away(&mut self.link, 0, Refusal::Fenced, why.into());
        SessionEnd::Fenced(self.peer.clone())
    }

    /// The out queue is full: nothing more is read.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Bytes of the keysets that it keeps.
    pub(super) fn keyset_bytes(&self) -> usize {
        self.keysets.bytes()
    }

    /// Waits for memory.
    pub(super) fn is_waiting_for_memory(&self) -> bool {
        self.waiting_for_memory
    }

    /// Why the session is to end now, if it is: the peer has left a frame half sent, or its answers untaken, for too
    /// long, or moves them too slowly, or says nothing. `pressed`: others wait for the memory that it holds.
    pub(super) fn overdue(&mut self, now: Duration, silence: Duration, pressed: bool) -> Option<SessionEnd> {
        let (begun, untaken) = (self.link.receive().is_partial(), !self.link.transmit().is_empty());
        let over = |since: Duration, limit: Duration| now.saturating_sub(since) > limit;
        let whole = if pressed { FRAME_TIME_PRESSED } else { FRAME_TIME };
        let peer = || self.link.peer().clone();
        if (begun || untaken) && over(self.times.moved, STALL_TIME) {
            return Some(SessionEnd::Stalled(peer(), STALL_TIME.as_secs()));
        }
        if begun && over(self.times.whole, whole) || untaken && over(self.times.taken, whole) {
            return Some(SessionEnd::Stalled(peer(), whole.as_secs()));
        }
        over(self.times.heard, silence).then(|| SessionEnd::Silent(peer(), silence.as_secs()))
    }
}
