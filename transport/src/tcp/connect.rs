//! How TCP connections are made. This is cold code.

use super::resolver::Resolver;
use super::stream::TcpStream;
use crate::error::NetError;
use crate::limits::{BACKLOG, KEEPALIVE_SECONDS, UNACKNOWLEDGED_MS_MAX};
use crate::net::Listener;
use crate::stream::Stream;
use crate::tls::{TlsClient, TlsError, TlsServer, TlsSession};
use crate::uring::Registration;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::cell::RefCell;
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects to the first of the name's addresses that answers.
pub(super) fn connect_tcp(
    addr: &str,
    timeout: Duration,
    names: &Resolver,
    checksums: bool,
    tls: Option<&TlsClient>,
) -> Result<TcpStream, NetError> {
    let give_up = Instant::now() + timeout;
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for candidate in names.wait(addr, give_up)? {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let remote = checksums || is_open(&candidate, tls.is_some());
        let connected = net::TcpStream::connect_timeout(&candidate, left)
            .and_then(|socket| prepare_socket(socket, addr.into(), remote));
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let Some(tls) = tls else { return Ok(stream) };
        stream.begin_tls(TlsSession::client(tls, addr).map_err(|source| not_in_tls(addr, source))?);
        match shake_hands(&mut stream, give_up) {
            Ok(()) => return Ok(stream),
            Err(error) => match TlsError::of(&error) {
                Some(source) => return Err(not_in_tls(addr, source)),
                None => last = error,
            },
        }
    }
    Err(NetError::Connect { addr: addr.to_owned(), source: last })
}

/// Waits until the handshake is over.
fn shake_hands(stream: &mut TcpStream, give_up: Instant) -> io::Result<()> {
    while !stream.shake_hands().map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the connection ended in the TLS handshake")
        }
        _ => error,
    })? {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in the TLS handshake"));
        }
        let writable = if stream.holds() { PollFlags::OUT } else { PollFlags::empty() };
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::new(&*stream.socket, PollFlags::IN | writable)], Some(&left))
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn not_in_tls(addr: &str, source: TlsError) -> NetError {
    NetError::Tls { addr: addr.to_owned(), source }
}

/// Whether bytes to this address leave this machine without checksums of TLS.
fn is_open(addr: &SocketAddr, tls: bool) -> bool {
    !tls && !addr.ip().is_loopback()
}

/// Begins to connect to one of the name's addresses. The socket reports the outcome later.
pub(super) fn begin_tcp(
    addr: &str,
    attempt: usize,
    names: &Resolver,
    checksums: bool,
    tls: Option<&TlsClient>,
) -> Result<TcpStream, NetError> {
    let candidates = names.known(addr)?;
    let failed = |source| NetError::Connect { addr: addr.to_owned(), source };
    let Some(candidate) = candidates.get(attempt % candidates.len().max(1)) else {
        return Err(failed(io::ErrorKind::AddrNotAvailable.into()));
    };
    let family = if candidate.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .and_then(|socket| match rustix::net::connect(&socket, candidate) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(net::TcpStream::from(socket)),
            Err(error) => Err(error),
        })
        .map_err(|error| failed(error.into()))?;
    let remote = checksums || is_open(candidate, tls.is_some());
    let mut stream = prepare_socket(socket, addr.into(), remote).map_err(failed)?;
    if let Some(tls) = tls {
        stream.begin_tls(TlsSession::client(tls, addr).map_err(|source| not_in_tls(addr, source))?);
    }
    Ok(stream)
}

/// The addresses of a name to listen on. It may wait for a name server.
pub(crate) fn resolve(addr: &str) -> Result<Vec<SocketAddr>, NetError> {
    let resolved = addr.to_socket_addrs().map(Iterator::collect);
    resolved.map_err(|source| NetError::Address { addr: addr.to_owned(), source })
}

fn prepare_socket(socket: net::TcpStream, peer: Arc<str>, remote: bool) -> io::Result<TcpStream> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    watch_over(&socket)?;
    Ok(TcpStream::new(socket, peer, remote))
}

/// Sets keepalive, so that even a server that only receives detects that a peer's machine is lost.
fn watch_over(socket: &net::TcpStream) -> io::Result<()> {
    let (idle, every, count) = KEEPALIVE_SECONDS;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle.into()))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(every.into()))?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS_MAX)?)
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {
    pub(super) socket: Arc<net::TcpListener>,
    addr: String,
    checksums: bool,
    tls: Option<TlsServer>,
    registration: RefCell<Option<Registration>>,
}

impl TcpListener {
    pub(super) fn new(addr: &str, checksums: bool, tls: Option<TlsServer>) -> Result<TcpListener, NetError> {
        let failed = |source| NetError::Listen { addr: addr.to_owned(), source };
        let candidates = resolve(addr)?;
        let socket = net::TcpListener::bind(&candidates[..]).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG as i32).map_err(|error| failed(error.into()))?;
        let addr = socket.local_addr().map_err(failed)?.to_string();
        Ok(TcpListener { socket: Arc::new(socket), addr, checksums, tls, registration: RefCell::default() })
    }

    /// Moves the listener to this ring, and away from any other.
    pub(super) fn set_registration(&self, registration: Registration) {
        if let Some(before) = self.registration.replace(Some(registration)) {
            // Nothing was received there, and the poll of an io_uring ring reports its own errors.
            let _ = before.leave();
        }
    }
}

impl TcpListener {
    /// Begins TLS, if this listener uses it.
    fn protect(&self, mut stream: TcpStream) -> io::Result<TcpStream> {
        if let Some(tls) = &self.tls {
            stream.begin_tls(TlsSession::server(tls).map_err(io::Error::other)?);
        }
        Ok(stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept(&mut self) -> Result<Option<TcpStream>, NetError> {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    let remote = self.checksums || is_open(&peer, self.tls.is_some());
                    match prepare_socket(socket, peer.to_string().into(), remote)
                        .and_then(|stream| self.protect(stream))
                    {
                        Ok(stream) => return Ok(Some(stream)),
                        // This connection has ended again; take the next one.
                        Err(error) => {
                            tracing::debug!(%peer, %error, "a connection ended during its handshake")
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(registration) = self.registration.get_mut() {
                        registration.want_more();
                    }
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(NetError::System { what: "accept a connection", source }),
            }
        }
    }

    fn addr(&self) -> &str {
        &self.addr
    }
}
