//! Waits for many sockets, over io_uring or epoll. An eventfd wakes it.

use super::connect::TcpListener;
use super::epoll::{Epoll, WAKE};
use super::stream::TcpStream;
use crate::error::NetError;
use crate::net::{Event, Poll, Waker};
use crate::uring::{OpenDescriptor, Registration, UringPoll};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Waits for the sockets of one thread.
pub struct TcpPoll {
    kind: WatchKind,
    wake: Arc<OwnedFd>,
}

enum WatchKind {
    Epoll(Epoll),
    Uring(UringPoll),
}

impl TcpPoll {
    /// With a ring if `uring`. If the system refuses a ring, uses epoll, and a line of the log says so.
    pub(super) fn new(uring: bool) -> Result<TcpPoll, NetError> {
        let failed =
            |error: rustix::io::Errno| NetError::System { what: "make a poll", source: error.into() };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let wake = Arc::new(wake);
        let ring = match uring.then(|| UringPoll::new(wake.clone())) {
            Some(Err(refusal)) => {
                tracing::warn!(%refusal, "cannot make an io_uring ring for a thread: it uses plain sockets and epoll");
                None
            }
            ring => ring.and_then(Result::ok),
        };
        let kind = match ring {
            Some(ring) => WatchKind::Uring(ring),
            None => WatchKind::Epoll(Epoll::new(&wake)?),
        };
        Ok(TcpPoll { kind, wake })
    }
}

/// A watched descriptor that is not a TCP socket. The watch ends when this is dropped or passed to
/// [`TcpPoll::unwatch`].
#[derive(Debug)]
pub(crate) enum WatchedDescriptor {
    /// Watched until its descriptor is closed.
    Epoll(Arc<dyn OpenDescriptor>),
    Ring(Registration),
}

impl WatchedDescriptor {
    /// Requests the next event. Call it when everything has been read.
    pub(crate) fn want_more(&self) {
        if let WatchedDescriptor::Ring(registration) = self {
            registration.want_more();
        }
    }

    /// Ends the watch, whichever poll it belongs to. The descriptor stays open.
    pub(crate) fn leave(self) -> io::Result<()> {
        match self {
            WatchedDescriptor::Epoll(_) => Ok(()),
            WatchedDescriptor::Ring(registration) => registration.leave().map(drop),
        }
    }
}

impl TcpPoll {
    /// Reports `readable` under this token when the descriptor has something to read. After a report,
    /// [`WatchedDescriptor::want_more`] requests the next one.
    pub(crate) fn watch(
        &self,
        descriptor: Arc<dyn OpenDescriptor>,
        token: u64,
    ) -> Result<WatchedDescriptor, NetError> {
        match &self.kind {
            WatchKind::Epoll(epoll) => {
                epoll.add_listener(&*descriptor, token)?;
                Ok(WatchedDescriptor::Epoll(descriptor))
            }
            WatchKind::Uring(ring) => {
                Ok(WatchedDescriptor::Ring(ring.register(descriptor, token, Vec::new(), true)))
            }
        }
    }

    /// Stops watching a descriptor that stays open.
    pub(crate) fn unwatch(&self, watched: WatchedDescriptor) -> Result<(), NetError> {
        if let (WatchKind::Epoll(epoll), WatchedDescriptor::Epoll(descriptor)) = (&self.kind, &watched) {
            epoll.remove(&**descriptor)?;
        }
        watched.leave().map_err(poll_failed("stop watching a descriptor"))
    }
}

fn poll_failed(what: &'static str) -> impl Fn(io::Error) -> NetError {
    move |source| NetError::System { what, source }
}

impl Poll for TcpPoll {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Waker = TcpWaker;

    fn add(&mut self, stream: &TcpStream, token: u64) -> Result<(), NetError> {
        assert_ne!(token, WAKE, "this token is the poll's own");
        // If the stream was attached to another poll's ring, these bytes come from there.
        let early = stream.leave().map_err(poll_failed("watch a socket"))?;
        match &self.kind {
            WatchKind::Epoll(epoll) => {
                stream.keep_early(early);
                epoll.add(&*stream.socket, token)
            }
            WatchKind::Uring(ring) => {
                stream.set_registration(ring.register(stream.socket.clone(), token, early, false));
                Ok(())
            }
        }
    }

    fn remove(&mut self, stream: &TcpStream) -> Result<(), NetError> {
        match &self.kind {
            WatchKind::Epoll(epoll) => epoll.remove(&*stream.socket),
            WatchKind::Uring(_) => {
                stream.keep_early(stream.leave().map_err(poll_failed("stop watching a socket"))?);
                Ok(())
            }
        }
    }

    fn add_listener(&mut self, listener: &TcpListener, token: u64) -> Result<(), NetError> {
        assert_ne!(token, WAKE, "this token is the poll's own");
        match &self.kind {
            WatchKind::Epoll(epoll) => epoll.add_listener(&*listener.socket, token),
            WatchKind::Uring(ring) => {
                listener.set_registration(ring.register(listener.socket.clone(), token, Vec::new(), true));
                Ok(())
            }
        }
    }

    fn waker(&self) -> TcpWaker {
        TcpWaker(self.wake.clone())
    }

    fn submit(&mut self) -> Result<(), NetError> {
        match &self.kind {
            WatchKind::Epoll(_) => Ok(()),
            WatchKind::Uring(ring) => ring.submit().map_err(poll_failed("send through io_uring")),
        }
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        events.clear();
        match &self.kind {
            WatchKind::Epoll(epoll) => epoll.wait(timeout, events),
            WatchKind::Uring(ring) => ring.wait(timeout, events).map_err(poll_failed("wait for sockets")),
        }
    }
}

/// Wakes the poll that it came from.
#[derive(Debug, Clone)]
pub struct TcpWaker(Arc<OwnedFd>);

impl Waker for TcpWaker {
    fn wake(&self) {
        // This fails only if the counter is at its maximum, and then a wake-up is pending anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
