//! The stream of bytes under a link, which each transport implements.

use crate::remote::RemoteReader;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// A byte stream that carries a link. It delivers bytes in order or fails. No call blocks.
pub trait Stream {
    /// Receives into these slices in order. `None`: there is nothing now. Fewer bytes than requested: there is
    /// no more now. The end of the stream is an error (`UnexpectedEof`).
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>;
    /// Sends from these slices in order. `None`: there is no space now. Fewer bytes than offered: there is no
    /// more space now. The stream may hold bytes that it took until the poll's next wait or
    /// [`crate::Poll::submit`].
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>>;
    /// The other side's address.
    fn peer(&self) -> Arc<str>;
    /// Whether the bytes leave this host's memory, or must be treated as if they did. Payloads then carry checksums.
    fn is_remote(&self) -> bool;
    /// The name of the transport for logs and reports: "tcp", "tcp+tls", "shm", "sim".
    fn transport(&self) -> &'static str;
    /// Whether the peer is on this host and accepts files.
    fn is_near(&self) -> bool {
        false
    }
    /// Passes an open file of this process to the peer. The file arrives before any byte that is sent
    /// afterwards. The peer gets the file's rights (writing, for example).
    ///
    /// # Errors
    /// `Unsupported`: this stream moves bytes only. `WouldBlock`: the peer has not yet received the earlier
    /// files; try again.
    fn give(&mut self, _file: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The next file that the peer passed, in order, if one has arrived. At most
    /// [`crate::limits::GIVEN_FILES_MAX`] files may wait to be taken; more end the stream.
    fn take_given(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
    /// Whether bytes that the stream itself must send (a handshake) wait for space. When there is space, call `recv`.
    fn holds(&self) -> bool {
        false
    }
    /// Whether a `recv` has made a delayed `send` possible. Each such change is reported once.
    fn may_send_now(&mut self) -> bool {
        false
    }
    /// A reader of the peer's registered memory, if the transport supports it and the peer is ready.
    fn reader(&mut self) -> Option<&mut dyn RemoteReader> {
        None
    }
    /// Lets the peer read registered memory. Call it after the peer has proved its identity. `false`: the
    /// transport does not support such reads.
    ///
    /// # Errors
    /// When the device refuses.
    fn allow_reads(&mut self) -> io::Result<bool> {
        Ok(false)
    }
    /// Frees memory that the stream does not need while it is idle.
    fn rest(&mut self) {}
    /// Bytes of memory that the stream has now.
    fn held_bytes(&self) -> usize {
        0
    }
    /// Bytes of rings that are pinned for a device while the session exists. They have a separate budget.
    fn pinned_bytes(&self) -> usize {
        0
    }
}
