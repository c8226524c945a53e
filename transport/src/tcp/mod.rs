//! TCP: nonblocking sockets and epoll.

mod connect;
mod poll;
mod stream;

pub use connect::TcpListener;
pub use poll::{TcpPoll, TcpWaker};
pub use stream::TcpStream;

use crate::error::NetError;
use crate::net::Net;
use std::time::{Duration, Instant};

/// The network of this machine.
#[derive(Debug, Clone)]
pub struct Tcp {
    since: Instant,
    checksums: bool,
}

impl Tcp {
    /// Payloads to other addresses than loopback carry checksums.
    pub fn new() -> Tcp {
        Tcp { since: Instant::now(), checksums: false }
    }

    /// All payloads carry checksums.
    pub fn with_checksums() -> Tcp {
        Tcp { checksums: true, ..Tcp::new() }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Tcp::new()
    }
}

impl Net for Tcp {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Poll = TcpPoll;
    type Waker = TcpWaker;

    fn connect(&self, addr: &str, timeout: Duration) -> Result<TcpStream, NetError> {
        connect::connect(addr, timeout, self.checksums)
    }

    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<TcpStream, NetError> {
        connect::begin(addr, attempt, self.checksums)
    }

    fn listen(&self, addr: &str) -> Result<TcpListener, NetError> {
        TcpListener::new(addr, self.checksums)
    }

    fn poll(&self) -> Result<TcpPoll, NetError> {
        TcpPoll::new()
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}
