//! What is under way for one socket: bytes that came and were not yet read, bytes to send, operations.

use super::ring::{CompletionTarget, OpId, OpenDescriptor, ReceivedBytes, Ring, SendBuffer};
use crate::limits::{URING_HOARD_BYTES, URING_SMALL_BYTES, URING_SMALL_TURNS};
use crate::net::Event;
use crate::tcp::send_now;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// How a socket's bytes are come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    /// By plain receives; nothing tells of more.
    Plainly,
    /// The kernel puts them into provided buffers as they come.
    Received(OpId),
    /// It has been asked to stop; until it has, only what it put there may be read.
    Stopping(OpId),
    /// By plain receives; a poll tells of more.
    Watched(OpId),
}

/// Bytes that came.
enum Chunk {
    /// In a provided buffer, the first so many of which have been read.
    Provided(ReceivedBytes, usize),
    /// Saved from a ring that has ended.
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
    pub(super) of: Arc<dyn OpenDescriptor>,
    pub(super) reading: ReceiveMode,
    /// A read found nothing: to be told of more.
    pub(super) wants_more: bool,
    chunks: VecDeque<Chunk>,
    chunk_bytes: usize,
    pub(super) ended: Option<StreamEnd>,
    /// Much comes at once: it is received where it is wanted, not copied there.
    pub(super) is_bulk: bool,
    /// Received plainly since more was last wanted.
    pub(super) moved: usize,
    small_turns: u32,
    is_listener: bool,
    /// Taken from the link, not yet the kernel's.
    pub(super) filling: Option<(SendBuffer, Range<usize>)>,
    /// What the kernel is sending: the operation, and where in its buffer.
    pub(super) flying: Option<(OpId, Range<usize>)>,
    /// The link was told that there is no room: it is to hear when there is.
    pub(super) is_full: bool,
    /// A poll that tells of room.
    pub(super) room: Option<OpId>,
    pub(super) wants_room: bool,
    pub(super) broken: Option<StreamEnd>,
    /// What the next wait is to report.
    pub(super) event: Event,
    pub(super) is_noted: bool,
    pub(super) is_dirty: bool,
}

impl Traffic {
    pub(super) fn new(of: Arc<dyn OpenDescriptor>, token: u64, is_listener: bool) -> Traffic {
        Traffic {
            of,
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
            flying: None,
            is_full: false,
            room: None,
            wants_room: false,
            broken: None,
            event: Event { token, ..Event::default() },
            is_noted: false,
            is_dirty: false,
        }
    }

    /// Bytes came into a provided buffer. `true`: so many are unread that the kernel should stop; either the link does
    /// not read, or so much comes that a copy costs more than a system call.
    pub(super) fn keep(&mut self, received: ReceivedBytes) -> bool {
        self.chunk_bytes += received.len();
        self.chunks.push_back(Chunk::Provided(received, 0));
        self.chunk_bytes >= URING_HOARD_BYTES
    }

    /// Bytes that came before this seat was taken.
    pub(super) fn keep_early(&mut self, bytes: Vec<u8>) {
        self.chunk_bytes += bytes.len();
        self.chunks.push_back(Chunk::Saved(bytes, 0));
    }

    /// Copies unread bytes into the pieces: how many.
    pub(super) fn read(&mut self, ring: &mut Ring, pieces: &mut [IoSliceMut<'_>]) -> usize {
        let mut got = 0;
        for piece in pieces {
            let mut filled = 0;
            while filled < piece.len() {
                let Some(chunk) = self.chunks.front_mut() else { return got };
                let (bytes, done) = match chunk {
                    Chunk::Provided(received, done) => (ring.received(received), done),
                    Chunk::Saved(bytes, done) => (&bytes[..], done),
                };
                let count = (bytes.len() - *done).min(piece.len() - filled);
                piece[filled..filled + count].copy_from_slice(&bytes[*done..*done + count]);
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

    /// Gives everything unread, and what was held back, away.
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

    /// A plain receive found nothing more: how the next bytes are to be come by.
    pub(super) fn choose(&mut self) {
        let moved = std::mem::take(&mut self.moved);
        if self.is_listener {
            return;
        }
        if moved >= URING_HOARD_BYTES {
            (self.is_bulk, self.small_turns) = (true, 0);
        } else if moved < URING_SMALL_BYTES {
            self.small_turns += 1;
            self.is_bulk &= self.small_turns < URING_SMALL_TURNS;
        } else {
            self.small_turns = 0;
        }
    }

    /// Sends what was held back now, as far as it goes, if nothing is under way before it.
    pub(super) fn send_held(&mut self, ring: &mut Ring) {
        if self.flying.is_some() {
            return;
        }
        let Some((buffer, mut range)) = self.filling.take() else { return };
        let held = IoSlice::new(&ring.outgoing(&buffer)[range.clone()]);
        // An error is met again by the operation that sends the rest.
        range.start += send_now(&*self.of, &[held]).ok().flatten().unwrap_or(0);
        if range.start == range.end {
            ring.free(buffer);
            self.promise_room();
        } else {
            self.filling = Some((buffer, range));
        }
    }

    /// A link that was told that there is no room hears when there is: from the end of what is under way or held back, or
    /// else from a poll. (It may have sent since: TLS does while it receives.)
    pub(super) fn promise_room(&mut self) {
        self.wants_room |= self.is_full && self.flying.is_none() && self.filling.is_none();
    }

    /// Hands over what was held back. `false`: the queue is full.
    pub(super) fn settle_send(&mut self, ring: &mut Ring, name: CompletionTarget) -> bool {
        if self.flying.is_some() {
            return true;
        }
        let Some((buffer, range)) = self.filling.take() else { return true };
        match ring.send(&self.of, name, buffer, range.clone()) {
            Ok(op) => self.flying = Some((op, range)),
            Err(buffer) => self.filling = Some((buffer, range)),
        }
        self.flying.is_some()
    }

    /// Asks to be told of more, and of room, if that is wanted. `false`: the queue is full.
    pub(super) fn settle_watches(&mut self, ring: &mut Ring, name: CompletionTarget) -> bool {
        if self.wants_more && self.reading == ReceiveMode::Plainly {
            let asked = if self.is_bulk {
                let flags = PollFlags::IN | PollFlags::RDHUP;
                ring.watch(&self.of, name, flags.bits().into(), false).map(ReceiveMode::Watched)
            } else {
                ring.receive(&self.of, name).map(ReceiveMode::Received)
            };
            self.wants_more = asked.is_none();
            self.reading = asked.unwrap_or(ReceiveMode::Plainly);
        }
        if std::mem::take(&mut self.wants_room) && self.room.is_none() {
            self.room = ring.watch(&self.of, name, PollFlags::OUT.bits().into(), false);
            self.wants_room = self.room.is_none();
        }
        let found_full = (self.wants_more && self.reading == ReceiveMode::Plainly) || self.wants_room;
        !found_full
    }
}
