//! epoll, edge-triggered, with an eventfd that wakes it.

use super::connect::TcpListener;
use super::stream::TcpStream;
use crate::error::NetError;
use crate::limits::EVENTS_MAX;
use crate::net::{Event, Poll, Waker};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

const WAKE: u64 = u64::MAX;

/// Waits for sockets of one thread.
pub struct TcpPoll {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

impl TcpPoll {
    pub(super) fn new() -> Result<TcpPoll, NetError> {
        let failed = |error: Errno| NetError::System { what: "make a poll", source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)
            .map_err(failed)?;
        Ok(TcpPoll { epoll, wake: Arc::new(wake) })
    }

    fn watch<Fd: AsFd>(&self, fd: Fd, token: u64, flags: EventFlags) -> Result<(), NetError> {
        assert_ne!(token, WAKE, "this token is the poll's own");
        let failed = |error: Errno| NetError::System { what: "watch a socket", source: error.into() };
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags | EventFlags::ET).map_err(failed)
    }
}

impl Poll for TcpPoll {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Waker = TcpWaker;

    fn add(&mut self, stream: &TcpStream, token: u64) -> Result<(), NetError> {
        self.watch(&stream.socket, token, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)
    }

    fn remove(&mut self, stream: &TcpStream) -> Result<(), NetError> {
        let failed = |error: Errno| NetError::System { what: "stop watching a socket", source: error.into() };
        epoll::delete(&self.epoll, &stream.socket).map_err(failed)
    }

    fn add_listener(&mut self, listener: &TcpListener, token: u64) -> Result<(), NetError> {
        self.watch(&listener.socket, token, EventFlags::IN)
    }

    fn waker(&self) -> TcpWaker {
        TcpWaker(self.wake.clone())
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        events.clear();
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let ready = match epoll::wait(&self.epoll, &mut space, Some(&timeout)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(NetError::System { what: "wait for sockets", source: error.into() }),
        };
        for ready in ready {
            let (token, flags) = (ready.data.u64(), ready.flags);
            if token == WAKE {
                // Edge-triggered: it need not be drained, and its count cannot overflow in this universe.
                continue;
            }
            events.push(Event {
                token,
                readable: flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
                closed: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            });
        }
        Ok(())
    }
}

/// Wakes the poll that it came from.
#[derive(Debug, Clone)]
pub struct TcpWaker(Arc<OwnedFd>);

impl Waker for TcpWaker {
    fn wake(&self) {
        // Fails only when the count is full, and then a wake is pending anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
