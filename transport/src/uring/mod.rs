//! TCP over io_uring, for [`crate::tcp`]. Each thread has one ring; see `driver` for how bytes move.
//!
//! ```text
//! links   send, recv            wait                       events, bytes to read
//! driver  noted, copied   --->  one io_uring_enter   --->  completions, provided buffers
//! ```

mod attach;
mod buffers;
mod driver;
mod refusal;
mod ring;
mod traffic;

pub use refusal::Refusal;
pub(crate) use refusal::probe;
pub(crate) use ring::OpenDescriptor;

use crate::net::Event;
use driver::Driver;
use rustix::fd::OwnedFd;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Waits for the sockets of one thread.
pub(crate) struct UringPoll(Arc<Mutex<Driver>>);

impl UringPoll {
    pub(crate) fn new(wake: Arc<OwnedFd>) -> Result<UringPoll, Refusal> {
        Ok(UringPoll(Arc::new(Mutex::new(Driver::new(wake)?))))
    }

    /// Attaches a socket. `early` are bytes that were received from the socket before.
    pub(crate) fn register(
        &self,
        socket: Arc<dyn OpenDescriptor>,
        token: u64,
        early: Vec<u8>,
        is_listener: bool,
    ) -> Registration {
        let at = lock_driver(&self.0).register(socket, token, early, is_listener);
        Registration { driver: self.0.clone(), at: Some(at) }
    }

    pub(crate) fn submit(&self) -> io::Result<()> {
        lock_driver(&self.0).submit()
    }

    pub(crate) fn wait(&self, timeout: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        lock_driver(&self.0).wait(timeout, events)
    }
}

impl Drop for UringPoll {
    fn drop(&mut self) {
        lock_driver(&self.0).close();
    }
}

/// A socket attached to a ring. Dropping it ends the connection.
pub(crate) struct Registration {
    driver: Arc<Mutex<Driver>>,
    at: Option<u32>,
}

impl Registration {
    pub(crate) fn recv(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        lock_driver(&self.driver).recv(self.at(), slices)
    }

    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        lock_driver(&self.driver).send(self.at(), slices)
    }

    /// Requests the next event. Call it when an accept found nothing more.
    pub(crate) fn want_more(&self) {
        lock_driver(&self.driver).want_more(self.at());
    }

    /// Detaches from the ring. Returns the bytes that arrived and were not read.
    pub(crate) fn leave(mut self) -> io::Result<Vec<u8>> {
        let left = lock_driver(&self.driver).leave(self.at());
        if left.is_ok() {
            self.at = None;
        }
        left
    }

    fn at(&self) -> u32 {
        self.at.expect("a socket leaves its ring once")
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.at).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            lock_driver(&self.driver).deregister(at);
        }
    }
}

/// Only one thread uses the driver, so the lock is free. The exception is a drop on another thread, which waits
/// until the current wait ends.
fn lock_driver(driver: &Mutex<Driver>) -> MutexGuard<'_, Driver> {
    driver.lock().unwrap_or_else(PoisonError::into_inner)
}
