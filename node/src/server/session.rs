//! One link of a server thread: its turn of the event loop, from received bytes to answers on their way.

use super::bulk::{self, Handled, Pusher, ScanScratch, Stop};
use super::keysets::Keysets;
use super::tables::Tables;
use crate::control::{self, HelloV1, RefusedV1, WelcomeV1};
use crate::error::Refusal;
use crate::limits::{CLOCK_BYTES, FLUSH_BYTES, FRAMES_PER_TURN, STALL_TIME, TEXT_BYTES_MAX};
use crate::message;
use crate::tally::{Kind, ThreadTally};
use gannet_transport::limits::HEAD_BYTES;
use gannet_transport::{Event, Filled, Frame, Head, Link, LinkError, Nothing, Stream, Transmit};
use std::sync::Arc;
use std::time::Duration;

/// A connection that has said who it is: what the acceptor hands to a thread.
pub(super) struct Greeted<S> {
    pub(super) link: Link<S>,
    pub(super) hello: HelloV1,
    pub(super) hello_id: u64,
}

/// One link and what belongs to it.
pub(super) struct Session<S> {
    pub(super) link: Link<S>,
    /// Its address.
    pub(super) peer: Arc<str>,
    number: u32,
    pusher: Pusher,
    keysets: Keysets,
    /// The next answer found no room: nothing more is read until the queue has drained.
    blocked: bool,
    moved_at: Duration,
    /// Since when requests that are here whole, or on their way here, wait to be handled.
    since: Duration,
    /// Whole requests may be left of the turn before.
    held: bool,
}

/// What a turn came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Turn {
    /// There is more to do at once.
    pub(super) more: bool,
    pub(super) frames: u64,
    /// The largest frame handled, received or sent.
    pub(super) largest: usize,
}

/// What a session needs of its thread.
pub(super) struct Room<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) scratch: &'a mut ScanScratch,
    pub(super) tally: &'a ThreadTally,
    /// What time it is.
    pub(super) clock: &'a dyn Fn() -> Duration,
}

/// Requests handled since the clock was looked at.
#[derive(Default)]
struct Untimed {
    frames: [u32; Kind::COUNT],
    bytes: usize,
}

impl Untimed {
    /// Looks at the clock: all of them have been answered by now.
    fn settle(&mut self, room: &Room<'_>, since: Duration) {
        if self.bytes > 0 {
            let took = (room.clock)().saturating_sub(since);
            for (&frames, histogram) in self.frames.iter().zip(&room.tally.took).filter(|(n, _)| **n > 0) {
                histogram.observe(took, u64::from(frames));
            }
            *self = Untimed::default();
        }
    }
}

impl<S: Stream> Session<S> {
    /// Welcomes a worker.
    pub(super) fn new(
        greeted: Greeted<S>,
        number: u32,
        welcome: &WelcomeV1,
        keyset_bytes: usize,
        now: Duration,
    ) -> Session<S> {
        let Greeted { mut link, hello, hello_id } = greeted;
        let head = Head::new(message::WELCOME, 0, hello_id, [0; 4]);
        let sent = link.transmit().send_copy(head, &control::seal(welcome));
        debug_assert!(sent.is_ok(), "a new link has room");
        let pusher = Pusher { pusher: hello.pusher, incarnation: hello.incarnation, blocked: false };
        let keysets = Keysets::new(keyset_bytes);
        let peer = link.peer().clone();
        Session {
            link,
            peer,
            number,
            pusher,
            keysets,
            blocked: false,
            moved_at: now,
            since: now,
            held: false,
        }
    }

    pub(super) fn note(&mut self, event: &Event) {
        self.link.note(event);
    }

    /// Receives once, handles what is whole, sends what can be sent.
    pub(super) fn turn(&mut self, room: &mut Room<'_>, now: Duration) -> Result<Turn, LinkError> {
        let mut turn = Turn::default();
        let queued = self.link.transmit().queued_bytes();
        if self.link.can_send() && self.link.flush(&mut Nothing)? {
            self.blocked = false;
        }
        let mut moved = self.link.transmit().queued_bytes() != queued;
        if !self.blocked {
            if self.link.is_readable() {
                moved |= matches!(self.link.fill(&mut Nothing)?, Filled::Bytes(_));
            }
            if !self.held {
                self.since = now;
            }
            let mut untimed = Untimed::default();
            let handled = self.handle_frames(room, &mut turn, &mut untimed);
            untimed.settle(room, self.since);
            self.held = handled?;
            let drained = self.link.flush(&mut Nothing)?;
            self.blocked &= !drained;
            turn.more = !self.blocked && (self.held || self.link.is_readable());
        }
        if moved || turn.frames > 0 {
            self.moved_at = now;
        }
        Ok(turn)
    }

