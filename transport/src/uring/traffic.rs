//! The traffic of one socket: bytes that arrived and were not yet read, bytes to send, and operations in flight.

use super::ring::{CompletionTarget, OpId, OpenDescriptor, ReceivedBytes, Ring, SendBuffer};
use crate::limits::{URING_SMALL_BYTES, URING_SMALL_TURNS, URING_UNREAD_BYTES};
use crate::net::Event;
use crate::tcp::send_now;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// How a socket's bytes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    /// By plain receives; nothing reports new bytes.
    Plainly,
    /// The kernel puts bytes into provided buffers as they arrive.
    Received(OpId),
    /// The multishot receive was cancelled. Until it has ended, only the bytes that it delivered may be read.
    Stopping(OpId),
    /// By plain receives; a poll reports new bytes.
    Watched(OpId),
}

/// Bytes that arrived.
enum Chunk {
    /// In a provided buffer. The number is how many of them have been read.
    Provided(ReceivedBytes, usize),
    /// Taken out of a ring's buffers, or received before the socket was attached.
    Saved(Vec<u8>, usize),
}

/// How a stream ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum StreamEnd {
    Closed,
    Broken(Errno),
}

impl StreamEnd {
    pub(super) fn of(error: &io::Error) -> StreamEnd {
        Errno::from_io_error(error).map_or(StreamEnd::Closed, StreamEnd::Broken)
    }

    pub(super) fn error(self) -> io::Error {
        match self {
            StreamEnd::Closed => io::ErrorKind::UnexpectedEof.into(),
            StreamEnd::Broken(errno) => errno.into(),
        }
    }
}

pub(super) struct Traffic {
    pub(super) socket: Arc<dyn OpenDescriptor>,
    pub(super) reading: ReceiveMode,
    /// Whether a read found nothing, so that the next bytes must be reported.
    pub(super) wants_more: bool,
    chunks: VecDeque<Chunk>,
    chunk_bytes: usize,
    pub(super) ended: Option<StreamEnd>,
    /// Whether many bytes arrive at once. They are then received directly to their destination, without a copy.
    pub(super) is_bulk: bool,
    /// Bytes received plainly since the last read that found nothing.
    pub(super) moved: usize,
    small_turns: u32,
    is_listener: bool,
    /// Bytes taken from the link and not yet passed to the kernel.
    pub(super) filling: Option<(SendBuffer, Range<usize>)>,
    /// The send in flight: the operation, and the range of its buffer.
    pub(super) sending: Option<(OpId, Range<usize>)>,
    /// Whether the link found no space, so that new space must be reported.
    pub(super) is_full: bool,
    /// A poll that reports space.
    pub(super) space_watch: Option<OpId>,
    pub(super) wants_space: bool,
    pub(super) broken: Option<StreamEnd>,
    /// The event for the next wait.
    pub(super) event: Event,
    pub(super) is_noted: bool,
    pub(super) is_dirty: bool,
}

impl Traffic {
    pub(super) fn new(socket: Arc<dyn OpenDescriptor>, token: u64, is_listener: bool) -> Traffic {
        Traffic {
            socket,
            reading: ReceiveMode::Plainly,
            wants_more: true,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
            ended: None,
            is_bulk: is_listener,
            moved: 0,
            small_turns: 0,
            is_listener,
            filling: None,
            sending: None,
            is_full: false,
            space_watch: None,
            wants_space: false,
            broken: None,
            event: Event { token, ..Event::default() },
            is_noted: false,
            is_dirty: false,
        }
    }

    /// Stores bytes that arrived in a provided buffer. `true`: so many bytes are unread that the kernel should
    /// stop. Either the link does not read, or so many bytes arrive that copying costs more than a system call.
    pub(super) fn keep(&mut self, received: ReceivedBytes) -> bool {
        self.chunk_bytes += received.len();
        self.chunks.push_back(Chunk::Provided(received, 0));
        self.chunk_bytes >= URING_UNREAD_BYTES
    }

    /// Stores bytes that arrived before the socket was attached.
    pub(super) fn keep_early(&mut self, bytes: Vec<u8>) {
        self.chunk_bytes += bytes.len();
        self.chunks.push_back(Chunk::Saved(bytes, 0));
    }

