//! One direction of a session: a ring of bytes between one writer and one reader, usually in two processes.
//!
//! ```text
//! positions only grow:   head (read so far)  <=  tail (written so far)  <=  head + ring
//! byte p is at p % ring; the writer never stores into a word (8 bytes) that holds a byte not yet read
//! ```
//! Each side has its own position privately and publishes it to the other. The position in shared memory is
//! only the other side's claim: a side reads it once, checks it, and uses the copy. All memory is atomic words,
//! so a copy has some defined bytes, whatever the other side stores at the same time. Frames are checked in the
//! copy.
//!
//! A side that finds nothing to do sets a flag, executes a fence, and checks again before it sleeps. A side
//! that has published executes a fence and then reads the flag. At least one of the two sees the other's store,
//! so no wake-up is lost. While both are awake, neither makes a system call. The tests explore the
//! interleavings with at most two preemptions (loom).

use super::memory;
use crate::limits::{RING_PUBLISH_BYTES, RING_ROOM_PARTS};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

/// A word that two processes share.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// A full fence: it orders all earlier loads and stores before all later ones, also stores before loads.
    fn fence();

    /// Stores these bytes, relaxed and in any order: as many words as both slices have. Returns the number of words.
    fn store_all(words: &[Self], bytes: &[[u8; 8]]) -> usize
    where
        Self: Sized,
    {
        words.iter().zip(bytes).for_each(|(word, bytes)| word.store(u64::from_le_bytes(*bytes), Relaxed));
        words.len().min(bytes.len())
    }

    /// Loads bytes in the same way.
    fn load_all(words: &[Self], bytes: &mut [[u8; 8]]) -> usize
    where
        Self: Sized,
    {
        let count = words.len().min(bytes.len());
        words.iter().zip(bytes).for_each(|(word, bytes)| *bytes = word.load(Relaxed).to_le_bytes());
        count
    }
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::swap(self, value, order)
    }

    #[inline]
    fn fence() {
        std::sync::atomic::fence(SeqCst);
    }

    #[inline]
    fn store_all(words: &[Self], bytes: &[[u8; 8]]) -> usize {
        memory::store_all(words, bytes)
    }

    #[inline]
    fn load_all(words: &[Self], bytes: &mut [[u8; 8]]) -> usize {
        memory::load_all(words, bytes)
    }
}

/// The words of a direction.
pub(super) struct Ring<'a, W> {
    /// Bytes written since the session began. Only the writer stores it.
    pub(super) tail: &'a W,
    /// Bytes read since the session began. Only the reader stores it.
    pub(super) head: &'a W,
    /// Not 0: the reader wants to be woken when there are bytes.
    pub(super) reader_sleeps: &'a W,
    /// Not 0: the writer wants to be woken when there is space.
    pub(super) writer_waits: &'a W,
    /// The bytes, little-endian in each word. The number of words is a power of two.
    pub(super) data: &'a [W],
}

impl<W: Word> Ring<'_, W> {
    pub(super) fn byte_count(&self) -> usize {
        self.data.len() * 8
    }

    /// A waiting writer is woken when this many bytes are free.
    pub(super) fn room_bytes(&self) -> usize {
        self.byte_count() / RING_ROOM_PARTS
    }

    /// The reader is about to sleep. A [`Word::fence`] and another check must follow.
    pub(super) fn arm_reader(&self) {
        self.reader_sleeps.store(1, Relaxed);
    }

    /// The reader is awake again, or did not sleep.
    pub(super) fn disarm_reader(&self) {
        self.reader_sleeps.store(0, Relaxed);
    }

    /// As [`Ring::arm_reader`], for a writer that waits for space.
    pub(super) fn arm_writer(&self) {
        self.writer_waits.store(1, Relaxed);
    }

    /// As [`Ring::disarm_reader`], for the writer.
    pub(super) fn disarm_writer(&self) {
        self.writer_waits.store(0, Relaxed);
    }
}

/// The other side published an impossible position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The writer's position.
    #[error(
        "the ring's write position {tail} is impossible after {seen}, {read} of which were read \
         (the ring has {ring} bytes): the other side is broken or hostile"
    )]
    Tail {
        /// The published position.
        tail: u64,
        /// The position before it.
        seen: u64,
        /// Our read position.
        read: u64,
        /// Bytes of the ring.
        ring: usize,
    },
    /// The reader's position.
    #[error(
        "the ring's read position {head} is impossible after {seen}, with {written} written: the other side is broken or hostile"
    )]
    Head {
        /// The published position.
        head: u64,
        /// The position before it.
        seen: u64,
        /// Our write position.
        written: u64,
    },
}

/// The writing side's own state.
#[derive(Debug, Default)]
pub(super) struct RingWriter {
    tail: u64,
    published: u64,
    /// The reader's position as last seen and checked.
    head: u64,
    /// The bytes of the word at `tail` that are already written.
    word: [u8; 8],
}

