//! A TCP connection: one system call to receive, one to send, neither waiting.

use crate::link::Stream;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::net;
use std::sync::Arc;

/// A connected socket.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) socket: net::TcpStream,
    peer: Arc<str>,
    remote: bool,
}

impl TcpStream {
    pub(super) fn new(socket: net::TcpStream, peer: Arc<str>, remote: bool) -> TcpStream {
        TcpStream { socket, peer, remote }
    }
}

impl Stream for TcpStream {
    fn recv(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let got = match pieces {
            [piece] => {
                let once = || rustix::net::recv(&self.socket, &mut **piece, RecvFlags::DONTWAIT);
                retry_on_intr(once).map(|(bytes, _)| bytes)
            }
            _ => {
                let mut none = RecvAncillaryBuffer::default();
                let once = || rustix::net::recvmsg(&self.socket, pieces, &mut none, RecvFlags::DONTWAIT);
                retry_on_intr(once).map(|got| got.bytes)
            }
        };
        match got {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => unless_blocked(error),
        }
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match pieces {
            [piece] => retry_on_intr(|| rustix::net::send(&self.socket, piece, flags)),
            _ => {
                let mut none = SendAncillaryBuffer::default();
                retry_on_intr(|| rustix::net::sendmsg(&self.socket, pieces, &mut none, flags))
            }
        };
        sent.map(Some).or_else(unless_blocked)
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    fn is_remote(&self) -> bool {
        self.remote
    }
}

fn unless_blocked(error: Errno) -> io::Result<Option<usize>> {
    match error {
        Errno::AGAIN => Ok(None),
        error => Err(error.into()),
    }
}