    /// Handles frames up to the turn's limit; `true` when whole ones may be left.
    fn handle_frames(
        &mut self,
        room: &mut Room<'_>,
        turn: &mut Turn,
        untimed: &mut Untimed,
    ) -> Result<bool, LinkError> {
        while turn.frames < FRAMES_PER_TURN as u64 {
            let (receive, transmit) = self.link.halves();
            let before = transmit.queued_bytes();
            let Some(frame) = receive.peek(&mut Nothing)? else { return Ok(false) };
            let handled =
                match dispatch(&frame, room, &mut self.keysets, self.number, &mut self.pusher, transmit) {
                    Err(Stop::Refused(refusal, text)) => {
                        let sent = send_refusal(&self.peer, &frame.head, refusal, text, transmit);
                        room.tally.refused[refusal.place()].add(u64::from(sent.is_ok()));
                        sent
                    }
                    handled => handled,
                };
            if handled.is_err() {
                self.blocked = true;
                room.tally.full_turns.add(1);
                return Ok(true);
            }
            turn.frames += 1;
            let queued = transmit.queued_bytes();
            let (got, sent) = (frame.payload.len(), queued.saturating_sub(before));
            turn.largest = turn.largest.max(got).max(sent);
            room.tally.received_bytes.add((HEAD_BYTES + got) as u64);
            room.tally.sent_bytes.add(sent as u64);
            untimed.frames[Kind::of(frame.head.kind) as usize] += 1;
            untimed.bytes += HEAD_BYTES + got + sent;
            receive.consume();
            if untimed.bytes >= CLOCK_BYTES {
                untimed.settle(room, self.since);
            }
            if queued >= FLUSH_BYTES {
                self.link.flush(&mut Nothing)?;
            }
        }
        Ok(true)
    }

    /// The out queue is full: nothing more is read.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Bytes of the keysets that it keeps.
    pub(super) fn keyset_bytes(&self) -> usize {
        self.keysets.bytes()
    }

    /// The peer has left a frame half sent, or its answers untaken, for too long.
    pub(super) fn has_stalled(&mut self, now: Duration) -> bool {
        let waits = self.link.receive().is_partial() || !self.link.transmit().is_empty();
        waits && now.saturating_sub(self.moved_at) > STALL_TIME
    }
}

fn dispatch(
    frame: &Frame<'_>,
    room: &mut Room<'_>,
    keysets: &mut Keysets,
    session: u32,
    pusher: &mut Pusher,
    transmit: &mut Transmit,
) -> Handled {
    let Room { tables, scratch, .. } = room;
    match frame.head.kind {
        message::PULL => bulk::pull(frame, &mut tables.all, keysets, transmit),
        message::PUSH => bulk::push(frame, &mut tables.all, keysets, session, pusher, transmit),
        message::SCAN => bulk::scan(frame, &mut tables.all, scratch, transmit),
        message::OPEN_TABLE => tables.answer_open(frame, pusher, transmit),
        message::STATUS => tables.answer_status(frame, transmit),
        message::CLOSE_PUSHER => tables.answer_close(frame, pusher, transmit),
        kind => bulk::refuse(Refusal::Malformed, format!("frame kind {kind} is no request")),
    }
}

/// Answers a request with the reason why it is refused.
pub(super) fn send_refusal(
    peer: &str,
    request: &Head,
    refusal: Refusal,
    mut text: String,
    transmit: &mut Transmit,
) -> Handled {
    tracing::warn!(peer, ?refusal, kind = request.kind, text, "a request was refused");
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    let head = Head::new(message::REFUSED, refusal as u16, request.id, [u64::from(request.kind), 0, 0, 0]);
    Ok(transmit.send_copy(head, &control::seal(&RefusedV1 { text }))?)
}