impl RingWriter {
    /// Bytes written, published or not.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The number of bytes that can be written now. Reads the reader's position again only if fewer than
    /// `wanted` bytes are known to be free.
    #[inline]
    pub(super) fn room<W: Word>(&mut self, ring: &Ring<'_, W>, wanted: usize) -> Result<usize, RingError> {
        let known = self.known_room(ring);
        if known >= wanted {
            return Ok(known);
        }
        let head = ring.head.load(Acquire);
        // Only published bytes can have been read.
        if head < self.head || head > self.published {
            return Err(RingError::Head { head, seen: self.head, written: self.published });
        }
        self.head = head;
        Ok(self.known_room(ring))
    }

    fn known_room<W: Word>(&self, ring: &Ring<'_, W>) -> usize {
        // The writer must not store into a word with an unread byte.
        ring.byte_count() - (self.tail - (self.head & !7)) as usize
    }

    /// Whether nothing is left to read.
    pub(super) fn is_drained<W: Word>(&mut self, ring: &Ring<'_, W>) -> Result<bool, RingError> {
        self.room(ring, usize::MAX)?;
        Ok(self.head == self.tail)
    }

    /// Appends bytes. The reader sees them after [`RingWriter::publish`].
    ///
    /// # Panics
    /// When there are more bytes than the last [`RingWriter::room`] returned.
    #[inline]
    pub(super) fn put<W: Word>(&mut self, ring: &Ring<'_, W>, mut bytes: &[u8]) {
        assert!(bytes.len() <= self.known_room(ring), "{} bytes where there is no room", bytes.len());
        let mask = ring.byte_count() - 1;
        while !bytes.is_empty() {
            let at = self.tail as usize & mask;
            let done = at % 8;
            let copied = if done == 0 && bytes.len() >= 8 {
                8 * W::store_all(&ring.data[at / 8..], bytes.as_chunks::<8>().0)
            } else {
                let count = bytes.len().min(8 - done);
                self.word[done..done + count].copy_from_slice(&bytes[..count]);
                ring.data[at / 8].store(u64::from_le_bytes(self.word), Relaxed);
                count
            };
            self.tail += copied as u64;
            bytes = &bytes[copied..];
        }
    }

    /// Whether enough is unpublished that the reader should begin.
    pub(super) fn is_worth_publishing(&self) -> bool {
        self.tail - self.published >= RING_PUBLISH_BYTES as u64
    }

    /// Publishes the written bytes. `true`: the reader sleeps and must be woken now.
    #[inline]
    #[must_use]
    pub(super) fn publish<W: Word>(&mut self, ring: &Ring<'_, W>) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        ring.tail.store(self.tail, Release);
        W::fence();
        ring.reader_sleeps.load(Relaxed) != 0 && ring.reader_sleeps.swap(0, AcqRel) != 0
    }
}

/// The reading side's own state.
#[derive(Debug, Default)]
pub(super) struct RingReader {
    head: u64,
    /// The writer's position as last seen and checked.
    tail: u64,
    released: u64,
}

impl RingReader {
    /// The writer's position as last seen.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The number of bytes that can be read, after loading the writer's position.
    #[inline]
    pub(super) fn look<W: Word>(&mut self, ring: &Ring<'_, W>) -> Result<usize, RingError> {
        let tail = ring.tail.load(Acquire);
        // The writer cannot have written more than the free space.
        if tail < self.tail || tail - self.released > ring.byte_count() as u64 {
            let (seen, read, ring) = (self.tail, self.released, ring.byte_count());
            return Err(RingError::Tail { tail, seen, read, ring });
        }
        self.tail = tail;
        Ok((tail - self.head) as usize)
    }

    /// Copies the next bytes out of the ring.
    ///
    /// # Panics
    /// When there are fewer bytes than the last [`RingReader::look`] returned.
    #[inline]
    pub(super) fn take<W: Word>(&mut self, ring: &Ring<'_, W>, mut out: &mut [u8]) {
        assert!(out.len() as u64 <= self.tail - self.head, "{} bytes that have not come", out.len());
        let mask = ring.byte_count() - 1;
        while !out.is_empty() {
            let at = self.head as usize & mask;
            let done = at % 8;
            let copied = if done == 0 && out.len() >= 8 {
                8 * W::load_all(&ring.data[at / 8..], out.as_chunks_mut::<8>().0)
            } else {
                let count = out.len().min(8 - done);
                let word = ring.data[at / 8].load(Relaxed).to_le_bytes();
                out[..count].copy_from_slice(&word[done..done + count]);
                count
            };
            self.head += copied as u64;
            out = &mut out[copied..];
        }
    }

    /// Releases the bytes that were read to the writer. `true`: the writer waits for space, enough is free, and
    /// it must be woken now.
    #[inline]
    #[must_use]
    pub(super) fn release<W: Word>(&mut self, ring: &Ring<'_, W>) -> bool {
        self.released = self.head;
        ring.head.store(self.head, Release);
        W::fence();
        let room = ring.byte_count() - (self.tail - self.head) as usize;
        ring.writer_waits.load(Relaxed) != 0
            && room >= ring.room_bytes()
            && ring.writer_waits.swap(0, AcqRel) != 0
    }
}
