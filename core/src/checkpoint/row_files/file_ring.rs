//! Writes a file through io_uring, so that the thread that compresses rows does not wait while earlier ones are
//! written. Each write owns its buffer until it is complete.
#![allow(unsafe_code)]

use crate::limits::{CHECKPOINT_RING_WRITES, CHECKPOINT_RINGS_MAX, CHECKPOINT_WRITE_BACK_BYTES};
use io_uring::{IoUring, Probe, opcode, squeue, types::Fd};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Once};

/// The id of requests to begin the write-back of what is written. They own nothing, and their answers do not matter.
const WRITE_BACK: u64 = u64::MAX;

/// Rings that exist in this process.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// A write in flight.
struct Writing {
    bytes: Vec<u8>,
    /// How many of the bytes are written.
    done: usize,
    /// Where `bytes` begins in the file.
    at: u64,
}

/// A file, and the ring through which it is written.
pub(crate) struct FileRing {
    queue: IoUring,
    file: Arc<File>,
    /// The place of the next byte.
    end: u64,
    /// Bytes before this place are on their way to the disk.
    written_back: u64,
    slots: [Option<Writing>; CHECKPOINT_RING_WRITES],
    /// Requests without an answer, which can be more than the writes.
    in_flight: usize,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
    _counted: RingCount,
}

/// One of the rings of this process.
struct RingCount;

impl RingCount {
    fn new() -> Option<RingCount> {
        let more = |rings| (rings < CHECKPOINT_RINGS_MAX).then_some(rings + 1);
        RINGS.fetch_update(Relaxed, Relaxed, more).ok().map(|_| RingCount)
    }
}

impl Drop for RingCount {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Relaxed);
    }
}

