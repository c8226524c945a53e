//! epoll, edge-triggered, with an eventfd that wakes it.

use crate::error::NetError;
use crate::limits::EVENTS_MAX;
use crate::net::Event;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The token of the eventfd with which other threads wake the poll.
pub(super) const WAKE: u64 = u64::MAX;

/// Waits for the sockets of one thread.
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new(wake: &OwnedFd) -> Result<Epoll, NetError> {
        let failed = |error: Errno| NetError::System { what: "make a poll", source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, wake, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)
            .map_err(failed)?;
        Ok(Epoll(epoll))
    }

    pub(super) fn add<Fd: AsFd>(&self, stream: Fd, token: u64) -> Result<(), NetError> {
        self.watch(stream, token, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)
    }

    pub(super) fn add_listener<Fd: AsFd>(&self, listener: Fd, token: u64) -> Result<(), NetError> {
        self.watch(listener, token, EventFlags::IN)
    }

    fn watch<Fd: AsFd>(&self, fd: Fd, token: u64, flags: EventFlags) -> Result<(), NetError> {
        let failed = |error: Errno| NetError::System { what: "watch a socket", source: error.into() };
        epoll::add(&self.0, fd, EventData::new_u64(token), flags | EventFlags::ET).map_err(failed)
    }

    pub(super) fn remove<Fd: AsFd>(&self, stream: Fd) -> Result<(), NetError> {
        let failed = |error: Errno| NetError::System { what: "stop watching a socket", source: error.into() };
        epoll::delete(&self.0, stream).map_err(failed)
    }

    pub(super) fn wait(&self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let ready = match epoll::wait(&self.0, &mut space, Some(&timeout)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(NetError::System { what: "wait for sockets", source: error.into() }),
        };
        for ready in ready {
            let (token, flags) = (ready.data.u64(), ready.flags);
            if token == WAKE {
                // Edge-triggered: the eventfd need not be drained, and its 64-bit count cannot overflow in practice.
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
