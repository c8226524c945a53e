//! A fixed run of bytes that starts on a page. Frames are received into it and replies are written into it.
//! Each buffer is a mapping of its own: untouched pages cost nothing, and released memory returns to the system
//! at once.

use memmap2::MmapMut;

/// Zeroed bytes. The buffer never grows. Its memory exists from [`Buffer::hold`] to [`Buffer::release`] and does not
/// move between them.
pub(crate) struct Buffer {
    memory: Option<MmapMut>,
    bytes: usize,
}

impl Buffer {
    /// A buffer that has no memory yet. `bytes` must be a multiple of 8.
    pub(crate) fn new(bytes: usize) -> Buffer {
        assert_eq!(bytes % 8, 0);
        Buffer { memory: None, bytes }
    }

    /// Makes sure that the memory exists.
    ///
    /// When the system has no memory. Any allocation would end the process then.
    /// When the system has no memory; any allocation would end the process then.
    #[inline]
    pub(crate) fn hold(&mut self) {
        if self.memory.is_none() {
            let memory = MmapMut::map_anon(self.bytes);
            self.memory =
                Some(memory.unwrap_or_else(|error| panic!("no memory for a link's buffer: {error}")));
        }
    }

    /// Returns the memory to the system; its content is lost.
    pub(crate) fn release(&mut self) {
        self.memory = None;
    }

    /// Bytes of memory that the buffer has now.
    pub(crate) fn held(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Its bytes; empty if it has no memory.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }

    /// Its bytes, to write; empty if it has no memory.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_line_and_comes_back_zeroed() {
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
                assert_eq!((buffer.held(), buffer.bytes()), (0, &[][..]));
            }
        }
    }
}
