//! A session with one peer: a stream of bytes, a receive half and a transmit half. One thread drives it, and it never
//! blocks.
//!
//! The poll reports edges, not states. So a link remembers whether its stream may have bytes to read or space
//! to write. It clears this when the stream reports that there are none, or moves fewer bytes than it was
//! offered, which means the same.

use crate::error::LinkError;
use crate::net::Event;
use crate::owner::Owner;
use crate::receive::Receive;
use crate::remote::RemoteReader;
use crate::transmit::Transmit;
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

/// The result of a [`Link::fill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// This many bytes.
    Bytes(usize),
    /// Nothing is there now: wait for an event.
    Empty,
    /// The receive buffer holds frames that have not been consumed: consume them first.
    Held,
}

/// One session with one peer. Dropping it closes the connection.
pub struct Link<S> {
    stream: S,
    receive: Receive,
    transmit: Transmit,
    readable: bool,
    writable: bool,
    /// The peer has ended the connection. A short read then does not mean that there is nothing more to read.
    ending: bool,
}

impl<S: Stream> Link<S> {
    /// A link over a connected stream.
    pub fn new(stream: S) -> Link<S> {
        let peer = stream.peer();
        let transmit = Transmit::new(peer.clone(), stream.is_remote());
        Link { stream, receive: Receive::new(peer), transmit, readable: true, writable: true, ending: false }
    }

    /// The other side's address.
    pub fn peer(&self) -> &Arc<str> {
        self.receive.peer()
    }

    /// The stream, for a poll to watch.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream itself.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Records an event of a poll.
    pub fn note(&mut self, event: &Event) {
        self.readable |= event.readable || event.closed || (event.writable && self.stream.holds());
        self.writable |= event.writable;
        self.ending |= event.closed;
    }

    /// Whether bytes may be waiting in the stream.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the peer has ended the connection. It may have sent more before that.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether there is something to send and there may be space for it.
    pub fn can_send(&self) -> bool {
        self.writable && !self.transmit.is_empty()
    }

    /// Both halves, so that a frame can be read in place while its reply is written.
    pub fn halves(&mut self) -> (&mut Receive, &mut Transmit) {
        (&mut self.receive, &mut self.transmit)
    }

    /// Both halves and the stream.
    pub fn parts(&mut self) -> (&mut Receive, &mut Transmit, &mut S) {
        (&mut self.receive, &mut self.transmit, &mut self.stream)
    }

    /// The transmit half.
    pub fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    /// The receive half.
    pub fn receive(&mut self) -> &mut Receive {
        &mut self.receive
    }

    /// Frees the memory of empty buffers, for links that are idle. The buffers allocate it again when they need it.
    pub fn rest(&mut self) {
        self.stream.rest();
        self.receive.rest();
        self.transmit.rest();
    }

    /// Bytes of memory that the buffers have now: 0 for a new link, at most [`crate::limits::LINK_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        self.stream.held_bytes() + self.receive.held() + self.transmit.held()
    }

    /// Receives once. If the result is `Filled::Empty`, the link is no longer readable.
    pub fn fill<O: Owner>(&mut self, owner: &mut O) -> Result<Filled, LinkError> {
        let (filled, requested) = self.receive.fill(&mut self.stream, owner)?;
        self.writable |= self.stream.may_send_now();
        self.readable = match filled {
            Filled::Bytes(bytes) => bytes == requested || self.ending,
            Filled::Empty => false,
            Filled::Held => self.readable,
        };
        Ok(filled)
    }

    /// Sends what is queued until nothing is left (`true`) or the stream takes no more (`false`). If you do not wait at
    /// the poll next, call [`crate::Poll::submit`]: some streams hold small sends back until then.
    pub fn flush<O: Owner>(&mut self, owner: &mut O) -> Result<bool, LinkError> {
        let done = self.transmit.flush(&mut self.stream, owner)?;
        self.writable = done;
        Ok(done)
    }
}
