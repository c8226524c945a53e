//! How TCP connections come about (the cold part).

use super::stream::TcpStream;
use crate::error::NetError;
use crate::net::Listener;
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects to the first of the name's addresses that answers.
pub(super) fn connect(addr: &str, timeout: Duration, checksums: bool) -> Result<TcpStream, NetError> {
    let give_up = Instant::now() + timeout;
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for candidate in resolve(addr)? {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match net::TcpStream::connect_timeout(&candidate, left)
            .and_then(|socket| prepare(socket, addr.into(), checksums))
        {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(NetError::Connect { addr: addr.to_owned(), source: last })
}

fn resolve(addr: &str) -> Result<Vec<SocketAddr>, NetError> {
    let resolved = addr.to_socket_addrs().map(Iterator::collect);
    resolved.map_err(|source| NetError::Address { addr: addr.to_owned(), source })
}

fn prepare(socket: net::TcpStream, peer: Arc<str>, checksums: bool) -> io::Result<TcpStream> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    // A peer whose machine has gone is noticed in the end, also by a server that only listens.
    rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
    let remote = checksums || !socket.peer_addr()?.ip().is_loopback();
    Ok(TcpStream::new(socket, peer, remote))
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {
    pub(super) socket: net::TcpListener,
    addr: String,
    checksums: bool,
}

impl TcpListener {
    pub(super) fn new(addr: &str, checksums: bool) -> Result<TcpListener, NetError> {
        let failed = |source| NetError::Listen { addr: addr.to_owned(), source };
        let candidates = resolve(addr)?;
        let socket = net::TcpListener::bind(&candidates[..]).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?.to_string();
        Ok(TcpListener { socket, addr, checksums })
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept(&mut self) -> Result<Option<TcpStream>, NetError> {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => match prepare(socket, peer.to_string().into(), self.checksums) {
                    Ok(stream) => return Ok(Some(stream)),
                    // It has gone again: the next one.
                    Err(error) => tracing::debug!(%peer, %error, "a connection ended before it began"),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
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
