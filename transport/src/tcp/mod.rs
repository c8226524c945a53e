//! TCP over nonblocking sockets, with epoll or io_uring. The choice is made when a poll is made. Links, streams and
//! listeners have the same type either way. A stream that no poll watches is a plain socket.

mod connect;
mod epoll;
mod io_now;
mod poll;
mod resolver;
mod stream;

pub use crate::uring::Refusal;
pub use connect::TcpListener;
pub(crate) use connect::resolve;
pub(crate) use io_now::{recv_now, send_now};
pub(crate) use poll::WatchedDescriptor;
pub use poll::{TcpPoll, TcpWaker};
pub(crate) use resolver::Resolver;
pub use stream::TcpStream;

use crate::error::NetError;
use crate::net::Net;
use crate::tls::{TlsClient, TlsServer};
use crate::uring;
use std::time::{Duration, Instant};

/// The choice of [`Io::Auto`]: the faster one where few links carry much data, as in training (docs/benchmarks.md).
const AUTO: Io = Io::Epoll;

/// What moves the bytes.
///
/// ```
/// use gannet_transport::tcp::{Io, Tcp};
///
/// assert_eq!(Tcp::new().with_io(Io::Epoll).io(), "epoll");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Io {
    /// The driver that was measured to be faster for training: epoll.
    #[default]
    Auto,
    /// io_uring. If the system refuses it, epoll is used, and a line of the log gives the reason.
    Uring,
    /// Plain nonblocking sockets and epoll.
    Epoll,
}

/// The network of this machine.
///
/// ```
/// use gannet_transport::multi::Transports;
/// use gannet_transport::tcp::Tcp;
///
/// // All payloads carry checksums, on loopback too.
/// let net = Transports::over(Tcp::new().with_checksums());
/// assert_eq!(net.io(), "epoll");
/// ```
#[derive(Debug, Clone)]
pub struct Tcp {
    since: Instant,
    checksums: bool,
    uring: bool,
    tls_server: Option<TlsServer>,
    tls_client: Option<TlsClient>,
    names: Resolver,
}

impl Tcp {
    /// Plain sockets and epoll. Payloads to addresses other than loopback carry checksums.
    pub fn new() -> Tcp {
        let (tls_server, tls_client) = (None, None);
        let (since, names) = (Instant::now(), Resolver::default());
        Tcp { since, checksums: false, uring: false, tls_server, tls_client, names }
    }

    /// Makes all payloads carry checksums.
    pub fn with_checksums(self) -> Tcp {
        Tcp { checksums: true, ..self }
    }

    /// Makes listeners speak TLS only.
    pub fn with_tls_server(self, tls: TlsServer) -> Tcp {
        Tcp { tls_server: Some(tls), ..self }
    }

    /// Makes connections use TLS.
    pub fn with_tls_client(self, tls: TlsClient) -> Tcp {
        Tcp { tls_client: Some(tls), ..self }
    }

    /// Sets what moves the bytes. Checks once whether the system allows it; a refusal is one line of the log.
    pub fn with_io(self, io: Io) -> Tcp {
        let wants_uring = if io == Io::Auto { AUTO == Io::Uring } else { io == Io::Uring };
        let refused = wants_uring.then(uring::probe).and_then(Result::err);
        if let Some(refusal) = &refused {
            tracing::warn!(%refusal, "io_uring is refused: plain sockets and epoll are used instead");
        }
        let uring = wants_uring && refused.is_none();
        tracing::info!(io = if uring { "io_uring" } else { "epoll" }, "chose the driver of tcp");
        Tcp { uring, ..self }
    }

    /// The addresses of names.
    pub(crate) fn names(&self) -> &Resolver {
        &self.names
    }

    /// What moves the bytes: "io_uring" or "epoll".
    pub fn io(&self) -> &'static str {
        if self.uring { "io_uring" } else { "epoll" }
    }
}

/// Checks that the system offers io_uring: makes a ring and receives a byte through it.
///
/// ```
/// match gannet_transport::tcp::try_uring() {
///     Ok(()) => println!("io_uring works"),
///     Err(refusal) => println!("no io_uring: {refusal}"),
/// }
/// ```
///
/// # Errors
/// Why io_uring cannot be used.
pub fn try_uring() -> Result<(), Refusal> {
    uring::probe()
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
        connect::connect_tcp(addr, timeout, &self.names, self.checksums, self.tls_client.as_ref())
    }

    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<TcpStream, NetError> {
        connect::begin_tcp(addr, attempt, &self.names, self.checksums, self.tls_client.as_ref())
    }

    fn listen(&self, addr: &str) -> Result<TcpListener, NetError> {
        TcpListener::new(addr, self.checksums, self.tls_server.clone())
    }

    fn poll(&self) -> Result<TcpPoll, NetError> {
        TcpPoll::new(self.uring)
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}
