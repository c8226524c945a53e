//! A TCP connection. If it is not attached to a ring, each receive or send is one nonblocking system call. If
//! it is attached, it uses the ring.

use super::io_now::{recv_now, send_now};
use crate::limits::PARTS_MAX;
use crate::stream::Stream;
use crate::tls::TlsSession;
use crate::uring::Registration;
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net;
use std::sync::Arc;

/// A connected socket.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) socket: Arc<net::TcpStream>,
    peer: Arc<str>,
    remote: bool,
    way: RefCell<StreamDriver>,
    tls: Option<Box<TlsSession>>,
}

#[derive(Debug)]
enum StreamDriver {
    /// Not attached to a ring. The bytes that arrived while it was attached are read first.
    Plain(io::Cursor<Vec<u8>>),
    Ring(Registration),
}

impl TcpStream {
    pub(super) fn new(socket: net::TcpStream, peer: Arc<str>, remote: bool) -> TcpStream {
        let way = RefCell::new(StreamDriver::Plain(io::Cursor::default()));
        TcpStream { socket: Arc::new(socket), peer, remote, way, tls: None }
    }

    /// Detaches from the ring, if it is attached to one. Returns the bytes that were received and not read.
    pub(super) fn leave(&self) -> io::Result<Vec<u8>> {
        match self.way.replace(StreamDriver::Plain(io::Cursor::default())) {
            StreamDriver::Ring(registration) => registration.leave(),
            StreamDriver::Plain(early) => Ok(early.get_ref()[early.position() as usize..].to_vec()),
        }
    }

    pub(super) fn keep_early(&self, early: Vec<u8>) {
        self.way.replace(StreamDriver::Plain(io::Cursor::new(early)));
    }

    pub(super) fn set_registration(&self, registration: Registration) {
        self.way.replace(StreamDriver::Ring(registration));
    }

    /// Makes received and sent bytes go through this TLS session from now on.
    pub(super) fn begin_tls(&mut self, session: TlsSession) {
        self.tls = Some(Box::new(session));
    }

    /// Continues a handshake. `true`: there is none, or it is complete.
    pub(super) fn shake_hands(&mut self) -> io::Result<bool> {
        let TcpStream { socket, way, tls, .. } = self;
        tls.as_mut().map_or(Ok(true), |tls| tls.shake_hands(&mut Raw { socket, way: way.get_mut() }))
    }
}

impl Stream for TcpStream {
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let TcpStream { socket, way, tls, .. } = self;
        let mut raw = Raw { socket, way: way.get_mut() };
        match tls {
            Some(tls) => tls.recv(&mut raw, slices),
            None => raw.recv(slices),
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let TcpStream { socket, way, tls, .. } = self;
        let mut raw = Raw { socket, way: way.get_mut() };
        match tls {
            Some(tls) => tls.send(&mut raw, slices),
            None => raw.send(slices),
        }
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    fn is_remote(&self) -> bool {
        self.remote
    }

    fn transport(&self) -> &'static str {
        if self.tls.is_some() { "tcp+tls" } else { "tcp" }
    }

    fn holds(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.holds())
    }

    fn may_send_now(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.may_send_now())
    }

    fn rest(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
    }

    fn held_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.held())
    }
}

/// The bytes as they are on the wire, before TLS.
struct Raw<'a> {
    socket: &'a net::TcpStream,
    way: &'a mut StreamDriver,
}

impl Raw<'_> {
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.way {
            StreamDriver::Ring(registration) => registration.recv(slices),
            StreamDriver::Plain(early) if (early.position() as usize) < early.get_ref().len() => {
                let requested: usize = slices.iter().map(|slice| slice.len()).sum();
                let got = early.read_vectored(slices)?;
                if got == requested {
                    return Ok(Some(got));
                }
                let mut rest = slices;
                IoSliceMut::advance_slices(&mut rest, got);
                // If this fails, the next call reports it again.
                Ok(Some(got + recv_now(self.socket, rest).unwrap_or(None).unwrap_or(0)))
            }
            StreamDriver::Plain(_) => recv_now(self.socket, slices),
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.way {
            StreamDriver::Ring(registration) => registration.send(slices),
            StreamDriver::Plain(_) => send_now(self.socket, slices),
        }
    }
}

/// TLS reads its records from here. `Ok(0)` means the end.
impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.recv(&mut [IoSliceMut::new(bytes)]) {
            Ok(got) => got.ok_or_else(|| io::ErrorKind::WouldBlock.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// TLS writes its records here.
impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // As many as one system call takes.
        let slices = &slices[..slices.len().min(PARTS_MAX)];
        self.send(slices)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
