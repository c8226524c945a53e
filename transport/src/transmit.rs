//! The transmit half of a link: frames in, bytes out, in the order in which they were queued.
//!
//! Replies are written into the out buffer. For a posted frame, the buffer holds only the head, and the frame's
//! owner lends the payload when bytes can be sent. The queue records how runs of the buffer and lent payloads
//! alternate.

use crate::buffer::Buffer;
use crate::error::LinkError;
use crate::head::{FLAG_PAYLOAD_CRC, Head};
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES, PAYLOAD_ALIGN, TRANSMIT_BYTES, TRANSMIT_ITEMS_MAX, padded};
use crate::owner::{Owner, Parts};
use crate::stream::Stream;
use std::collections::VecDeque;
use std::sync::Arc;

/// The out queue is full: read no more from this link, and try again when the queue has drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link's out queue is full")]
pub struct Full;

enum Item {
    /// This many bytes of the buffer.
    Run(usize),
    /// A payload that stays with its owner. `done` bytes of it have been sent.
    Lent { token: u64, len: usize, done: usize },
}

/// The transmit half of a [`crate::Link`].
pub struct Transmit {
    buffer: Buffer,
    start: usize,
    end: usize,
    items: VecDeque<Item>,
    /// Bytes of lent payloads in the queue.
    lent: usize,
    /// Bytes that were ever sent, and how many may be.
    sent: u64,
    may_send: u64,
    /// Payload bytes reserved behind `end + HEAD_BYTES`, if a reservation is open.
    reserved: Option<usize>,
    checksums: bool,
    peer: Arc<str>,
}

impl Transmit {
    pub(crate) fn new(peer: Arc<str>, checksums: bool) -> Transmit {
        let buffer = Buffer::new(TRANSMIT_BYTES);
        Transmit {
            buffer,
            start: 0,
            end: 0,
            items: VecDeque::new(),
            lent: 0,
            sent: 0,
            may_send: u64::MAX,
            reserved: None,
            checksums,
            peer,
        }
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes queued that the system has not yet taken.
    pub fn queued_bytes(&self) -> usize {
        self.end - self.start + self.lent
    }

    /// Bytes that were ever queued: the place behind the last frame, for [`limit`](Self::limit).
    pub fn place(&self) -> u64 {
        self.sent + self.queued_bytes() as u64
    }

    /// From now on only frames that end at or before this place are sent. `u64::MAX`: all of them, as at first.
    pub fn limit(&mut self, place: u64) {
        self.may_send = place;
    }

    /// Frees the out buffer's memory if nothing is queued. The next frame allocates it again.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            (self.start, self.end, self.reserved) = (0, 0, None);
            self.buffer.release();
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// Reserves space in the out buffer for a payload of `len` bytes, 8-aligned. Its content is arbitrary.
    /// `None`: the queue is full. Nothing is sent before [`Transmit::commit`]. Without a commit, the next
    /// reservation replaces this one.
    ///
    /// # Panics
    /// When `len` is more than a frame may carry.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        assert!(len <= FRAME_BYTES_MAX, "a payload of {len} bytes; the limit is {FRAME_BYTES_MAX}");
        self.make_space(HEAD_BYTES + padded(len)).ok()?;
        self.reserved = Some(len);
        let from = self.end + HEAD_BYTES;
        Some(&mut self.buffer.bytes_mut()[from..from + len])
    }

    /// Queues the frame whose payload is the first `len` bytes of the reservation.
    ///
    /// # Panics
    /// Without a reservation of at least that length.
    #[inline]
    pub fn commit(&mut self, mut head: Head, len: usize) {
        let reserved = self.reserved.take().expect("commit follows reserve");
        assert!(len <= reserved, "{len} bytes committed, {reserved} reserved");
        let (at, checksums, whole) = (self.end, self.checksums, padded(len));
        let (bytes, payload) = self.buffer.bytes_mut()[at..at + HEAD_BYTES + whole].split_at_mut(HEAD_BYTES);
        payload[len..].fill(0);
        head.len = whole as u32;
        (head.flags, head.payload_crc) = (0, 0); // the link sets these itself
        if checksums && whole > 0 {
            head.flags = FLAG_PAYLOAD_CRC;
            head.payload_crc = crc32c::crc32c(payload);
        }
        head.encode(bytes);
        self.add_run(HEAD_BYTES + whole);
    }

    /// Queues a frame without payload.
    pub fn send(&mut self, head: Head) -> Result<(), Full> {
        self.reserve(0).ok_or(Full)?;
        self.commit(head, 0);
        Ok(())
    }

    /// Queues a frame with this payload, copied.
    ///
    /// # Panics
    /// When the payload is more than a frame may carry.
    pub fn send_copy(&mut self, head: Head, payload: &[u8]) -> Result<(), Full> {
        self.reserve(payload.len()).ok_or(Full)?.copy_from_slice(payload);
        self.commit(head, payload.len());
        Ok(())
    }

