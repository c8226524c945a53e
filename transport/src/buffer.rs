//! A fixed run of bytes that starts on a cache line: what frames are received into and replies written into.

use bytemuck::{cast_slice, cast_slice_mut};

const LINE_WORDS: usize = 8;

/// Zeroed bytes at a 64-byte-aligned address, never moved and never grown.
pub(crate) struct Buffer {
    words: Vec<u64>,
    first: usize,
    bytes: usize,
}

impl Buffer {
    /// `bytes` must be a multiple of 8.
    pub(crate) fn new(bytes: usize) -> Buffer {
        assert_eq!(bytes % 8, 0);
        let words = vec![0u64; bytes / 8 + LINE_WORDS];
        let past = (words.as_ptr() as usize / 8) % LINE_WORDS;
        Buffer { words, first: (LINE_WORDS - past) % LINE_WORDS, bytes }
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
            let buffer = Buffer::new(bytes);
            assert_eq!(buffer.bytes().as_ptr() as usize % 64, 0);
            assert_eq!(buffer.bytes().len(), bytes);
        }
    }
}
