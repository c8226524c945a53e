//! The memory from which sends are made. A space is filled and then posted. Posted memory belongs to the device
//! until its completion.

use super::window::{Credit, Message, Outgoing};
use crate::limits::{VERBS_MESSAGE_BYTES, VERBS_RING_BYTES};
use crate::verbs::resources::memory::{RegionBlock, Regions};
use crate::verbs::resources::queues::Queues;
use std::io;

/// A ring of bytes to be sent.
///
/// A [`MessageSpace`] of it belongs to the caller until it is posted. Posting consumes the value, so the caller
/// cannot access posted bytes.
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
/// space.fill(b"another"); // does not compile: the device may be reading the space
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Staging {
    block: RegionBlock,
    pub(crate) window: Outgoing,
}

impl Staging {
    /// A staging ring with its own memory.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> io::Result<Staging> {
        let block = Regions::new(VERBS_RING_BYTES, VERBS_RING_BYTES)?.take();
        Ok(Staging::within(block.ok_or(io::ErrorKind::OutOfMemory)?, Queues::WANTED))
    }

    pub(crate) fn within(block: RegionBlock, queues: Queues) -> Staging {
        Staging { block, window: Outgoing::new(queues) }
    }

    pub(crate) fn addr(&self) -> usize {
        self.block.addr()
    }

    /// Space for the bytes of one message; `None`: all of it is in flight, or the peer has no space.
    pub fn space(&mut self) -> Option<MessageSpace<'_>> {
        let (at, most) = self.window.space();
        let most = most.min(VERBS_MESSAGE_BYTES);
        (most > 0).then_some(MessageSpace { staging: self, at, most, bytes: 0 })
    }
}

/// Space for the bytes of one message.
pub struct MessageSpace<'a> {
    staging: &'a mut Staging,
    at: usize,
    most: usize,
    bytes: usize,
}

impl MessageSpace<'_> {
    /// Appends bytes, as many as fit. Returns how many.
    pub fn fill(&mut self, from: &[u8]) -> usize {
        let taken = from.len().min(self.most - self.bytes);
        self.staging.block.copy_in(self.at + self.bytes, &from[..taken]);
        self.bytes += taken;
        taken
    }

    /// How many more bytes fit.
    pub fn room(&self) -> usize {
        self.most - self.bytes
    }

    /// Makes a message of the bytes (there must be some) with the credit for the peer. The caller cannot access
    /// the bytes any more.
    pub fn post(self, credit: Credit) -> Message {
        self.staging.window.post(self.bytes, credit)
    }
}
