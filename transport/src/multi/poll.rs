//! Waits for sockets, shared-memory sessions and RDMA sessions at once.
//!
//! Every wait checks the memory of awake sessions. Before the thread sleeps, it arms them: from then on the
//! peer sends a wake-up over the control socket, which the sockets' poll watches. Then it checks their memory
//! once more. An armed session costs nothing until its wake-up comes.

use super::listener::MultiListener;
use super::rdma::RdmaWatches;
use super::stream::{MultiStream, StreamKind};
use crate::error::NetError;
use crate::limits::MEMORY_POLL_TIME;
use crate::net::{Event, Poll, Waker};
use crate::shm::{ShmSession, WokenSessions, lock_of_session};
use crate::tcp::{TcpPoll, TcpWaker, WatchedDescriptor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens from this value on belong to the poll itself; each session adds its number.
const POLL_TOKENS: u64 = 0xFFFF_FFFE << 32;
/// Numbers from this value on belong to sessions over RDMA.
const RDMA: u32 = 1 << 31;

/// Waits for the connections of one thread, over every transport.
pub struct MultiPoll {
    sockets: TcpPoll,
    /// Sessions by the number in their tokens.
    sessions: Vec<Option<MultiWatch>>,
    /// Sessions whose memory every wait checks.
    awake: Vec<u32>,
    rdma: RdmaWatches,
    /// Sessions that must be checked again, because their streams read a wake-up themselves or found no space.
    woken: Arc<WokenSessions>,
    /// The events of the sockets' poll.
    seen: Vec<Event>,
    /// The time of the last system call.
    polled_at: Instant,
}

/// A session that is watched.
struct MultiWatch {
    session: Arc<ShmSession>,
    token: u64,
    watched: WatchedDescriptor,
}

impl MultiPoll {
    pub(super) fn new(sockets: TcpPoll) -> MultiPoll {
        let (sessions, awake, rdma, seen) = (Vec::new(), Vec::new(), RdmaWatches::default(), Vec::new());
        MultiPoll { sockets, sessions, awake, rdma, woken: Arc::default(), seen, polled_at: Instant::now() }
    }

    fn add_session(&mut self, session: &Arc<ShmSession>, token: u64) -> Result<(), NetError> {
        self.forget(|watch| watch.session.is_gone() || Arc::ptr_eq(&watch.session, session))?;
        let free = self.sessions.iter().position(Option::is_none).unwrap_or(self.sessions.len());
        let watched = self.sockets.watch(session.clone(), POLL_TOKENS | free as u64)?;
        session.begin_watch(&self.woken, free as u32);
        let watch = MultiWatch { session: session.clone(), token, watched };
        if free == self.sessions.len() {
            self.sessions.push(None);
        }
        self.sessions[free] = Some(watch);
        self.awake.push(free as u32);
        Ok(())
    }

    /// Stops watching the sessions that match.
    fn forget(&mut self, which: impl Fn(&MultiWatch) -> bool) -> Result<(), NetError> {
        for (number, place) in self.sessions.iter_mut().enumerate() {
            if let Some(watch) = place.take_if(|watch| which(watch)) {
                self.awake.retain(|&awake| awake as usize != number);
                watch.session.end_watch();
                self.sockets.unwatch(watch.watched)?;
            }
        }
        Ok(())
    }

    /// Marks the sessions that their own streams have woken as awake.
    fn take_woken(&mut self) {
        for number in std::mem::take(&mut *lock_of_session(&self.woken)) {
            if !self.awake.contains(&number) {
                self.awake.push(number);
            }
        }
    }

    /// Collects the events of the awake sessions, without a system call.
    fn look(&mut self, events: &mut Vec<Event>) -> Result<(), NetError> {
        let mut gone = false;
        for watch in self.awake.iter().filter_map(|&number| self.sessions[number as usize].as_ref()) {
            match watch.session.is_gone() {
                true => gone = true,
                false => events.extend(watch.session.look(watch.token)),
            }
        }
        if gone { self.forget(|watch| watch.session.is_gone()) } else { Ok(()) }
    }

    /// Arms the sessions, so that their peers send wake-ups, and reports events that came before. `true`: there
    /// were no events, and no session is awake.
    fn arm(&mut self, events: &mut Vec<Event>) -> bool {
        let MultiPoll { sessions, awake, .. } = self;
        for watch in awake.iter().filter_map(|&number| sessions[number as usize].as_ref()) {
            watch.session.arm();
        }
        ShmSession::fence();
        awake.retain(|&number| {
            let Some(watch) = &mut sessions[number as usize] else { return false };
            let event = watch.session.look(watch.token);
            let stays_awake = event.is_some();
            if stays_awake {
                watch.session.wake();
                watch.session.disarm();
            }
            events.extend(event);
            stays_awake
        });
        events.is_empty()
    }

    /// Collects events from the system, and waits at most this long.
    fn poll_system(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        let mut seen = std::mem::take(&mut self.seen);
        let result = self.sockets.wait(timeout, &mut seen);
        self.polled_at = Instant::now();
        for event in seen.drain(..) {
            match (event.token >> 32 == POLL_TOKENS >> 32, event.token as u32) {
                (true, number) if number & RDMA != 0 => {
                    self.rdma.handle_event(&self.sockets, number & !RDMA, events)?
                }
                (true, number) => self.handle_event(number, events)?,
                (false, _) => events.push(event),
            }
        }
        self.seen = seen;
        result
    }

    /// Handles an event of a session's control socket.
    fn handle_event(&mut self, number: u32, events: &mut Vec<Event>) -> Result<(), NetError> {
        let Some(Some(watch)) = self.sessions.get_mut(number as usize) else { return Ok(()) };
        if watch.session.is_gone() {
            return self.forget(|watch| watch.session.is_gone());
        }
        watch.session.drain();
        watch.watched.want_more();
        watch.session.disarm();
        if !watch.session.wake() {
            self.awake.push(number);
        }
        events.extend(watch.session.look(watch.token));
        Ok(())
    }
}

impl Poll for MultiPoll {
    type Stream = MultiStream;
    type Listener = MultiListener;
    type Waker = MultiWaker;

    fn add(&mut self, stream: &MultiStream, token: u64) -> Result<(), NetError> {
        assert_ne!(token >> 32, POLL_TOKENS >> 32, "these tokens are the poll's own");
        match stream.kind() {
            StreamKind::Tcp(stream) => self.sockets.add(stream, token),
            StreamKind::Shm(stream, _) => self.add_session(stream.session(), token),
            StreamKind::Verbs(stream) => {
                self.rdma.add(&self.sockets, stream, token, |number| POLL_TOKENS | u64::from(RDMA | number))
            }
        }
    }

    fn remove(&mut self, stream: &MultiStream) -> Result<(), NetError> {
        match stream.kind() {
            StreamKind::Tcp(stream) => self.sockets.remove(stream),
            StreamKind::Shm(stream, _) => {
                let session = stream.session().clone();
                self.forget(|watch| Arc::ptr_eq(&watch.session, &session))
            }
            StreamKind::Verbs(stream) => self.rdma.remove(&self.sockets, stream),
        }
    }

    fn add_listener(&mut self, listener: &MultiListener, token: u64) -> Result<(), NetError> {
        let (tcp, shm, verbs) = listener.parts();
        self.sockets.add_listener(tcp, token)?;
        if let Some(shm) = shm {
            shm.keep(self.sockets.watch(shm.holds(), token)?);
        }
        if let Some(verbs) = verbs {
            verbs.keep(self.sockets.watch(verbs.event_fd(), token)?);
        }
        Ok(())
    }

    fn waker(&self) -> MultiWaker {
        MultiWaker(self.sockets.waker())
    }

    fn submit(&mut self) -> Result<(), NetError> {
        self.sockets.submit()
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        events.clear();
        if self.sessions.is_empty() && self.rdma.is_empty() {
            return self.sockets.wait(timeout, events);
        }
        self.take_woken();
        self.look(events)?;
        self.rdma.look(&self.sockets, events)?;
        if !events.is_empty() || timeout.is_zero() {
            if self.polled_at.elapsed() < MEMORY_POLL_TIME {
                return Ok(());
            }
            return self.poll_system(Duration::ZERO, events);
        }
        let quiet = self.arm(events) & self.rdma.arm(&self.sockets, events)?;
        self.poll_system(if quiet { timeout } else { Duration::ZERO }, events)
    }
}

impl Drop for MultiPoll {
    fn drop(&mut self) {
        // Sessions that stay open must not end with the ring that watched them.
        for watch in self.sessions.drain(..).flatten() {
            watch.session.end_watch();
            if let Err(error) = self.sockets.unwatch(watch.watched) {
                tracing::debug!(%error, "cannot detach a session from its poll");
            }
        }
        if let Err(error) = self.rdma.forget(&self.sockets, |_| true) {
            tracing::debug!(%error, "cannot detach a session from its poll");
        }
    }
}

/// Wakes the poll that it came from.
#[derive(Debug, Clone)]
pub struct MultiWaker(TcpWaker);

impl Waker for MultiWaker {
    fn wake(&self) {
        self.0.wake();
    }
}
