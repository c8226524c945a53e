//! The state of a session over verbs that its stream and its poll share: what has arrived, what may be sent,
//! how it ended.

use super::adapter::{SessionFault, Verbs};
use super::connect::{Flow, Phase};
use super::window::{Credit, Message};
use crate::limits::{VERBS_CONNECT_TIME, VERBS_SETTLE};
use crate::verbs::resources::cm::{Id, QueuePair};
use crate::verbs::resources::objects::{FailedWork, WorkKind};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;

/// Events to report to a poll, once each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PollEdges {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) closed: bool,
}

/// How a session ended.
struct VerbsSessionEnd {
    kind: io::ErrorKind,
    text: String,
}

pub(crate) struct VerbsSession {
    /// Queue pair and memory. Dropped before the id that connects them.
    pub(crate) flow: Option<Flow>,
    /// The queue pair for READs, by this side (until a reader takes it) or by the peer.
    pub(crate) reading: Option<QueuePair>,
    pub(crate) id: Id,
    /// A descriptor that is readable when rdma_cm has an event, or when the completions have one and are armed.
    pub(crate) event_fd: Arc<OwnedFd>,
    pub(crate) phase: Phase,
    /// When connecting must have succeeded.
    pub(crate) give_up: Instant,
    pub(crate) verbs: Verbs,
    /// The address that was connected to, or the peer's.
    pub(crate) name: Arc<str>,
    /// Whether this side connects.
    connects: bool,
    edges: PollEdges,
    /// A send found no space, so new space must be reported.
    refused: bool,
    ended: Option<VerbsSessionEnd>,
    /// rdma_cm may have an event.
    pub(crate) cm_ready: bool,
    /// Its stream has been dropped.
    pub(crate) gone: bool,
    /// The last message was posted.
    end_posted: bool,
    /// The next completion makes the descriptor readable.
    armed: bool,
}

