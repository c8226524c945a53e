//! A poll's sessions over RDMA. Every wait checks their memory. They are armed before a sleep, so that the
//! device then wakes the thread.

use crate::error::NetError;
use crate::net::Event;
use crate::tcp::{TcpPoll, WatchedDescriptor};
use crate::verbs::{StreamState, VerbsListener, VerbsStream, Watch};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::sync::Arc;

/// The sessions over RDMA that a poll waits for, by their number.
#[derive(Default)]
pub(super) struct RdmaWatches(Vec<Option<RdmaWatch>>);

struct RdmaWatch {
    watch: Watch,
    token: u64,
    watched: WatchedDescriptor,
}

impl RdmaWatch {
    /// Reports events. `Err`: the stream has been dropped.
    fn look(&self, events: &mut Vec<Event>) -> Result<(), SessionGone> {
        match self.watch.look() {
            StreamState::Gone => return Err(SessionGone),
            StreamState::Edges { readable: false, writable: false, closed: false } => {}
            StreamState::Edges { readable, writable, closed } => {
                events.push(Event { token: self.token, readable, writable, closed });
            }
        }
        Ok(())
    }
}

struct SessionGone;

impl RdmaWatches {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a session. `token_of` makes a token from its number.
    pub(super) fn add(
        &mut self,
        sockets: &TcpPoll,
        stream: &VerbsStream,
        token: u64,
        token_of: impl FnOnce(u32) -> u64,
    ) -> Result<(), NetError> {
        self.remove(sockets, stream)?;
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let watched = sockets.watch(stream.event_fd(), token_of(free as u32))?;
        let watch = RdmaWatch { watch: stream.watch(), token, watched };
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(watch);
        Ok(())
    }

    pub(super) fn remove(&mut self, sockets: &TcpPoll, stream: &VerbsStream) -> Result<(), NetError> {
        stream.unwatch();
        self.forget(sockets, |watch| watch.is_of(stream))
    }

    /// Stops watching the sessions that match.
    pub(super) fn forget(
        &mut self,
        sockets: &TcpPoll,
        which: impl Fn(&Watch) -> bool,
    ) -> Result<(), NetError> {
        for place in &mut self.0 {
            if let Some(session) = place.take_if(|session| which(&session.watch)) {
                sockets.unwatch(session.watched)?;
            }
        }
        while self.0.pop_if(|last| last.is_none()).is_some() {}
        Ok(())
    }

    /// Collects the events of the sessions.
    pub(super) fn look(&mut self, sockets: &TcpPoll, events: &mut Vec<Event>) -> Result<(), NetError> {
        let gone = self.0.iter().flatten().filter(|session| session.look(events).is_err()).count();
        if gone > 0 { self.forget(sockets, Watch::is_gone) } else { Ok(()) }
    }

    /// Arms the sessions, so that the device wakes the thread, and reports events that came before. `true`:
    /// there were no events.
    pub(super) fn arm(&mut self, sockets: &TcpPoll, events: &mut Vec<Event>) -> Result<bool, NetError> {
        let before = events.len();
        self.0.iter().flatten().for_each(|session| session.watch.arm());
        self.look(sockets, events)?;
        Ok(events.len() == before)
    }

    /// Handles an event of a session's descriptor.
    pub(super) fn handle_event(
        &mut self,
        sockets: &TcpPoll,
        number: u32,
        events: &mut Vec<Event>,
    ) -> Result<(), NetError> {
        let Some(Some(session)) = self.0.get(number as usize) else { return Ok(()) };
        session.watch.woken();
        session.watched.want_more();
        let gone = session.look(events).is_err();
        if gone { self.forget(sockets, Watch::is_gone) } else { Ok(()) }
    }
}

/// The listener for sessions over RDMA, and the poll that watches it.
#[derive(Debug)]
pub(super) struct RdmaListener {
    listener: VerbsListener,
    watched: RefCell<Option<WatchedDescriptor>>,
}

impl RdmaListener {
    pub(super) fn new(listener: VerbsListener) -> RdmaListener {
        RdmaListener { listener, watched: RefCell::default() }
    }

    pub(super) fn event_fd(&self) -> Arc<OwnedFd> {
        self.listener.event_fd()
    }

    /// Moves the listener to this poll, and away from any other.
    pub(super) fn keep(&self, watched: WatchedDescriptor) {
        if let Some(before) = self.watched.replace(Some(watched)) {
            // Nothing was received there, and a ring's own poll reports its errors.
            let _ = before.leave();
        }
    }

    pub(super) fn accept(&mut self) -> Result<Option<VerbsStream>, NetError> {
        let accepted = self.listener.accept()?;
        if accepted.is_none()
            && let Some(watched) = self.watched.get_mut()
        {
            watched.want_more();
        }
        Ok(accepted)
    }
}
