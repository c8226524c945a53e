//! One link of a server thread: its turn of the event loop, from received bytes to answers on their way.

use crate::config::SessionLimits;
use crate::counters::request_kind::RequestKind;
use crate::counters::server::Carrier;
use crate::limits::{CLOCK_BYTES, DELTAS_QUIET, FLUSH_BYTES, FRAMES_PER_TURN, REST_TIME};
use crate::peers::keysets::Keysets;
use crate::peers::kinds::{depends_on_commands, leaves_at_once};
use crate::peers::memory::SessionMemory;
use crate::peers::outcome::RequestFailure;
use crate::peers::pusher::Pusher;
use crate::replication::gate::ReplicationGate;
use crate::replication::hold::{HeldAcks, ReplyHold};
use crate::requests::steps::awaited::waits_for_others;
use crate::requests::subscriptions::Subscriptions;
use crate::server_tables::ServerTables;
use crate::sessions::context::{GreetedConnection, RequestContext, WorkerState};
use crate::sessions::dispatch::RequestHandler;
use crate::sessions::end::SessionEnd;
use crate::sessions::pending_replies::{PendingReply, ReplyOutcome};
use crate::sessions::send::turn_away;
use crate::sessions::session_buffers::SessionBuffers;
use crate::sessions::session_replies::SessionReplies;
use crate::sessions::session_times::SessionTimes;
use gannet_transport::limits::HEAD_BYTES;
use gannet_transport::{Event, Filled, Frame, Link, LinkError, NoOwner, Stream};
use gannet_wire::frames::session::WelcomeFrame;
use gannet_wire::messages::control::WelcomeV1;
use gannet_wire::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;

/// One link of a worker, and everything that a server thread keeps for it.
pub(crate) struct Session<S> {
    pub(crate) link: Link<S>,
    /// The peer's address.
    pub(crate) peer: Arc<str>,
    /// The transport of the link.
    pub(crate) over: Carrier,
    worker: WorkerState,
    buffers: SessionBuffers,
    replies: SessionReplies,
    /// The replies that wait for backups.
    hold: ReplyHold,
    /// The acknowledgements that wait for backups, with asynchronous replication.
    acks: HeldAcks,
    /// A reply since the last flush waits for backups also with asynchronous replication.
    waits: bool,
    /// Replies of this session depend on commands of the shards here.
    depends: bool,
    times: SessionTimes,
    credit_frames: usize,
    /// The next reply does not fit into the queue. The session reads nothing until the queue has drained.
    blocked: bool,
    /// The turn before may have left whole requests in the receive buffer.
    unhandled: bool,
    /// When the oldest of the unhandled requests arrived.
    unhandled_since: Duration,
}

/// What a turn came to.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TurnOutcome {
    /// There is more to do at once.
    pub(crate) more: bool,
    /// There is no memory for the session's buffers.
    pub(crate) waiting_for_memory: bool,
    pub(crate) frames: u64,
    /// The largest frame handled, received or sent.
    pub(crate) largest: usize,
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
            for (&frames, histogram) in
                self.frames.iter().zip(&context.counters.took).filter(|(n, _)| **n > 0)
            {
                histogram.observe(took, u64::from(frames));
            }
            *self = RequestBatch::default();
        }
    }
}

impl<S: Stream> Session<S> {
    /// A session that will welcome its worker. `buffers` and `keysets` are the server's.
    pub(crate) fn new(
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
        let pusher = Pusher {
            pusher: hello.pusher,
            incarnation: hello.incarnation,
            session: welcome.session,
            blocked: false,
            introduced: Default::default(),
            ranks: Vec::new(),
        };
        Session {
            link,
            peer,
            over,
            worker: WorkerState { pusher, subscriptions: Subscriptions::new(keysets.share()), keysets },
            buffers: SessionBuffers::new(buffers, hello_id, grant, &welcome),
            replies: SessionReplies::default(),
            hold: ReplyHold::default(),
            acks: HeldAcks::default(),
            waits: false,
            depends: false,
            times: SessionTimes::new(now),
            credit_frames: limits.credit_frames as usize,
            blocked: false,
            unhandled: false,
            unhandled_since: now,
        }
    }

