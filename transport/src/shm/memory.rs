//! The memory of a session's two rings: one memfd that both sides map. Seals keep either side from shrinking it.
//!
//! The peer may store anything there at any time. So this process sees the memory only as a slice of atomic
//! words, for which every bit pattern is a value and every interleaving is defined.
#![allow(unsafe_code)]

use super::ring::Ring;
use crate::limits::{RING_BYTES_LIMITS, RING_STEP_BYTES};
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes before the rings. The shared words of both directions take the first KiB.
const HEADER_BYTES: usize = 4096;
/// Words from one shared word to the next: two cache lines, because processors fetch lines in pairs.
const STRIDE: usize = 16;
/// Shared words of a direction.
const WORDS: usize = 4;

const SEALS: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// The direction of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToWorker,
}

/// Both rings of a session, mapped.
pub(super) struct SharedMemory {
    map: MmapRaw,
    ring_bytes: usize,
}

impl SharedMemory {
    /// Makes rings of this size, and the file for the peer. Pages are allocated when bytes are first written there.
    pub(super) fn create(ring_bytes: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        let file = rustix::fs::memfd_create("gannet-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, total_bytes(ring_bytes) as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((SharedMemory::open(&file, ring_bytes as u64)?, file))
    }

    /// Maps the rings in a file that the peer made, after checking its seals and its size.
    pub(super) fn open<Fd: AsFd>(file: Fd, ring_bytes: u64) -> io::Result<SharedMemory> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let fits = usize::try_from(ring_bytes).ok().filter(|bytes| RING_BYTES_LIMITS.contains(bytes));
        let Some(ring_bytes) = fits.filter(|bytes| bytes.is_power_of_two()) else {
            return wrong(format!("rings of {ring_bytes} bytes"));
        };
        let seals = match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) => seals,
            Err(Errno::INVAL) => return wrong("rings in a file that cannot be sealed".into()),
            Err(error) => return Err(error.into()),
        };
        if !seals.contains(SEALS) {
            return wrong("rings in a file that is not sealed: it could shrink while it is read".into());
        }
        let (size, wanted) = (rustix::fs::fstat(&file)?.st_size, total_bytes(ring_bytes));
        if u64::try_from(size) != Ok(wanted as u64) {
            return wrong(format!("rings in a file of {size} bytes, but it must have {wanted}"));
        }
        let map = MmapOptions::new().len(wanted).map_raw(file.as_fd().as_raw_fd())?;
        Ok(SharedMemory { map, ring_bytes })
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The words of a direction.
    #[inline]
    pub(super) fn ring(&self, direction: Direction) -> Ring<'_, AtomicU64> {
        let words = self.words();
        let (first, data) = match direction {
            Direction::ToServer => (0, HEADER_BYTES),
            Direction::ToWorker => (WORDS * STRIDE, HEADER_BYTES + self.ring_bytes),
        };
        let word = |number: usize| &words[first + number * STRIDE];
        Ring {
            tail: word(0),
            head: word(1),
            reader_sleeps: word(2),
            writer_waits: word(3),
            data: &words[data / 8..(data + self.ring_bytes) / 8],
        }
    }

    /// All words. Another mapping or process may write there too. Through atomics, every bit pattern is a value
    /// and no access is a race. This slice is the only access to the memory.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, of this many bytes, readable and writable, and lives as long as `self`.
        // Its file is sealed against shrinking, so every page of it can be touched.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), total_bytes(self.ring_bytes) / 8) }
    }

    /// Allocates the pages of step `step` ([`RING_STEP_BYTES`] each) of a ring before its first write. If the
    /// system has no memory, this returns an error now instead of a signal later.
    pub(super) fn take_step(&self, direction: Direction, step: usize) -> io::Result<()> {
        let from = self.offset(direction) + step * RING_STEP_BYTES;
        match self.map.advise_range(Advice::PopulateWrite, from, RING_STEP_BYTES) {
            // Linux before 5.14: pages are allocated when they are touched.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            taken => taken,
        }
    }

    /// Returns the pages of a ring to the system. The writer calls it when the reader has read everything in
    /// the ring.
    pub(super) fn give_back(&self, direction: Direction) -> io::Result<()> {
        let from = self.offset(direction);
        // SAFETY: afterwards the words there are 0, which is a valid value for both sides.
        unsafe { self.map.unchecked_advise_range(UncheckedAdvice::Remove, from, self.ring_bytes) }
    }

    fn offset(&self, direction: Direction) -> usize {
        match direction {
            Direction::ToServer => HEADER_BYTES,
            Direction::ToWorker => HEADER_BYTES + self.ring_bytes,
        }
    }
}

