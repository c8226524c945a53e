//! Payloads that the link neither stores nor copies: slices that an owner lends for sending, and memory that an
//! owner provides for receiving.

use crate::head::Head;
use crate::limits::{PARTS_MAX, PAYLOAD_ALIGN};
use std::io::IoSlice;

/// The owner of payloads that a link moves without copying. The link calls these methods from within its own calls.
pub trait Owner {
    /// Lends the payload of the frame posted as `token`: the same slices each time, until [`Owner::sent`].
    /// Their lengths add up to the posted length.
    fn parts<'a>(&'a self, token: u64, parts: &mut Parts<'a>);
    /// The system has taken the last byte of that frame. The owner may use the payload again.
    fn sent(&mut self, token: u64);
    /// Where to write the payload of this frame. The place may be up to 7 bytes shorter than `head.len`; the
    /// rest is padding. It must be the same each time until the frame has been consumed. `None`: the receive
    /// buffer.
    fn place(&mut self, head: &Head) -> Option<&mut [u8]>;
}

/// An owner without payloads: for links whose frames all go through the link's buffers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOwner;

impl Owner for NoOwner {
    fn parts<'a>(&'a self, _: u64, _: &mut Parts<'a>) {}
    fn sent(&mut self, _: u64) {}
    fn place(&mut self, _: &Head) -> Option<&mut [u8]> {
        None
    }
}

/// Up to [`PARTS_MAX`] slices of memory for one system call. Bytes at the start that were already sent are skipped.
pub struct Parts<'a> {
    slices: [IoSlice<'a>; PARTS_MAX],
    len: usize,
    bytes: usize,
    /// Bytes of the next slices that were already sent.
    skip: usize,
    /// Bytes offered since `begin`, skipped ones included.
    offered: usize,
    /// A slice did not fit, so no later slice may be sent before it.
    full: bool,
}

static PADDING: [u8; PAYLOAD_ALIGN] = [0; PAYLOAD_ALIGN];

impl<'a> Parts<'a> {
    /// An empty list.
    pub fn new() -> Parts<'a> {
        Parts { slices: [IoSlice::new(&[]); PARTS_MAX], len: 0, bytes: 0, skip: 0, offered: 0, full: false }
    }

    /// Adds a slice of the payload.
    #[inline]
    pub fn push(&mut self, part: &'a [u8]) {
        self.offered += part.len();
        if self.skip >= part.len() {
            self.skip -= part.len();
            return;
        }
        if self.full || self.len == PARTS_MAX {
            self.full = true;
            return;
        }
        let rest = &part[self.skip..];
        self.skip = 0;
        self.slices[self.len] = IoSlice::new(rest);
        self.len += 1;
        self.bytes += rest.len();
    }

    /// Begins a lent payload of which `skip` bytes were already sent.
    pub(crate) fn begin(&mut self, skip: usize) {
        (self.skip, self.offered) = (skip, 0);
    }

    /// Ends the lent payload, which has `len` bytes on the wire, and adds its padding.
    pub(crate) fn end(&mut self, len: usize, token: u64) {
        let short = len.wrapping_sub(self.offered);
        assert!(
            short < PAYLOAD_ALIGN,
            "the owner of {token:#x} lent {} bytes, but the head says {len}",
            self.offered
        );
        self.push(&PADDING[..short]);
        self.skip = 0;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full || self.len == PARTS_MAX
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.bytes
    }

    /// The slices, in order.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.len]
    }
}

impl Default for Parts<'_> {
    fn default() -> Self {
        Parts::new()
    }
}