    pub(crate) fn note(&mut self, event: &Event) {
        self.link.note(event);
    }

    /// Receives once, handles what is whole, sends what can be sent.
    pub(crate) fn turn(
        &mut self,
        context: &mut RequestContext<'_>,
        now: Duration,
    ) -> Result<TurnOutcome, SessionEnd> {
        let mut turn = TurnOutcome::default();
        if !self.buffers.reserve(&mut self.link) {
            self.times.excuse_no_memory(now);
            turn.waiting_for_memory = true;
            return Ok(turn);
        }
        if !self.link.receive().is_partial() {
            self.times.note_whole(now);
        }
        let queued = self.link.transmit().queued_bytes();
        if self.link.can_send() && self.flush(context.gate(), now)? {
            self.blocked = false;
        }
        let mut moved = self.link.transmit().queued_bytes() != queued;
        if !self.blocked {
            if self.link.is_readable()
                && let Filled::Bytes(_) = self.link.fill(&mut NoOwner)?
            {
                (moved, self.times.received) = (true, now);
            }
            if !self.unhandled {
                self.unhandled_since = now;
            }
            let mut untimed = RequestBatch::default();
            let handled = self.handle_frames(context, &mut turn, &mut untimed, now);
            untimed.settle(context, self.unhandled_since);
            self.unhandled = handled?;
            let drained = self.flush(context.gate(), now)?;
            self.blocked &= !drained;
            let stays = self.blocked || self.replies.parked.is_some();
            turn.more = !stays && (self.unhandled || self.link.is_readable());
            if !self.blocked {
                self.check_credit()?;
            }
            // The buffer may be full of what the peer sent before it left. The session then never reads the link's end.
            if self.replies.parked.is_some() && self.link.is_ending() {
                return Err(SessionEnd::Gone(self.peer.clone()));
            }
        }
        self.replies.note_wait(now);
        if turn.frames > 0 || self.blocked {
            self.times.note_whole(now);
        }
        if moved || turn.frames > 0 {
            self.times.moved = now;
        }
        Ok(turn)
    }

    /// Sends what may leave and what the peer accepts now. `true`: nothing is left.
    fn flush(&mut self, gate: ReplicationGate, now: Duration) -> Result<bool, LinkError> {
        let mut before = self.link.transmit().queued_bytes();
        let gate = if self.depends { gate } else { ReplicationGate::OPEN };
        let drained = loop {
            let queued = self.link.transmit().queued_bytes();
            let is_full = self.acks.release(self.link.transmit(), gate);
            before += self.link.transmit().queued_bytes() - queued;
            let waits = std::mem::take(&mut self.waits) || !gate.is_async;
            self.hold.limit(self.link.transmit(), if waits { gate } else { gate.without_waiting() });
            let is_sent = self.link.flush(&mut NoOwner)?;
            if !(is_full && is_sent) || self.hold.is_holding() {
                break is_sent && !is_full && !self.hold.is_holding();
            }
        };
        if self.hold.is_holding() {
            self.times.excuse_hold(now);
        }
        self.times.note_flush(before, self.link.transmit().queued_bytes(), now);
        Ok(drained)
    }

    /// Ends a session whose worker has more requests under way than its credit. A request is under way while its reply
    /// is pending or while it waits in the receive buffer.
    fn check_credit(&mut self) -> Result<(), SessionEnd> {
        let (credit, receive) = (self.credit_frames, self.link.receive());
        let within = |left: usize| {
            !self.unhandled
                || receive.pending_bytes() <= left.saturating_mul(HEAD_BYTES)
                || receive.count_frames(left.saturating_add(1)) <= left
        };
        // One may always be under way.
        let unanswered = self.replies.pending.len() + self.acks.len();
        if credit.max(1).checked_sub(unanswered).is_some_and(within) {
            return Ok(());
        }
        let end = SessionEnd::Overrun { peer: self.link.peer().clone(), credit };
        turn_away(&mut self.link, 0, Refusal::Limit, end.to_string());
        Err(end)
    }

