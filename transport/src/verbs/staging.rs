//! The memory that sends go from. A space is filled and then posted; what is posted is the device's until its completion.

use super::memory::{RegionBlock, Regions};
use super::queues::Queues;
use super::window::{Credit, Message, Outgoing};
use crate::limits::{VERBS_MESSAGE_BYTES, VERBS_RING_BYTES};
use std::io;

/// A ring of bytes on their way out.
///
/// A [`MessageSpace`] of it is the caller's until it is posted, and nobody can touch what is posted: posting takes it away.
/// ```
/// use gannet_transport::verbs::{Credit, Staging};
/// let mut staging = Staging::new()?;
/// let mut space = staging.space().expect("it is empty");
/// let filled = space.fill(b"a frame");
/// space.post(Credit::default());
/// assert_eq!(filled, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
/// ```compile_fail,E0382
/// use gannet_transport::verbs::{Credit, Staging};
/// let mut staging = Staging::new()?;
/// let mut space = staging.space().expect("it is empty");
/// let filled = space.fill(b"a frame");
/// space.post(Credit::default());
/// space.fill(b"another"); // the device may be reading it: it is the caller's no longer
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Staging {
    piece: RegionBlock,
    pub(super) window: Outgoing,
}

impl Staging {
    /// In memory of its own.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> io::Result<Staging> {
        let piece = Regions::new(VERBS_RING_BYTES, VERBS_RING_BYTES)?.take();
        Ok(Staging::within(piece.ok_or(io::ErrorKind::OutOfMemory)?, Queues::WANTED))
    }

    pub(super) fn within(piece: RegionBlock, queues: Queues) -> Staging {
        Staging { piece, window: Outgoing::new(queues) }
    }

    pub(super) fn addr(&self) -> usize {
        self.piece.addr()
    }

    /// Room for the bytes of one message; `None`: all is on its way, or the other side has no room.
    pub fn space(&mut self) -> Option<MessageSpace<'_>> {
        let (at, most) = self.window.space();
        let most = most.min(VERBS_MESSAGE_BYTES);
        (most > 0).then_some(MessageSpace { staging: self, at, most, bytes: 0 })
    }
}

/// Room for the bytes of one message.
pub struct MessageSpace<'a> {
    staging: &'a mut Staging,
    at: usize,
    most: usize,
    bytes: usize,
}

impl MessageSpace<'_> {
    /// Puts bytes behind those that it has: as many as there is room for, which it returns.
    pub fn fill(&mut self, from: &[u8]) -> usize {
        let taken = from.len().min(self.most - self.bytes);
        self.staging.piece.copy_in(self.at + self.bytes, &from[..taken]);
        self.bytes += taken;
        taken
    }

    /// Bytes that it takes still.
    pub fn room(&self) -> usize {
        self.most - self.bytes
    }

    /// Gives what was filled in (there must be something) to the queue, with what goes back to the other side: it cannot
    /// be touched any more.
    pub fn post(self, credit: Credit) -> Message {
        self.staging.window.post(self.bytes, credit)
    }
}