    /// Queues a frame whose payload of `len` bytes its owner lends under `token`.
    ///
    /// # Panics
    /// When `len` is more than a frame may carry.
    #[inline]
    pub fn post<O: Owner>(&mut self, mut head: Head, len: usize, token: u64, owner: &O) -> Result<(), Full> {
        assert!(len <= FRAME_BYTES_MAX, "a payload of {len} bytes; the limit is {FRAME_BYTES_MAX}");
        self.make_space(HEAD_BYTES)?;
        let whole = padded(len);
        head.len = whole as u32;
        (head.flags, head.payload_crc) = (0, 0);
        if self.checksums && whole > 0 {
            let mut parts = Parts::new();
            parts.begin(0);
            owner.parts(token, &mut parts);
            parts.end(whole, token);
            head.flags = FLAG_PAYLOAD_CRC;
            head.payload_crc = parts.slices().iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        }
        let at = self.end;
        head.encode(&mut self.buffer.bytes_mut()[at..at + HEAD_BYTES]);
        self.add_run(HEAD_BYTES);
        if whole > 0 {
            self.items.push_back(Item::Lent { token, len: whole, done: 0 });
            self.lent += whole;
        }
        Ok(())
    }

    /// Makes `bytes` of space at the end. Queued bytes are moved to the front only if they fit into the space
    /// of sent bytes. So each byte moves about once, however slowly the peer reads.
    fn make_space(&mut self, bytes: usize) -> Result<(), Full> {
        self.reserved = None;
        if self.items.len() + 2 > TRANSMIT_ITEMS_MAX
            || self.end - self.start + bytes + PAYLOAD_ALIGN > self.buffer.len()
        {
            return Err(Full);
        }
        self.buffer.hold();
        if self.end + bytes > self.buffer.len() {
            if self.end - self.start > self.start {
                return Err(Full);
            }
            // The end stays a multiple of 8, because reservations must be aligned.
            let to = self.start % PAYLOAD_ALIGN;
            self.buffer.bytes_mut().copy_within(self.start..self.end, to);
            (self.start, self.end) = (to, to + self.end - self.start);
        }
        Ok(())
    }

    fn add_run(&mut self, bytes: usize) {
        self.end += bytes;
        match self.items.back_mut() {
            Some(Item::Run(run)) => *run += bytes,
            _ => self.items.push_back(Item::Run(bytes)),
        }
    }

    pub(crate) fn flush<S: Stream, O: Owner>(
        &mut self,
        stream: &mut S,
        owner: &mut O,
    ) -> Result<bool, LinkError> {
        self.reserved = None;
        while !self.items.is_empty() && self.sent < self.may_send {
            let (offered, sent) = {
                let parts = self.gather(owner);
                (parts.byte_count(), stream.send(parts.slices()))
            };
            match sent {
                Ok(Some(sent)) => {
                    self.advance(sent, owner);
                    if sent < offered {
                        return Ok(false);
                    }
                }
                Ok(None) => return Ok(false),
                Err(source) => return Err(LinkError::broken(&self.peer, source)),
            }
        }
        Ok(true)
    }

    fn gather<'a, O: Owner>(&'a self, owner: &'a O) -> Parts<'a> {
        let mut parts = Parts::new();
        let (mut at, mut left) = (self.start, self.may_send - self.sent);
        for item in &self.items {
            let taken = match *item {
                Item::Run(bytes) => {
                    let may = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
                    parts.push(&self.buffer.bytes()[at..at + may]);
                    at += may;
                    may
                }
                // The limit is between two frames, so a payload is sent whole or not at all.
                Item::Lent { token, len, done } => {
                    parts.begin(done);
                    owner.parts(token, &mut parts);
                    parts.end(len, token);
                    len - done
                }
            };
            left = left.saturating_sub(taken as u64);
            if left == 0 || parts.is_full() {
                break;
            }
        }
        parts
    }

    fn advance<O: Owner>(&mut self, mut sent: usize, owner: &mut O) {
        self.sent += sent as u64;
        while sent > 0 {
            let Some(item) = self.items.front_mut() else { break };
            let left = match item {
                Item::Run(bytes) => {
                    let gone = sent.min(*bytes);
                    self.start += gone;
                    *bytes -= gone;
                    sent -= gone;
                    *bytes
                }
                Item::Lent { token, len, done } => {
                    let gone = sent.min(*len - *done);
                    *done += gone;
                    self.lent -= gone;
                    sent -= gone;
                    if *done == *len {
                        owner.sent(*token);
                    }
                    *len - *done
                }
            };
            if left == 0 {
                self.items.pop_front();
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}