    /// Returns the memory of empty buffers. It does so at once when other sessions wait for memory (`pressed`), and
    /// otherwise when nothing has moved for a while.
    pub(crate) fn rest(&mut self, now: Duration, pressed: bool) {
        if self.buffers.is_reserved() && (pressed || now.saturating_sub(self.times.moved) >= REST_TIME) {
            self.buffers.release(&mut self.link);
        }
    }

    /// A second has passed.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.worker.keysets.tick();
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
        self.replies.parked = None;
        if !self.settle_pending(context, now) {
            self.blocked = true;
            return Ok(true);
        }
        while turn.frames < FRAMES_PER_TURN as u64 {
            let (receive, transmit, stream) = self.link.parts();
            let before = transmit.queued_bytes();
            let Some(frame) = receive.peek(&mut NoOwner)? else { return Ok(false) };
            self.depends |= depends_on_commands(frame.head.kind);
            self.waits |= !leaves_at_once(frame.head.kind);
            let Session { worker, replies, acks, .. } = self;
            let mut handler =
                RequestHandler { context, worker, pending: &mut replies.pending, now, transmit, acks };
            let handled = handler.dispatch(&frame, stream).or_else(|stop| handler.put_aside(&frame, stop));
            let handled = match handled {
                Err(RequestFailure::Refused(refusal, text)) => {
                    let refused = handler.refuse(&self.peer, &frame.head, refusal, text);
                    // The refusal would wait behind replies that wait for other workers, and these may wait for this
                    // worker's clock, which it sends again only when it has seen the refusal.
                    if handler.worker.pusher.blocked && !handler.pending.is_empty() {
                        let (peer, why) = (self.peer.clone(), "a push was refused behind replies that wait");
                        return Err(LinkError::Io { peer, source: std::io::Error::other(why) });
                    }
                    refused
                }
                handled => handled,
            };
            match handled {
                Ok(()) => {}
                Err(RequestFailure::Parked(table)) => {
                    self.replies.parked = Some((table, frame.head.id));
                    return Ok(true);
                }
                Err(_) => {
                    self.blocked = true;
                    context.counters.full_turns.add(1);
                    return Ok(true);
                }
            }
            turn.frames += 1;
            let queued = transmit.queued_bytes();
            let (got, sent) = (frame.payload.len(), queued.saturating_sub(before));
            turn.largest = turn.largest.max(got).max(sent);
            let over = context.counters.over(self.over);
            over.received_bytes.add((HEAD_BYTES + got) as u64);
            over.sent_bytes.add(sent as u64);
            untimed.frames[RequestKind::of(frame.head.kind) as usize] += 1;
            untimed.bytes += HEAD_BYTES + got + sent;
            receive.consume();
            if untimed.bytes >= CLOCK_BYTES {
                untimed.settle(context, self.unhandled_since);
            }
            if queued >= FLUSH_BYTES {
                self.flush(context.gate(), now)?;
            }
            if !self.settle_pending(context, now) {
                self.blocked = true;
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Sends the pending replies that are due. `false`: the transmit queue is full.
    fn settle_pending(&mut self, context: &mut RequestContext<'_>, now: Duration) -> bool {
        while let Some(pending) = self.replies.pending.front() {
            self.waits |= pending.waits_for_backups();
            let settled = match pending {
                PendingReply::Request { .. } => self.answer_request(context, now),
                pending => {
                    let (pusher, acks) = (&mut self.worker.pusher, &mut self.acks);
                    pending.settle(context.tables, pusher, self.link.transmit(), acks)
                }
            };
            match settled {
                ReplyOutcome::Given => drop(self.replies.pending.pop_front()),
                ReplyOutcome::Waits => return true,
                ReplyOutcome::NoRoom => return false,
            }
        }
        true
    }

    /// Handles the first of the requests that the session has put aside.
    fn answer_request(&mut self, context: &mut RequestContext<'_>, now: Duration) -> ReplyOutcome {
        // The handler must find no pending reply before this request.
        let pending = std::mem::take(&mut self.replies.pending);
        let (_, transmit, stream) = self.link.parts();
        let Session { worker, replies, acks, .. } = self;
        let mut handler =
            RequestHandler { context, worker, pending: &mut replies.pending, now, transmit, acks };
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
        self.replies.pending = pending;
        match handled {
            Ok(()) => ReplyOutcome::Given,
            Err(RequestFailure::Parked(_)) => ReplyOutcome::Waits,
            Err(_) => ReplyOutcome::NoRoom,
        }
    }

    /// Tells a peer, from time to time, whom its request waits for. `true`: the link has something to send. The peer
    /// may be silent meanwhile.
    pub(crate) fn report_wait(&mut self, tables: &ServerTables, now: Duration) -> bool {
        let Some(table) = self.replies.waits_over() else { return false };
        if waits_for_others(tables, table, &self.worker.pusher) {
            self.times.excuse_wait(now);
        }
        self.replies.report_wait(tables, &self.worker.pusher, self.link.transmit(), now)
    }

    /// A request of this session waits for other workers.
    pub(crate) fn is_waiting(&self) -> bool {
        self.replies.is_waiting()
    }

    /// When the session sends the next changes of the rows to which its worker subscribes.
    pub(crate) fn next_sweep(&self) -> Duration {
        self.worker.subscriptions.due()
    }

    /// Sends changed rows of the subscriptions. It skips a peer that reads nothing or has requested nothing lately.
    pub(crate) fn sweep(&mut self, context: &mut RequestContext<'_>, now: Duration) {
        let subscriptions = &mut self.worker.subscriptions;
        let waits = !self.link.transmit().is_empty() && subscriptions.is_between();
        let quiet = now.saturating_sub(self.times.received) > DELTAS_QUIET;
        if waits || quiet || self.blocked || !self.buffers.reserve(&mut self.link) {
            return subscriptions.skip(now);
        }
        subscriptions.sweep(context.tables, context.scratch, self.link.transmit(), now);
    }

    /// Replies wait for backups.
    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_holding() || self.acks.len() > 0
    }

    /// Replies have waited for backups, and may leave now.
    pub(crate) fn is_free(&self, gate: ReplicationGate) -> bool {
        self.hold.is_free(gate) || self.acks.is_free(gate)
    }

    /// The worker of the session.
    pub(crate) fn pusher(&self) -> &Pusher {
        &self.worker.pusher
    }

    /// When the session last received bytes.
    pub(crate) fn last_received(&self) -> Duration {
        self.times.received
    }

    /// Tells the peer that the others went on without it.
    pub(crate) fn fence(&mut self) -> SessionEnd {
        let why = "the others went on without this worker (--worker-timeout): start it again";
        turn_away(&mut self.link, 0, Refusal::Fenced, why.into());
        SessionEnd::Fenced(self.peer.clone())
    }

    /// The out queue is full: nothing more is read.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Bytes of the keysets that the session keeps.
    pub(crate) fn keyset_bytes(&self) -> usize {
        self.worker.keysets.bytes()
    }

    /// The session waits for memory for its buffers.
    pub(crate) fn is_waiting_for_memory(&self) -> bool {
        self.buffers.is_waiting()
    }

    /// Why the session must end now, if it must: see [`SessionTimes::overdue`].
    pub(crate) fn overdue(&mut self, now: Duration, silence: Duration, pressed: bool) -> Option<SessionEnd> {
        let (partial, unread) = (self.link.receive().is_partial(), !self.link.transmit().is_empty());
        self.times.overdue(&self.peer, partial, unread, silence, pressed, now)
    }
}
