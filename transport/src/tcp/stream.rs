//! A TCP connection: by itself, one system call to receive and one to send, neither waiting; at a ring, by way of it.

use crate::link::Stream;
use crate::uring::Seat;
use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net;
use std::sync::Arc;

/// A connected socket.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) socket: Arc<net::TcpStream>,
    peer: Arc<str>,
    remote: bool,
    way: RefCell<Way>,
}

#[derive(Debug)]
enum Way {
    /// By itself, after the bytes that came while it was at a ring.
    Plain(io::Cursor<Vec<u8>>),
    Ring(Seat),
}

impl TcpStream {
    pub(super) fn new(socket: net::TcpStream, peer: Arc<str>, remote: bool) -> TcpStream {
        let way = RefCell::new(Way::Plain(io::Cursor::default()));
        TcpStream { socket: Arc::new(socket), peer, remote, way }
    }

    /// Comes away from a ring, if it is at one: what was received and not read.
    pub(super) fn leave(&self) -> io::Result<Vec<u8>> {
        match self.way.replace(Way::Plain(io::Cursor::default())) {
            Way::Ring(seat) => seat.leave(),
            Way::Plain(early) => Ok(early.get_ref()[early.position() as usize..].to_vec()),
        }
    }

    pub(super) fn keep_early(&self, early: Vec<u8>) {
        self.way.replace(Way::Plain(io::Cursor::new(early)));
    }

    pub(super) fn take_seat(&self, seat: Seat) {
        self.way.replace(Way::Ring(seat));
    }
}

impl Stream for TcpStream {
    fn recv(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.way.get_mut() {
            Way::Ring(seat) => seat.recv(pieces),
            Way::Plain(early) if (early.position() as usize) < early.get_ref().len() => {
                let asked: usize = pieces.iter().map(|piece| piece.len()).sum();
                let got = early.read_vectored(pieces)?;
                if got == asked {
                    return Ok(Some(got));
                }
                let mut rest = pieces;
                IoSliceMut::advance_slices(&mut rest, got);
                // What goes wrong behind these bytes is heard of again.
                Ok(Some(got + recv_now(&*self.socket, rest).unwrap_or(None).unwrap_or(0)))
            }
            Way::Plain(_) => recv_now(&*self.socket, pieces),
        }
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.way.get_mut() {
            Way::Ring(seat) => seat.send(pieces),
            Way::Plain(_) => send_now(&*self.socket, pieces),
        }
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    fn is_remote(&self) -> bool {
        self.remote
    }
}

/// One receive. The end of the stream is an error; `None`: nothing there now.
pub(crate) fn recv_now<Fd: AsFd>(socket: Fd, pieces: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
    let got = match pieces {
        [piece] => {
            let once = || rustix::net::recv(&socket, &mut **piece, RecvFlags::DONTWAIT);
            retry_on_intr(once).map(|(bytes, _)| bytes)
        }
        _ => {
            let mut none = RecvAncillaryBuffer::default();
            let once = || rustix::net::recvmsg(&socket, pieces, &mut none, RecvFlags::DONTWAIT);
            retry_on_intr(once).map(|got| got.bytes)
        }
    };
    match got {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => unless_blocked(error),
    }
}

/// One send. `None`: no room now.
pub(crate) fn send_now<Fd: AsFd>(socket: Fd, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match pieces {
        [piece] => retry_on_intr(|| rustix::net::send(&socket, piece, flags)),
        _ => {
            let mut none = SendAncillaryBuffer::default();
            retry_on_intr(|| rustix::net::sendmsg(&socket, pieces, &mut none, flags))
        }
    };
    sent.map(Some).or_else(unless_blocked)
}

fn unless_blocked(error: Errno) -> io::Result<Option<usize>> {
    match error {
        Errno::AGAIN => Ok(None),
        error => Err(error.into()),
    }
}
