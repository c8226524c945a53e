//! A fixed run of bytes that starts on a cache line: what frames are received into and replies written into.

use bytemuck::{cast_slice, cast_slice_mut};

const LINE_WORDS: usize = 8;

/// Zeroed bytes at a 64-byte-aligned address, never grown, and moved only by [`Buffer::release`]: memory is there from
/// [`Buffer::hold`] until then.
pub(crate) struct Buffer {
    words: Vec<u64>,
    first: usize,
    bytes: usize,
}

impl Buffer {
    /// `bytes` must be a multiple of 8. No memory yet.
    pub(crate) fn new(bytes: usize) -> Buffer {
        assert_eq!(bytes % 8, 0);
        Buffer { words: Vec::new(), first: 0, bytes }
    }

    /// Makes sure that the memory is there.
    #[inline]
    pub(crate) fn hold(&mut self) {
        if self.words.is_empty() {
            self.words = vec![0u64; self.bytes / 8 + LINE_WORDS];
            let past = (self.words.as_ptr() as usize / 8) % LINE_WORDS;
            self.first = (LINE_WORDS - past) % LINE_WORDS;
        }
    }

    /// Gives the memory back; what stood there is lost.
    pub(crate) fn release(&mut self) {
        (self.words, self.first) = (Vec::new(), 0);
    }

    /// Bytes of memory that it has.
    pub(crate) fn held(&self) -> usize {
        self.words.len() * 8
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &cast_slice(&self.words)[self.first * 8..self.first * 8 + self.bytes]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut cast_slice_mut(&mut self.words)[self.first * 8..self.first * 8 + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_line() {
        for bytes in [8, 64, 4096, 1 << 20] {
            let mut buffer = Buffer::new(bytes);
            assert_eq!((buffer.len(), buffer.held()), (bytes, 0));
            for _ in 0..2 {
                buffer.hold();
                assert_eq!(buffer.bytes().as_ptr() as usize % 64, 0);
                assert_eq!(buffer.bytes(), vec![0; bytes]);
                assert!(buffer.held() >= bytes);
                buffer.bytes_mut().fill(7);
                buffer.release();
                assert_eq!(buffer.held(), 0);
            }
        }
    }
}