/// Copies 64 bytes; one side of the copy is atomics. The compiler sees assembly that reads and writes these
/// bytes, and assumes nothing else. So for the compiler these are relaxed loads or stores of the atomics.
///
/// # Safety
/// 64 bytes may be read at `from`, and written at `to` (through atomics, or by this thread alone).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_line(from: *const u8, to: *mut u8) {
    // SAFETY: the caller promises both. The assembly uses no other memory, no stack, and no flags.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            from = in(reg) from, to = in(reg) to,
            options(nostack, preserves_flags)
        );
    }
}

/// Stores bytes into words that another process may be reading: as many words as both slices have.
pub(super) fn store_all(words: &[AtomicU64], bytes: &[[u8; 8]]) -> usize {
    let count = words.len().min(bytes.len());
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    while done + 8 <= count {
        // SAFETY: eight of the words and eight of the bytes' groups, all in bounds (checked).
        unsafe { copy_line(bytes.as_ptr().add(done).cast(), words.as_ptr().add(done).cast_mut().cast()) };
        done += 8;
    }
    for (word, bytes) in words.iter().zip(bytes).take(count).skip(done) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    count
}

/// Loads words that another process may be writing: as many words as both slices have.
pub(super) fn load_all(words: &[AtomicU64], bytes: &mut [[u8; 8]]) -> usize {
    let count = words.len().min(bytes.len());
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    while done + 8 <= count {
        // SAFETY: as in `store_all`, but the words are read and the bytes are written.
        unsafe { copy_line(words.as_ptr().add(done).cast(), bytes.as_mut_ptr().add(done).cast()) };
        done += 8;
    }
    for (word, bytes) in words.iter().zip(bytes).take(count).skip(done) {
        *bytes = word.load(Relaxed).to_le_bytes();
    }
    count
}

fn total_bytes(ring_bytes: usize) -> usize {
    HEADER_BYTES + 2 * ring_bytes
}

const _: () = assert!(2 * WORDS * STRIDE * 8 <= HEADER_BYTES);

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("ring_bytes", &self.ring_bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RING_BYTES;

    #[test]
    fn pages_come_in_steps_and_go_back_and_the_file_keeps_its_size() {
        let (memory, file) = SharedMemory::create(RING_BYTES).unwrap();
        let kib = || rustix::fs::fstat(&file).unwrap().st_blocks / 2;
        let step = RING_STEP_BYTES as i64 / 1024;
        assert_eq!(kib(), 0, "nothing was touched yet");
        let last = RING_BYTES / RING_STEP_BYTES - 1;
        for (taken, number) in [0, last].into_iter().enumerate() {
            memory.take_step(Direction::ToWorker, number).unwrap();
            assert_eq!(kib(), step * (taken as i64 + 1));
        }
        memory.take_step(Direction::ToServer, last).unwrap();
        let (there, back) = (memory.ring(Direction::ToWorker), memory.ring(Direction::ToServer));
        there.data[0].store(7, Relaxed);
        back.data[RING_BYTES / 8 - 1].store(9, Relaxed);
        memory.give_back(Direction::ToWorker).unwrap();
        assert_eq!(
            (kib(), there.data[0].load(Relaxed), back.data[RING_BYTES / 8 - 1].load(Relaxed)),
            (step, 0, 9)
        );
        for bytes in [0, total_bytes(RING_BYTES) as u64 + 1] {
            assert_eq!(rustix::fs::ftruncate(&file, bytes), Err(Errno::PERM));
        }
    }

    #[test]
    fn no_two_words_share_a_line_and_no_two_rings_a_byte() {
        let (memory, _) = SharedMemory::create(RING_BYTES).unwrap();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for direction in [Direction::ToServer, Direction::ToWorker] {
            let Ring { tail, head, reader_sleeps, writer_waits, data } = memory.ring(direction);
            let at = |word: &AtomicU64| std::ptr::from_ref(word).addr();
            ranges.extend([tail, head, reader_sleeps, writer_waits].map(|word| (at(word), at(word) + 64)));
            ranges.push((at(&data[0]), at(&data[0]) + RING_BYTES));
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:x?}");
    }
}
