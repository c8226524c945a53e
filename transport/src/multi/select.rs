//! Chooses RDMA: whether a server offers it, and whether a worker takes it. This is cold code.

use super::{MultiStream, Transport, Transports};
use crate::error::NetError;
use crate::remote::Registrar;
use crate::verbs::{BUILT, Verbs, VerbsListener};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

const UNENCRYPTED: &str =
    "RDMA is not encrypted, and TLS is configured (--transport verbs uses RDMA all the same)";

impl Transports {
    /// The device, opened at the first use, or the reason why there is none.
    fn verbs(&self) -> Result<&Verbs, &str> {
        let verbs =
            self.verbs.get_or_init(|| Verbs::open_with(self.rdma_bytes).map_err(|error| error.to_string()));
        verbs.as_ref().map_err(String::as_str)
    }

    /// The registrar that makes this process's memory readable, if RDMA is among its transports.
    pub(super) fn verbs_registrar(&self) -> Option<Arc<dyn Registrar>> {
        match self.transport {
            Transport::Auto | Transport::Verbs => self.verbs().ok().map(Verbs::registrar),
            // These transports do not need the device, so it is not opened.
            Transport::Tcp | Transport::Shm => None,
        }
    }

    /// Listens over RDMA at the address of TCP, if the server offers RDMA. A server that offers every transport
    /// continues without RDMA if that fails.
    pub(super) fn offer_verbs(&self, bound: Option<SocketAddr>) -> Result<Option<VerbsListener>, String> {
        let must = self.transport == Transport::Verbs;
        if !must && self.transport != Transport::Auto {
            return Ok(None);
        }
        match self.listen_verbs(bound, must) {
            Ok((device, listener)) => {
                tracing::info!(device, addr = ?bound, "RDMA is offered");
                Ok(Some(listener))
            }
            Err(why) if must => Err(why),
            Err(why) => {
                // A build without RDMA logs nothing about it.
                if BUILT.is_some() {
                    tracing::info!(why, "no RDMA is offered");
                }
                Ok(None)
            }
        }
    }

    fn listen_verbs(&self, bound: Option<SocketAddr>, must: bool) -> Result<(String, VerbsListener), String> {
        let verbs = self.verbs()?;
        let bound = bound.ok_or("the address is not numeric")?;
        if bound.ip().is_loopback() {
            return Err(format!("{} is a loopback address, which RDMA devices do not have", bound.ip()));
        }
        if self.certificates {
            return Err("workers must present certificates, which only TLS over tcp can carry".to_owned());
        }
        if self.tls && !must {
            return Err(UNENCRYPTED.to_owned());
        }
        let listener =
            verbs.listen(bound).map_err(|error| format!("cannot listen on {bound} over RDMA: {error}"))?;
        Ok((verbs.device(), listener))
    }

    /// Begins a session over RDMA, if only RDMA is configured.
    pub(super) fn begin_verbs_only(
        &self,
        addr: &str,
        attempt: usize,
    ) -> Result<Result<MultiStream, String>, NetError> {
        let failed = |why: String| NetError::Transport { addr: addr.to_owned(), why };
        let verbs = self.verbs().map_err(|why| failed(why.to_owned()))?;
        // A job that had a session with this server continues over TCP.
        if let Some(why) = verbs.avoided(addr).filter(|_| verbs.has_reached(addr)) {
            return Ok(Err(why));
        }
        let stream = self.begin_at(verbs, addr, attempt)?;
        self.chosen(addr, "verbs", "it was requested");
        Ok(Ok(stream))
    }

    /// Begins a session over RDMA if that seems possible; else returns why not.
    pub(super) fn begin_verbs(&self, addr: &str, attempt: usize) -> Result<MultiStream, String> {
        let verbs = self.verbs()?;
        if self.tls {
            return Err(UNENCRYPTED.to_owned());
        }
        if let Some(why) = verbs.avoided(addr) {
            return Err(why);
        }
        let stream = self.begin_at(verbs, addr, attempt).map_err(|error| error.to_string())?;
        self.chosen(addr, "verbs", "an RDMA device is here");
        Ok(stream)
    }

    fn begin_at(&self, verbs: &Verbs, addr: &str, attempt: usize) -> Result<MultiStream, NetError> {
        let failed = |source| NetError::Connect { addr: addr.to_owned(), source };
        let known = self.tcp.names().known(addr)?;
        let candidates: Vec<SocketAddr> =
            known.into_iter().filter(|candidate| !candidate.ip().is_loopback()).collect();
        let Some(candidate) = candidates.get(attempt % candidates.len().max(1)) else {
            let text = "a loopback address, which RDMA devices do not have";
            return Err(failed(io::Error::new(io::ErrorKind::AddrNotAvailable, text)));
        };
        verbs.begin_connect(*candidate, addr).map(MultiStream::verbs).map_err(failed)
    }
}
