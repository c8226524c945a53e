//! One receive or send on a socket, which does not wait.

use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};

/// Receives once. The end of the stream is an error; `None`: there is nothing now.
pub(crate) fn recv_now<Fd: AsFd>(socket: Fd, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
    let got = match slices {
        [slice] => {
            let once = || rustix::net::recv(&socket, &mut **slice, RecvFlags::DONTWAIT);
            retry_on_intr(once).map(|(bytes, _)| bytes)
        }
        _ => {
            let mut none = RecvAncillaryBuffer::default();
            let once = || rustix::net::recvmsg(&socket, slices, &mut none, RecvFlags::DONTWAIT);
            retry_on_intr(once).map(|got| got.bytes)
        }
    };
    match got {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => unless_blocked(error),
    }
}

/// Sends once. `None`: there is no space now.
pub(crate) fn send_now<Fd: AsFd>(socket: Fd, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match slices {
        [slice] => retry_on_intr(|| rustix::net::send(&socket, slice, flags)),
        _ => {
            let mut none = SendAncillaryBuffer::default();
            retry_on_intr(|| rustix::net::sendmsg(&socket, slices, &mut none, flags))
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