impl FileRing {
    /// A ring for a file that has `end` bytes. Gives the file back when the process has many rings already, or when the
    /// system refuses one; a refusal is logged once.
    pub(crate) fn new(file: File, end: u64) -> Result<FileRing, File> {
        let Some(counted) = RingCount::new() else { return Err(file) };
        match set_up() {
            Ok(queue) => {
                let (slots, spare) = ([const { None }; CHECKPOINT_RING_WRITES], Vec::new());
                let (written_back, file) = (0, Arc::new(file));
                Ok(FileRing { queue, file, end, written_back, slots, in_flight: 0, spare, _counted: counted })
            }
            Err(error) => {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    tracing::info!(
                        "checkpoints are written without io_uring, which may take longer: the system refuses it \
                         ({error}); look at sysctl kernel.io_uring_disabled and at the seccomp filter of the container"
                    );
                });
                Err(file)
            }
        }
    }

    /// Begins to write these bytes at the end of the file, and returns an empty buffer. Waits when all slots are busy.
    pub(crate) fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        if bytes.is_empty() {
            return Ok(bytes);
        }
        self.answers()?;
        let slot = loop {
            match self.slots.iter().position(Option::is_none) {
                Some(slot) => break slot,
                None => self.wait()?,
            }
        };
        let (at, length) = (self.end, bytes.len() as u64);
        self.slots[slot] = Some(Writing { bytes, done: 0, at });
        self.end += length;
        self.begin(slot)?;
        self.write_back()?;
        self.submit(0)?;
        Ok(self.spare.pop().unwrap_or_default())
    }

    /// Waits until everything is written, and gives the file back.
    pub(crate) fn finish(mut self) -> io::Result<Arc<File>> {
        while self.in_flight > 0 {
            self.wait()?;
        }
        Ok(self.file.clone())
    }

    /// Queues the write of a slot, or the rest of it.
    fn begin(&mut self, slot: usize) -> io::Result<()> {
        let Some(writing) = &self.slots[slot] else { return Ok(()) };
        let rest = &writing.bytes[writing.done..];
        // One request writes less than 2 GiB, and the answer says how much.
        let length = rest.len().min(1 << 30) as u32;
        let at = writing.at + writing.done as u64;
        let write = opcode::Write::new(Fd(self.file.as_raw_fd()), rest.as_ptr(), length).offset(at);
        // A buffered write would be done at once, by this thread.
        let entry = write.build().flags(squeue::Flags::ASYNC).user_data(slot as u64);
        self.push(&entry)
    }

    /// Asks the kernel to begin the write-back of what is written, every few MiB. The disk then works from the first
    /// bytes on, not only at the end.
    fn write_back(&mut self) -> io::Result<()> {
        let first = self.slots.iter().flatten().map(|writing| writing.at).min().unwrap_or(self.end);
        let length = first.saturating_sub(self.written_back);
        if length < CHECKPOINT_WRITE_BACK_BYTES {
            return Ok(());
        }
        let length = length.min(1 << 30) as u32;
        let range = opcode::SyncFileRange::new(Fd(self.file.as_raw_fd()), length);
        let range = range.offset(self.written_back).flags(libc::SYNC_FILE_RANGE_WRITE);
        self.written_back += u64::from(length);
        self.push(&range.build().flags(squeue::Flags::ASYNC).user_data(WRITE_BACK))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // An entry of `begin` names memory of a buffer in `slots`, and no other entry names any. `begin` queues a slot
        // only when it has no request without an answer.
        // SAFETY: the buffer stays in its slot, unchanged, until the answer has come: `answers` alone takes it out, and
        // `drop` waits for all answers, or leaks the buffers. The file is open as long as the ring: both are in `self`.
        let pushed = unsafe { self.queue.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the queue of io_uring is full"))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits what is queued, and waits for so many answers.
    fn submit(&self, answers: usize) -> io::Result<()> {
        loop {
            match self.queue.submitter().submit_and_wait(answers) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map(drop),
            }
        }
    }

    /// Waits for an answer.
    fn wait(&mut self) -> io::Result<()> {
        if self.in_flight == 0 {
            return Err(io::Error::other("an earlier error gave the file up"));
        }
        self.submit(1)?;
        self.answers()
    }

    /// Takes the answers that are there. The rest of a short write is queued again.
    fn answers(&mut self) -> io::Result<()> {
        let mut failed = Ok(());
        loop {
            let answer = self.queue.completion().next().map(|answer| (answer.user_data(), answer.result()));
            let Some((id, result)) = answer else { return failed };
            self.in_flight -= 1;
            let Ok(slot) = usize::try_from(id) else { continue };
            let Some(Some(writing)) = self.slots.get_mut(slot) else { continue };
            let again = matches!(-result, libc::EINTR | libc::EAGAIN);
            match usize::try_from(result) {
                Ok(0) => failed = Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => writing.done += more,
                Err(_) if again => {}
                Err(_) => failed = Err(io::Error::from_raw_os_error(-result)),
            }
            if failed.is_ok() && writing.done < writing.bytes.len() {
                self.begin(slot)?;
                self.submit(0)?;
            } else if let Some(Writing { mut bytes, .. }) = self.slots[slot].take() {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let before = self.in_flight;
            // The file is given up, or finished. Only the buffers matter: one that the kernel has cannot be freed.
            if self.wait().is_err() && self.in_flight == before {
                self.slots.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
                return;
            }
        }
    }
}

fn set_up() -> io::Result<IoUring> {
    // Each write may have a request to begin a write-back beside it.
    let queue = IoUring::builder().dontfork().build(4 * CHECKPOINT_RING_WRITES as u32)?;
    let mut probe = Probe::new();
    queue.submitter().register_probe(&mut probe)?;
    match probe.is_supported(opcode::Write::CODE) && probe.is_supported(opcode::SyncFileRange::CODE) {
        true => Ok(queue),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    /// A ring, or `None` where the system refuses it.
    fn ring(file: File) -> Option<FileRing> {
        FileRing::new(file, 0).ok()
    }

    #[test]
    fn writes_of_any_length_arrive_in_order() {
        let mut file = tempfile::tempfile().unwrap();
        let Some(mut ring) = ring(file.try_clone().unwrap()) else { return };
        let mut want = Vec::new();
        let mut buffer = Vec::new();
        for round in 0..200_usize {
            buffer.extend((0..round * 977 % 70_000).map(|at| (at * round) as u8));
            want.extend_from_slice(&buffer);
            buffer = ring.write(buffer).unwrap();
            assert!(buffer.is_empty());
        }
        drop(ring.finish().unwrap());
        let mut found = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut found).unwrap();
        assert!(found == want);
    }

    #[test]
    fn an_error_is_reported_and_later_writes_harm_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"as it was").unwrap();
        // Open for reading only: each write fails.
        let Some(mut ring) = ring(File::open(&path).unwrap()) else { return };
        let failed = (0..20).find_map(|_| ring.write(vec![7; 100_000]).err());
        assert_eq!(failed.unwrap().raw_os_error(), Some(libc::EBADF));
        let _ = ring.write(vec![8; 10]); // whether it fails already depends on the kernel's speed
        drop(ring);
        assert_eq!(std::fs::read(&path).unwrap(), b"as it was");
    }

    #[test]
    fn a_ring_that_is_dropped_waits_for_its_writes_and_rings_are_bounded() {
        let mut rings: Vec<FileRing> = Vec::new();
        for _ in 0..CHECKPOINT_RINGS_MAX + 8 {
            let Some(mut ring) = ring(tempfile::tempfile().unwrap()) else { break };
            ring.write(vec![3; 1 << 18]).unwrap();
            rings.push(ring);
        }
        assert!(rings.len() <= CHECKPOINT_RINGS_MAX);
        let copies: Vec<File> = rings.iter().map(|ring| ring.file.try_clone().unwrap()).collect();
        drop(rings);
        assert!(copies.iter().all(|file| file.metadata().unwrap().len() == 1 << 18));
    }
}
