//! Who owns a payload that the link neither stores nor copies: lent parts on the way out, places on the way in.

use crate::head::Head;
use crate::limits::{PARTS_MAX, PAYLOAD_ALIGN};
use std::io::IoSlice;

/// Owns the payloads that a link moves without copying. All three are called from within the link's own calls.
pub trait Owner {
    /// Lends the payload of the frame posted as `token`: the same parts each time, until [`Owner::sent`].
    /// Their lengths add up to what was posted.
    fn parts<'a>(&'a self, token: u64, parts: &mut Parts<'a>);
    /// The last byte of that frame has gone to the system; the payload is the owner's again.
    fn sent(&mut self, token: u64);
    /// Where the payload of this frame is to land: up to 7 bytes shorter than `head.len`, the rest being padding.
    /// The same place each time until the frame has been consumed. `None`: in the receive buffer.
    fn place(&mut self, head: &Head) -> Option<&mut [u8]>;
}

/// Owns nothing: for links whose frames all go through the link's buffers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOwner;

impl Owner for NoOwner {
    fn parts<'a>(&'a self, _: u64, _: &mut Parts<'a>) {}
    fn sent(&mut self, _: u64) {}
    fn place(&mut self, _: &Head) -> Option<&mut [u8]> {
        None
    }
}

/// Up to [`PARTS_MAX`] pieces of memory for one system call, of which a given number of bytes is skipped.
pub struct Parts<'a> {
    slices: [IoSlice<'a>; PARTS_MAX],
    len: usize,
    bytes: usize,
    /// Bytes already sent of what comes next.
    skip: usize,
    /// Bytes offered since `begin`, skipped ones included.
    offered: usize,
    /// Something did not fit: what comes after it must not go out before it.
    full: bool,
}

static PADDING: [u8; PAYLOAD_ALIGN] = [0; PAYLOAD_ALIGN];

impl<'a> Parts<'a> {
    /// None yet.
    pub fn new() -> Parts<'a> {
        Parts { slices: [IoSlice::new(&[]); PARTS_MAX], len: 0, bytes: 0, skip: 0, offered: 0, full: false }
    }

    /// Adds a piece of the payload.
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

    /// A lent payload begins, `skip` bytes of which have gone.
    pub(crate) fn begin(&mut self, skip: usize) {
        (self.skip, self.offered) = (skip, 0);
    }

    /// The lent payload, of `len` bytes on the wire, ends: adds its padding.
    pub(crate) fn end(&mut self, len: usize, token: u64) {
        let short = len.wrapping_sub(self.offered);
        assert!(
            short < PAYLOAD_ALIGN,
            "the owner of {token:#x} lent {} bytes, the head says {len}",
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

    /// The pieces, in order.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.len]
    }
}

impl Default for Parts<'_> {
    fn default() -> Self {
        Parts::new()
    }
}
