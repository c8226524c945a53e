//! Accepts connections over each transport that the server offers.

use super::rdma::RdmaListener;
use super::{MultiStream, Transport, Transports};
use crate::error::NetError;
use crate::net::{Listener, Net};
use crate::shm::{ShmError, ShmListener};
use crate::tcp::{TcpListener, resolve};
use std::net::SocketAddr;

/// Listens for connections over each transport that the server offers.
#[derive(Debug)]
pub struct MultiListener {
    /// Without TCP this listener only occupies the address and refuses every connection.
    tcp: TcpListener,
    tcp_is_open: bool,
    shm: Option<ShmListener>,
    verbs: Option<RdmaListener>,
    /// Which transport is checked first next time, so that each gets its turn.
    first: usize,
}

impl MultiListener {
    pub(super) fn new(transports: &Transports, addr: &str) -> Result<MultiListener, NetError> {
        let (tcp, transport, anyone) =
            (&transports.tcp, transports.transport, transports.token && !transports.certificates);
        let wants_shm = matches!(transport, Transport::Auto | Transport::Shm);
        // Shared memory listens before the port answers, so that a worker that waits for the port finds both.
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
                tracing::warn!(addr = tcp.addr(), %why, "cannot offer shared memory: workers on this host use tcp");
                None
            }
        };
        let verbs = match transports.offer_verbs(bound) {
            Ok(verbs) => verbs,
            Err(why) => return Err(NetError::Offer { addr: tcp.addr().to_owned(), why }),
        };
        let tcp_is_open = matches!(transport, Transport::Auto | Transport::Tcp);
        Ok(MultiListener { tcp, tcp_is_open, shm, verbs: verbs.map(RdmaListener::new), first: 0 })
    }

    pub(super) fn parts(&self) -> (&TcpListener, Option<&ShmListener>, Option<&RdmaListener>) {
        (&self.tcp, self.shm.as_ref(), self.verbs.as_ref())
    }

    fn accept_tcp(&mut self) -> Result<Option<MultiStream>, NetError> {
        while let Some(stream) = self.tcp.accept()? {
            if self.tcp_is_open {
                return Ok(Some(MultiStream::tcp(stream)));
            }
            tracing::debug!("closed a connection over tcp: this server does not accept tcp (--transport)");
        }
        Ok(None)
    }

    fn accept_shm(&mut self) -> Result<Option<MultiStream>, NetError> {
        match &mut self.shm {
            Some(shm) => Ok(shm.accept()?.map(MultiStream::accepted)),
            None => Ok(None),
        }
    }

    fn accept_verbs(&mut self) -> Result<Option<MultiStream>, NetError> {
        match &mut self.verbs {
            Some(verbs) => Ok(verbs.accept()?.map(MultiStream::verbs)),
            None => Ok(None),
        }
    }
}

/// Listens for shared memory at an address whose port is already chosen.
fn listen_early(addr: &str, anyone: bool) -> Option<(SocketAddr, ShmListener)> {
    let at = *resolve(addr).ok()?.first()?;
    (at.port() != 0).then(|| ShmListener::new(at, anyone).ok().map(|shm| (at, shm)))?
}

impl Listener for MultiListener {
    type Stream = MultiStream;

    fn accept(&mut self) -> Result<Option<MultiStream>, NetError> {
        for _ in 0..3 {
            self.first = (self.first + 1) % 3;
            let accepted = match self.first {
                0 => self.accept_tcp()?,
                1 => self.accept_shm()?,
                _ => self.accept_verbs()?,
            };
            if accepted.is_some() {
                return Ok(accepted);
            }
        }
        Ok(None)
    }

    fn addr(&self) -> &str {
        self.tcp.addr()
    }
}