    /// Copies unread bytes into the slices. Returns how many.
    pub(super) fn read(&mut self, ring: &mut Ring, slices: &mut [IoSliceMut<'_>]) -> usize {
        let mut got = 0;
        for slice in slices {
            let mut filled = 0;
            while filled < slice.len() {
                let Some(chunk) = self.chunks.front_mut() else { return got };
                let (bytes, done) = match chunk {
                    Chunk::Provided(received, done) => (ring.received(received), done),
                    Chunk::Saved(bytes, done) => (&bytes[..], done),
                };
                let count = (bytes.len() - *done).min(slice.len() - filled);
                slice[filled..filled + count].copy_from_slice(&bytes[*done..*done + count]);
                *done += count;
                filled += count;
                got += count;
                self.chunk_bytes -= count;
                if *done == bytes.len()
                    && let Some(Chunk::Provided(received, _)) = self.chunks.pop_front()
                {
                    ring.give_back(received);
                }
            }
        }
        got
    }

    /// Takes everything unread out of the ring's buffers.
    pub(super) fn save(&mut self, ring: &mut Ring) -> Vec<u8> {
        let mut bytes = vec![0; self.chunk_bytes];
        self.read(ring, &mut [IoSliceMut::new(&mut bytes)]);
        bytes
    }

    /// Frees everything unread and everything held back.
    pub(super) fn discard(&mut self, ring: &mut Ring) {
        for chunk in self.chunks.drain(..) {
            if let Chunk::Provided(received, _) = chunk {
                ring.give_back(received);
            }
        }
        if let Some((buffer, _)) = self.filling.take() {
            ring.free(buffer);
        }
    }

    /// Chooses how to receive the next bytes, after a plain receive found nothing more.
    pub(super) fn choose(&mut self) {
        let moved = std::mem::take(&mut self.moved);
        if self.is_listener {
            return;
        }
        if moved >= URING_UNREAD_BYTES {
            (self.is_bulk, self.small_turns) = (true, 0);
        } else if moved < URING_SMALL_BYTES {
            self.small_turns += 1;
            self.is_bulk &= self.small_turns < URING_SMALL_TURNS;
        } else {
            self.small_turns = 0;
        }
    }

    /// Sends the held-back bytes now, as far as possible, if no operation must come before them.
    pub(super) fn send_held(&mut self, ring: &mut Ring) {
        if self.sending.is_some() {
            return;
        }
        let Some((buffer, mut range)) = self.filling.take() else { return };
        let held = IoSlice::new(&ring.outgoing(&buffer)[range.clone()]);
        // The operation that sends the rest reports the error again.
        range.start += send_now(&*self.socket, &[held]).ok().flatten().unwrap_or(0);
        if range.start == range.end {
            ring.free(buffer);
            self.promise_space();
        } else {
            self.filling = Some((buffer, range));
        }
    }

    /// Makes sure that a link that found no space learns when there is space: from the end of an operation that
    /// is in flight or held back, or else from a poll. (The link may have sent since: TLS does so while it
    /// receives.)
    pub(super) fn promise_space(&mut self) {
        self.wants_space |= self.is_full && self.sending.is_none() && self.filling.is_none();
    }

    /// Submits the held-back bytes. `false`: the queue is full.
    pub(super) fn settle_send(&mut self, ring: &mut Ring, name: CompletionTarget) -> bool {
        if self.sending.is_some() {
            return true;
        }
        let Some((buffer, range)) = self.filling.take() else { return true };
        match ring.send(&self.socket, name, buffer, range.clone()) {
            Ok(op) => self.sending = Some((op, range)),
            Err(buffer) => self.filling = Some((buffer, range)),
        }
        self.sending.is_some()
    }

    /// Requests reports of new bytes and of space, if they are wanted. `false`: the queue is full.
    pub(super) fn settle_watches(&mut self, ring: &mut Ring, name: CompletionTarget) -> bool {
        if self.wants_more && self.reading == ReceiveMode::Plainly {
            let mode = if self.is_bulk {
                let flags = PollFlags::IN | PollFlags::RDHUP;
                ring.watch(&self.socket, name, flags.bits().into(), false).map(ReceiveMode::Watched)
            } else {
                ring.receive(&self.socket, name).map(ReceiveMode::Received)
            };
            self.wants_more = mode.is_none();
            self.reading = mode.unwrap_or(ReceiveMode::Plainly);
        }
        if std::mem::take(&mut self.wants_space) && self.space_watch.is_none() {
            self.space_watch = ring.watch(&self.socket, name, PollFlags::OUT.bits().into(), false);
            self.wants_space = self.space_watch.is_none();
        }
        let found_full = (self.wants_more && self.reading == ReceiveMode::Plainly) || self.wants_space;
        !found_full
    }
}
