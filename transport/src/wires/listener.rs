//! Where connections come in, over each transport that the server offers.

use super::{Transport, WireStream};
use crate::error::NetError;
use crate::net::{Listener, Net};
use crate::shm::{ShmError, ShmListener};
use crate::tcp::{Tcp, TcpListener, resolve};
use std::net::SocketAddr;

/// Listens for connections over each transport that the server offers.
#[derive(Debug)]
pub struct WireListener {
    /// Of a server of shared memory only it holds the address, and lets nobody in.
    tcp: TcpListener,
    tcp_is_open: bool,
    shm: Option<ShmListener>,
    /// Who is asked first next time, so that none can keep the other waiting.
    shm_first: bool,
}

impl WireListener {
    pub(super) fn new(
        tcp: &Tcp,
        addr: &str,
        transport: Transport,
        anyone: bool,
    ) -> Result<WireListener, NetError> {
        let wants_shm = transport != Transport::Tcp;
        // Before the port answers, so that a worker that waits for it finds both.
        let early = if wants_shm { listen_early(addr, anyone) } else { None };
        let tcp = tcp.listen(addr)?;
        let bound: Option<SocketAddr> = tcp.addr().parse().ok();
        let shm = match (early, bound) {
            (Some((at, shm)), Some(bound)) if at == bound => Some(Ok(shm)),
            (early, bound) if wants_shm => {
                drop(early);
                let bound = bound.ok_or(ShmError::Absent);
                Some(bound.and_then(|bound| ShmListener::new(bound, anyone)))
            }
            _ => None,
        };
        let shm = match shm {
            None => None,
            Some(Ok(shm)) => {
                let users = if anyone { "whoever has the token" } else { "this user" };
                tracing::info!(addr = tcp.addr(), users, "shared memory is offered to workers on this host");
                Some(shm)
            }
            Some(Err(source)) if transport == Transport::Shm => {
                return Err(NetError::Listen { addr: tcp.addr().to_owned(), source: source.io() });
            }
            Some(Err(why)) => {
                tracing::warn!(addr = tcp.addr(), %why, "no shared memory is offered: workers on this host use tcp");
                None
            }
        };
        Ok(WireListener { tcp, tcp_is_open: transport != Transport::Shm, shm, shm_first: false })
    }

    pub(super) fn parts(&self) -> (&TcpListener, Option<&ShmListener>) {
        (&self.tcp, self.shm.as_ref())
    }

    fn accept_tcp(&mut self) -> Result<Option<WireStream>, NetError> {
        while let Some(stream) = self.tcp.accept()? {
            if self.tcp_is_open {
                return Ok(Some(WireStream::tcp(stream)));
            }
            tracing::debug!("a connection over tcp was ended: this server takes shared memory only");
        }
        Ok(None)
    }

    fn accept_shm(&mut self) -> Result<Option<WireStream>, NetError> {
        match &mut self.shm {
            Some(shm) => Ok(shm.accept()?.map(WireStream::accepted)),
            None => Ok(None),
        }
    }
}

/// Listens for shared memory at an address whose port is chosen already.
fn listen_early(addr: &str, anyone: bool) -> Option<(SocketAddr, ShmListener)> {
    let at = *resolve(addr).ok()?.first()?;
    (at.port() != 0).then(|| ShmListener::new(at, anyone).ok().map(|shm| (at, shm)))?
}

impl Listener for WireListener {
    type Stream = WireStream;

    fn accept(&mut self) -> Result<Option<WireStream>, NetError> {
        self.shm_first = !self.shm_first;
        let first = if self.shm_first { self.accept_shm()? } else { self.accept_tcp()? };
        match first {
            Some(stream) => Ok(Some(stream)),
            None if self.shm_first => self.accept_tcp(),
            None => self.accept_shm(),
        }
    }

    fn addr(&self) -> &str {
        self.tcp.addr()
    }
}
