//! A session with one peer: a stream of bytes, a receive half and a transmit half. One thread drives it, and it never
//! blocks.
//!
//! The poll reports edges, not states. So a link remembers whether its stream may have bytes to read or space
//! to write. It clears this when the stream reports that there are none, or moves fewer bytes than it was
//! offered, which means the same.

use crate::error::LinkError;
use crate::net::Event;
use crate::owner::Owner;
use crate::receive::{Filled, Receive};
use crate::stream::Stream;
use crate::transmit::Transmit;
use std::sync::Arc;

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
