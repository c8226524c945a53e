//! The receive half of a link: bytes in, whole and checked frames out, in place.
//!
//! ```text
//! buffer:  | consumed | head, payload | head, payload | head, pa ... | free |
//!                     ^ start: the front frame                       ^ end
//! ```
//! Frames are multiples of 8 bytes, the buffer starts on a cache line, and bytes are moved only to its front.
//! So every payload is 8-aligned. If a payload's owner has a place for it, the payload bypasses the buffer,
//! except for the bytes that came with its head.

use crate::buffer::Buffer;
use crate::error::{HeadError, LinkError};
use crate::head::Head;
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES, PAYLOAD_ALIGN, RECEIVE_BYTES, RECEIVE_TAIL_MIN};
use crate::owner::Owner;
use crate::stream::Stream;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

/// A received frame, borrowed from the link.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Its head.
    pub head: Head,
    /// Its payload, 8-aligned; empty when the payload went to its owner's place.
    pub payload: &'a [u8],
}

/// The front frame. Its head has arrived and been checked.
struct Front {
    head: Head,
    /// `Some(bytes so far)`: the payload goes to its owner's place, and its head has left the buffer.
    placed: Option<usize>,
    /// The payload is whole and checked.
    checked: bool,
}

/// The result of a [`crate::Link::fill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// This many bytes.
    Bytes(usize),
    /// Nothing is there now: wait for an event.
    Empty,
    /// The receive buffer holds frames that have not been consumed: consume them first.
    Held,
}

/// The receive half of a [`crate::Link`].
pub struct Receive {
    buffer: Buffer,
    start: usize,
    end: usize,
    front: Option<Front>,
    /// The padding behind a placed payload.
    padding: [u8; PAYLOAD_ALIGN],
    peer: Arc<str>,
}

impl Receive {
    pub(crate) fn new(peer: Arc<str>) -> Receive {
        let buffer = Buffer::new(RECEIVE_BYTES);
        Receive { buffer, start: 0, end: 0, front: None, padding: [0; PAYLOAD_ALIGN], peer }
    }

    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Whether only part of a frame has come. A peer that stays in this state for too long has stalled.
    pub fn is_partial(&self) -> bool {
        self.front.is_some() || self.start != self.end
    }

    /// Bytes received and not consumed, without placed payloads.
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The number of waiting frames, complete or not, including the front one, as far as their heads are known.
    /// It counts up to `most`.
    pub fn count_frames(&self, most: usize) -> usize {
        let (mut at, mut frames) = (self.start, 0);
        while frames < most && at < self.end {
            frames += 1;
            let len = self.buffer.bytes()[at..self.end].get(8..12);
            let Some(&[a, b, c, d]) = len else { break };
            at += HEAD_BYTES + (u32::from_le_bytes([a, b, c, d]) as usize).min(FRAME_BYTES_MAX);
        }
        frames
    }

    /// Frees the buffer's memory if it is empty. The next bytes allocate it again.
    pub(crate) fn rest(&mut self) {
        if !self.is_partial() {
            (self.start, self.end) = (0, 0);
            self.buffer.release();
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// The frame at the front if it is whole, without consuming it. An error means that the peer sent something
    /// that is not a frame of this protocol: drop the link.
    #[inline]
    pub fn peek<O: Owner>(&mut self, owner: &mut O) -> Result<Option<Frame<'_>>, LinkError> {
        match self.ready(owner) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(self.front.as_ref().map(|front| {
                let from = self.start + HEAD_BYTES;
                let payload = match front.placed {
                    None => &self.buffer.bytes()[from..from + front.head.len as usize],
                    Some(_) => &[],
                };
                Frame { head: front.head, payload }
            })),
            Err(source) => Err(LinkError::Frame { peer: self.peer.clone(), source }),
        }
    }

    /// Consumes the front frame and frees its bytes.
    ///
    /// # Panics
    /// When no whole frame was peeked at.
    #[inline]
    pub fn consume(&mut self) {
        let front = self.front.take().filter(|front| front.checked);
        let front = front.expect("consume follows a peek that gave a frame");
        if front.placed.is_none() {
            self.start += HEAD_BYTES + front.head.len as usize;
        }
    }