impl VerbsSession {
    pub(crate) fn new(verbs: Verbs, id: Id, phase: Phase, name: Arc<str>) -> io::Result<VerbsSession> {
        let event_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&event_fd, id.fd(), EventData::new_u64(0), EventFlags::IN)?;
        Ok(VerbsSession {
            flow: None,
            reading: None,
            id,
            event_fd: Arc::new(event_fd),
            phase,
            give_up: Instant::now() + VERBS_CONNECT_TIME,
            verbs,
            name,
            connects: phase == Phase::Resolving,
            edges: PollEdges::default(),
            refused: false,
            ended: None,
            cm_ready: true,
            gone: false,
            end_posted: false,
            armed: false,
        })
    }

    /// Sets the queue pair, now that the device is known. Its completions make the descriptor readable too.
    pub(crate) fn install(&mut self, flow: Flow) -> io::Result<()> {
        epoll::add(&self.event_fd, flow.pair.completions().fd(), EventData::new_u64(1), EventFlags::IN)?;
        self.flow = Some(flow);
        Ok(())
    }

    /// The peer has accepted: bytes may be sent.
    pub(crate) fn open(&mut self) {
        if self.phase != Phase::Open {
            if self.phase == Phase::Requested {
                self.verbs.reached(&self.name);
            }
            self.phase = Phase::Open;
            (self.edges.readable, self.edges.writable) = (true, true);
        }
    }

    /// The peer has ended the session.
    pub(crate) fn close(&mut self) {
        self.end(io::ErrorKind::UnexpectedEof, "the other side closed the connection".to_owned());
    }

    fn end(&mut self, kind: io::ErrorKind, text: String) {
        if self.ended.is_none() {
            if kind != io::ErrorKind::UnexpectedEof && !self.gone {
                tracing::info!(peer = %self.name, why = text, "a session over RDMA broke");
                if self.connects {
                    let fault = match self.phase {
                        Phase::Open => SessionFault::Broke,
                        _ if kind == io::ErrorKind::TimedOut => SessionFault::Silent,
                        _ => SessionFault::Refused,
                    };
                    self.verbs.failed(&self.name, fault, &text);
                }
            }
            self.ended = Some(VerbsSessionEnd { kind, text });
            self.edges = PollEdges { readable: true, writable: true, closed: true };
        }
    }

    /// Ends the session because a part of it failed.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        self.end(error.kind(), error.to_string());
    }

    /// Why it ended, if it has.
    pub(crate) fn end_of(&self) -> Option<io::Error> {
        self.ended.as_ref().map(|end| io::Error::new(end.kind, end.text.clone()))
    }

    /// Continues to connect, and notices that the peer has ended the session. `watched`: a poll reports events
    /// of rdma_cm.
    pub(crate) fn advance(&mut self, watched: bool) {
        let due = self.cm_ready || !watched || self.phase != Phase::Open;
        if due && self.ended.is_none() {
            self.cm_ready = false;
            if let Err(error) = self.step() {
                self.fail(&error);
            }
        }
    }

    /// Processes completions and arrived messages.
    pub(crate) fn reap(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let Some(flow) = &mut self.flow else { return };
        let (mut receives, mut came) = (0, false);
        let Flow { pair, staging, into, .. } = flow;
        let reaped = pair.completions().reap(|done| match done.what {
            WorkKind::Sent => Ok(staging.window.completed(done.id)?),
            WorkKind::Received { bytes, word } => {
                let credit = Credit::decode(word);
                (receives, came) = (receives + 1, came | (bytes > 0));
                into.arrive(bytes, credit)?;
                Ok(staging.window.credited(credit)?)
            }
        });
        let posted = if receives > 0 { pair.post_receives(receives) } else { Ok(()) };
        let (ended, room) = (into.has_ended(), staging.window.room());
        if receives > 0 {
            // A peer that sends has received our answer.
            self.open();
        }
        self.edges.readable |= came;
        if self.refused && room > 0 && self.phase == Phase::Open {
            (self.refused, self.edges.writable) = (false, true);
        }
        match (reaped, posted) {
            (Err(failed), _) => self.end(error_kind_of(&failed), format!("a work request failed: {failed}")),
            (Ok(_), Err(error)) => self.end(error.kind(), format!("cannot post a receive: {error}")),
            (Ok(_), Ok(())) if ended => self.close(),
            _ => self.return_credit(),
        }
    }

    /// Returns credit to the peer, if there is much of it and no message carries it.
    fn return_credit(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        if let Some(flow) = &mut self.flow
            && flow.into.has_much_credit()
            && flow.staging.window.has_place()
        {
            let message = flow.staging.window.post_credit(flow.into.take_credit());
            self.post(&[message]);
        }
    }

    fn post(&mut self, messages: &[Message]) {
        let Some(flow) = &self.flow else { return };
        if let Err(error) = flow.pair.post_messages(messages, flow.staging_memory(), flow.to) {
            self.end(error.kind(), format!("cannot post a message: {error}"));
        }
    }

    pub(crate) fn recv(&mut self, slices: &mut [IoSliceMut<'_>], watched: bool) -> io::Result<Option<usize>> {
        self.reap();
        let got = self.flow.as_mut().map_or(0, |flow| read_arrived(flow, slices));
        if got > 0 {
            self.edges.readable &= self.flow.as_ref().is_some_and(|flow| !flow.into.is_empty());
            if self.ended.is_none() {
                self.return_credit();
            }
            return Ok(Some(got));
        }
        self.advance(watched);
        self.end_of().map_or(Ok(None), Err)
    }

    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>], watched: bool) -> io::Result<Option<usize>> {
        self.reap();
        self.advance(watched);
        if let Some(error) = self.end_of() {
            return Err(error);
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut messages = Vec::new();
        let mut sent = 0;
        if let Some(flow) = self.flow.as_mut().filter(|_| self.phase == Phase::Open) {
            sent = stage(flow, slices, offered, &mut messages);
            self.post(&messages);
        }
        self.refused = sent < offered;
        if let Some(error) = self.end_of() {
            return Err(error);
        }
        Ok((sent > 0).then_some(sent))
    }

    /// Processes events, and returns the edges to report.
    pub(crate) fn look(&mut self) -> PollEdges {
        if self.cm_ready || self.phase != Phase::Open {
            self.advance(true);
        }
        self.reap();
        std::mem::take(&mut self.edges)
    }

    /// Arms the descriptor for the next arrival. Check once more after this.
    pub(crate) fn arm(&mut self) {
        if self.ended.is_some() || self.armed {
            return;
        }
        let Some(flow) = &self.flow else { return };
        match flow.pair.completions().arm() {
            Ok(()) => self.armed = true,
            Err(error) => self.fail(&error),
        }
    }

    /// Called when the descriptor was readable.
    pub(crate) fn woken(&mut self) {
        (self.cm_ready, self.armed) = (true, false);
        if let Some(flow) = &self.flow {
            flow.pair.completions().quiet();
        }
    }

    /// Called when the stream is dropped: posts the last message.
    pub(crate) fn begin_end(&mut self) {
        self.gone = true;
        self.reap();
        if self.ended.is_none()
            && self.phase == Phase::Open
            && let Some(flow) = &mut self.flow
            && let Some(message) = flow.staging.window.post_end()
        {
            self.end_posted = true;
            self.post(&[message]);
            // Usually the bytes are sent almost at once. The process may then end without losing them.
            let until = Instant::now() + VERBS_SETTLE;
            while !self.is_settled() && self.ended.is_none() && Instant::now() < until {
                self.reap();
                std::hint::spin_loop();
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.flow.as_ref().is_none_or(|flow| flow.staging.window.is_settled())
    }

    /// Whether there is a connection to close and its port is down.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.flow.is_some() && !self.id.port_is_active()
    }

    /// Whether no sent byte is in flight any more, or can be completed any more.
    pub(crate) fn is_over(&mut self) -> bool {
        self.reap();
        self.cm_ready = true;
        self.advance(true);
        self.ended.is_some() || !self.end_posted || self.is_settled()
    }
}

impl Drop for VerbsSession {
    fn drop(&mut self) {
        self.id.disconnect();
    }
}

fn error_kind_of(failed: &FailedWork) -> io::ErrorKind {
    match failed {
        FailedWork::Garbage(_) | FailedWork::Opcode(_) => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::ConnectionAborted,
    }
}

/// Copies out the bytes that have arrived.
fn read_arrived(flow: &mut Flow, slices: &mut [IoSliceMut<'_>]) -> usize {
    let mut got = 0;
    for slice in slices {
        let mut done = 0;
        while done < slice.len() {
            let (at, run) = flow.into.unread();
            let bytes = run.min(slice.len() - done);
            if bytes == 0 {
                return got;
            }
            flow.ring.copy_out(at, &mut slice[done..done + bytes]);
            flow.into.consume(bytes);
            (done, got) = (done + bytes, got + bytes);
        }
    }
    got
}

/// Copies as much as fits into the staging memory, as messages.
fn stage(flow: &mut Flow, slices: &[IoSlice<'_>], offered: usize, messages: &mut Vec<Message>) -> usize {
    let (mut sent, mut number, mut done) = (0, 0, 0);
    while sent < offered {
        let Some(mut space) = flow.staging.space() else { break };
        while space.room() > 0 && number < slices.len() {
            let taken = space.fill(&slices[number][done..]);
            (sent, done) = (sent + taken, done + taken);
            if done == slices[number].len() {
                (number, done) = (number + 1, 0);
            }
        }
        messages.push(space.post(flow.into.take_credit()));
    }
    sent
}
