//! A fixed run of bytes that starts on a page. Frames are received into it and replies are written into it.
//! Each buffer is a mapping of its own: untouched pages cost nothing, and released memory returns to the system
//! at once.

use memmap2::MmapMut;

const LINE_BYTES: usize = 64;

/// Zeroed bytes. The buffer never grows. Its memory exists from [`Buffer::hold`] to [`Buffer::release`] and does not
/// move between them.
pub(crate) struct Buffer {
    memory: Option<Memory>,
    bytes: usize,
}

/// The memory of a buffer.
enum Memory {
    Mapped(MmapMut),
    /// From the allocator, where the process can make no more mappings (vm.max_map_count): it may have some left.
    /// The buffer begins so many bytes behind the first one, on a cache line.
    Allocated(Vec<u64>, usize),
}

impl Memory {
    #[cold]
    fn new(bytes: usize) -> Memory {
        MmapMut::map_anon(bytes).map_or_else(
            |error| {
                tracing::warn!(bytes, %error, "no mapping for a link's buffer: it gets memory of the allocator");
                Memory::allocated(bytes)
            },
            Memory::Mapped,
        )
    }

    fn allocated(bytes: usize) -> Memory {
        let words = vec![0u64; (bytes + LINE_BYTES) / 8];
        let first = words.as_ptr().cast::<u8>().align_offset(LINE_BYTES);
        Memory::Allocated(words, first)
    }
}

impl Buffer {
    /// A buffer that has no memory yet. `bytes` must be a multiple of 8.
    pub(crate) fn new(bytes: usize) -> Buffer {
        assert_eq!(bytes % 8, 0);
        Buffer { memory: None, bytes }
    }

    /// Makes sure that the memory exists.
    #[inline]
    pub(crate) fn hold(&mut self) {
        if self.memory.is_none() {
            self.memory = Some(Memory::new(self.bytes));
        }
    }

    /// Returns the memory to the system; its content is lost.
    pub(crate) fn release(&mut self) {
        self.memory = None;
    }

    /// Bytes of memory that the buffer has now.
    pub(crate) fn held(&self) -> usize {
        self.bytes().len()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Its bytes; empty if it has no memory.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Some(Memory::Mapped(memory)) => memory,
            Some(Memory::Allocated(words, first)) => &bytemuck::cast_slice(words)[*first..][..self.bytes],
            None => &[],
        }
    }

    /// Its bytes, to write; empty if it has no memory.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Some(Memory::Mapped(memory)) => memory,
            Some(Memory::Allocated(words, first)) => {
                &mut bytemuck::cast_slice_mut(words)[*first..][..self.bytes]
            }
            None => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_allocator_does_as_well() {
        for bytes in [8, 72, 4096] {
            let mut buffer = Buffer { memory: Some(Memory::allocated(bytes)), bytes };
            buffer.hold();
            assert_eq!((buffer.bytes(), buffer.held()), (&vec![0; bytes][..], bytes));
            assert_eq!(buffer.bytes().as_ptr() as usize % 64, 0);
            buffer.bytes_mut()[bytes - 1] = 7;
            assert_eq!(buffer.bytes()[bytes - 1], 7);
            buffer.release();
            assert_eq!(buffer.held(), 0);
        }
    }

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
