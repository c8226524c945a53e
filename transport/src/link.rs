//! A session with one peer: a stream of bytes, a receive half, a transmit half. Driven by one thread, never blocking.
//!
//! The poll reports edges, so a link remembers whether its stream may have bytes and may take some, and forgets it
//! when the stream says otherwise (or moves less than it was offered, which means the same).

use crate::error::LinkError;
use crate::net::Event;
use crate::owner::Owner;
use crate::receive::Receive;
use crate::remote::RemoteReader;
use crate::transmit::Transmit;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// What carries a link's bytes: in order or not at all, without waiting.
pub trait Stream {
    /// Receives into these pieces in order. `None`: nothing there now. An end of the stream is an error
    /// (`UnexpectedEof`). Fewer bytes than asked for: nothing more is there now.
    fn recv(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>;
    /// Sends from these pieces in order. `None`: no room now. Fewer bytes than offered: no more room now. What was taken may
    /// stay until the poll's next wait or [`crate::Poll::submit`].
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>>;
    /// The other side's address.
    fn peer(&self) -> Arc<str>;
    /// The bytes leave this host's memory (or are to be treated so): payloads then carry checksums.
    fn is_remote(&self) -> bool;
    /// What carries the bytes, in a word for logs and reports: "tcp", "tcp+tls", "shm", "sim".
    fn transport(&self) -> &'static str;
    /// The other side is on this host and takes files.
    fn is_near(&self) -> bool {
        false
    }
    /// Hands the other side an open file of this process: it is there before any byte that is sent afterwards. What the
    /// file allows (writing, say) the other side is allowed too.
    ///
    /// # Errors
    /// `Unsupported`: this stream moves bytes only. `WouldBlock`: the other side has not taken in those before; try again.
    fn give(&mut self, _file: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The next file that the other side gave, in the order of giving, if one is here. At most
    /// [`crate::limits::GIVEN_FILES_MAX`] wait to be taken: more end the stream.
    fn take_given(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
    /// Bytes of the stream's own (a handshake) wait for room: when there is some, `recv` is to be called.
    fn holds(&self) -> bool {
        false
    }
    /// A `recv` has made room for a `send` that had been put off: told once.
    fn may_send_now(&mut self) -> bool {
        false
    }
    /// Reads the other side's registered memory, where the transport can and the other side is ready.
    fn reader(&mut self) -> Option<&mut dyn RemoteReader> {
        None
    }
    /// Lets the other side read registered memory: to be called once it has proved who it is. `false`: it cannot anyway.
    ///
    /// # Errors
    /// When the device refuses.
    fn allow_reads(&mut self) -> io::Result<bool> {
        Ok(false)
    }
    /// Gives back memory that it does not need while nothing moves.
    fn rest(&mut self) {}
    /// Bytes of that memory.
    fn held_bytes(&self) -> usize {
        0
    }
    /// Bytes of rings that are pinned for a device as long as the session lives: of a budget of their own.
    fn pinned_bytes(&self) -> usize {
        0
    }
}

/// What a [`Link::fill`] brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// This many bytes.
    Bytes(usize),
    /// Nothing is there now: wait for an event.
    Empty,
    /// The receive buffer holds frames that have not been consumed: handle them first.
    Held,
}

/// One session with one peer. Dropping it closes the connection.
pub struct Link<S> {
    stream: S,
    receive: Receive,
    transmit: Transmit,
    readable: bool,
    writable: bool,
    /// The peer has said that it ends: a short read does not mean that nothing more is there.
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

    /// The stream, to be used past the link.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Takes note of what a poll saw.
    pub fn note(&mut self, event: &Event) {
        self.readable |= event.readable || event.closed || (event.writable && self.stream.holds());
        self.writable |= event.writable;
        self.ending |= event.closed;
    }

    /// Bytes may be waiting in the stream.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// The peer has said that it ends, and may have sent more before.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// There is something to send and, as far as known, room for it.
    pub fn can_send(&self) -> bool {
        self.writable && !self.transmit.is_empty()
    }

    /// Both halves, so that a frame can be read in place while its reply is written.
    pub fn halves(&mut self) -> (&mut Receive, &mut Transmit) {
        (&mut self.receive, &mut self.transmit)
    }

    /// Both halves, and the stream beside them.
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

    /// Gives back the memory of buffers in which nothing stands: for links that are quiet. They take it again when they
    /// need it.
    pub fn rest(&mut self) {
        self.stream.rest();
        self.receive.rest();
        self.transmit.rest();
    }

    /// Bytes of memory that the buffers have now: none of a new link, at most [`crate::limits::LINK_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        self.stream.held_bytes() + self.receive.held() + self.transmit.held()
    }

    /// Receives once. `Filled::Empty` also marks the link as not readable.
    pub fn fill<O: Owner>(&mut self, owner: &mut O) -> Result<Filled, LinkError> {
        let (filled, asked) = self.receive.fill(&mut self.stream, owner)?;
        self.writable |= self.stream.may_send_now();
        self.readable = match filled {
            Filled::Bytes(bytes) => bytes == asked || self.ending,
            Filled::Empty => false,
            Filled::Held => self.readable,
        };
        Ok(filled)
    }

    /// Sends what is queued until nothing is left (`true`) or the stream takes no more (`false`). Who does not wait at the
    /// poll next calls [`crate::Poll::submit`]: some streams keep what is small until then.
    pub fn flush<O: Owner>(&mut self, owner: &mut O) -> Result<bool, LinkError> {
        let done = self.transmit.flush(&mut self.stream, owner)?;
        self.writable = done;
        Ok(done)
    }
}