    fn ready<O: Owner>(&mut self, owner: &mut O) -> Result<bool, HeadError> {
        if self.front.is_none() {
            if self.end - self.start < HEAD_BYTES {
                // A peer that speaks another protocol may have sent all its bytes already.
                if self.start != self.end {
                    Head::check_magic(&self.buffer.bytes()[self.start..self.end])?;
                }
                return Ok(false);
            }
            let head = Head::decode(&self.buffer.bytes()[self.start..self.start + HEAD_BYTES])?;
            let placed = self.begin_place(&head, owner);
            self.front = Some(Front { head, placed, checked: false });
        }
        let Some(front) = &mut self.front else { return Ok(false) };
        if front.checked {
            return Ok(true);
        }
        let len = front.head.len as usize;
        match front.placed {
            None => {
                let from = self.start + HEAD_BYTES;
                if self.end - from < len {
                    return Ok(false);
                }
                front.head.check_payload(&[&self.buffer.bytes()[from..from + len]])?;
            }
            Some(done) => {
                if done < len {
                    return Ok(false);
                }
                let place = place_of_frame(owner, &front.head);
                let short = len - place.len();
                front.head.check_payload(&[place, &self.padding[..short]])?;
            }
        }
        front.checked = true;
        Ok(true)
    }

    /// Requests a place from the owner. If there is one, takes the head and the payload's first bytes out of
    /// the buffer.
    fn begin_place<O: Owner>(&mut self, head: &Head, owner: &mut O) -> Option<usize> {
        let len = head.len as usize;
        if len == 0 {
            return None;
        }
        let place = owner.place(head)?;
        check_place(place.len(), head);
        let from = self.start + HEAD_BYTES;
        let here = (self.end - from).min(len);
        let bytes = &self.buffer.bytes()[from..from + here];
        let (rows, padding) = bytes.split_at(here.min(place.len()));
        place[..rows.len()].copy_from_slice(rows);
        self.padding[..padding.len()].copy_from_slice(padding);
        self.start = from + here;
        Some(here)
    }

    /// Receives once. Returns how many bytes came, and how many were requested.
    pub(crate) fn fill<S: Stream, O: Owner>(
        &mut self,
        stream: &mut S,
        owner: &mut O,
    ) -> Result<(Filled, usize), LinkError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.buffer.hold();
        }
        let moved = match &mut self.front {
            Some(Front { head, placed: Some(done), checked: false }) if *done < head.len as usize => {
                // At most the next head is received with it. More bytes of the next payload would have to be copied.
                debug_assert_eq!(self.end, 0);
                let place = place_of_frame(owner, head);
                let (len, rows) = (head.len as usize, place.len());
                let padding = &mut self.padding[done.saturating_sub(rows)..len - rows];
                let requested = len - *done + HEAD_BYTES;
                let next = &mut self.buffer.bytes_mut()[..HEAD_BYTES];
                let mut slices = [
                    IoSliceMut::new(&mut place[(*done).min(rows)..]),
                    IoSliceMut::new(padding),
                    IoSliceMut::new(next),
                ];
                stream.recv(&mut slices).map(|got| {
                    let bytes = got.unwrap_or(0);
                    let payload = bytes.min(len - *done);
                    *done += payload;
                    self.end += bytes - payload;
                    (got, requested)
                })
            }
            front => {
                let pending = self.end - self.start;
                let wanted = front.as_ref().map_or(HEAD_BYTES, |front| HEAD_BYTES + front.head.len as usize);
                let tail = self.buffer.len() - self.end;
                if self.start > 0 && (tail < RECEIVE_TAIL_MIN || pending + tail < wanted) {
                    self.buffer.bytes_mut().copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, pending);
                }
                let end = self.end;
                let free = &mut self.buffer.bytes_mut()[end..];
                if free.is_empty() {
                    return Ok((Filled::Held, 0));
                }
                let requested = free.len();
                stream.recv(&mut [IoSliceMut::new(free)]).map(|got| {
                    self.end += got.unwrap_or(0);
                    (got, requested)
                })
            }
        };
        match moved {
            Ok((Some(bytes), requested)) => Ok((Filled::Bytes(bytes), requested)),
            Ok((None, requested)) => Ok((Filled::Empty, requested)),
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Err(LinkError::Closed { peer: self.peer.clone() })
            }
            Err(source) => Err(LinkError::broken(&self.peer, source)),
        }
    }
}

fn place_of_frame<'o, O: Owner>(owner: &'o mut O, head: &Head) -> &'o mut [u8] {
    let place = owner.place(head).expect("an owner gives a frame's place until it is consumed");
    check_place(place.len(), head);
    place
}

fn check_place(bytes: usize, head: &Head) {
    let len = head.len as usize;
    assert!(bytes <= len && len - bytes < PAYLOAD_ALIGN, "a place of {bytes} bytes for a payload of {len}");
}
