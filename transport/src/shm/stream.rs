//! The bytes of a session: copied into one ring and out of the other.

use super::connect::other_end;
use super::error::ShmError;
use super::memory::SharedMemory;
use super::ring::{RingReader, RingWriter};
use super::session::ShmSession;
use crate::limits::RING_STEP_BYTES;
use crate::stream::Stream;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// An end of a session over shared memory.
#[derive(Debug)]
pub struct ShmStream {
    session: Arc<ShmSession>,
    peer: Arc<str>,
    reader: RingReader,
    writer: RingWriter,
    /// Which steps of the outgoing ring have pages, one bit each.
    pages: u64,
}

impl ShmStream {
    pub(super) fn new(session: ShmSession, peer: Arc<str>) -> ShmStream {
        let (reader, writer) = (RingReader::default(), RingWriter::default());
        ShmStream { session: Arc::new(session), peer, reader, writer, pages: 0 }
    }

    pub(crate) fn session(&self) -> &Arc<ShmSession> {
        &self.session
    }

    /// Why there is no session, if the server has refused it or has sent unusable rings.
    pub fn failure(&self) -> Option<&ShmError> {
        self.session.failure()
    }

    /// The user and the process of the peer, as the kernel reports them.
    pub fn other(&self) -> Option<(u32, i32)> {
        other_end(&*self.session).ok()
    }

    /// Whether the rings have arrived. No byte can be sent before.
    pub fn is_open(&self) -> bool {
        self.session.memory().is_some()
    }
}

impl Stream for ShmStream {
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let ShmStream { session, reader, .. } = self;
        let mut available = look(session, reader)?;
        if available == 0 {
            session.drain_unasked();
            session.check()?;
            // Everything that the peer wrote before it ended is in the ring now.
            available = look(session, reader)?;
            if available == 0 {
                return if session.is_closed() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
        }
        let Some(memory) = session.memory() else { return Ok(None) };
        let ring = memory.ring(session.side().incoming());
        let (mut got, mut wake) = (0, false);
        for chunk in slices.iter_mut().flat_map(|slice| slice.chunks_mut(RING_STEP_BYTES)) {
            let count = chunk.len().min(available - got);
            if count == 0 {
                continue;
            }
            reader.take(&ring, &mut chunk[..count]);
            got += count;
            if count == RING_STEP_BYTES {
                // The writer can continue while the rest is copied.
                wake |= reader.release(&ring);
            }
        }
        wake |= reader.release(&ring);
        session.known_tail(reader.tail());
        if wake {
            session.wake_peer();
        }
        Ok(Some(got))
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.session.check()?;
        let ShmStream { session, writer, pages, .. } = self;
        let Some(memory) = session.memory() else {
            session.sent_tail(0, true);
            return Ok(None);
        };
        let direction = session.side().outgoing();
        let ring = memory.ring(direction);
        let (mut sent, mut full) = (0, false);
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let wanted = rest.len().min(RING_STEP_BYTES);
                let room = writer.room(&ring, wanted).map_err(|error| session.fail(error.into()))?;
                let count = wanted.min(room);
                if count == 0 {
                    break;
                }
                take_pages(memory, session, writer.tail(), count, pages)?;
                writer.put(&ring, &rest[..count]);
                (sent, rest) = (sent + count, &rest[count..]);
                if writer.is_worth_publishing() && writer.publish(&ring) {
                    session.wake_peer();
                }
            }
            if !rest.is_empty() {
                full = true;
                break;
            }
        }
        if writer.publish(&ring) {
            session.wake_peer();
        }
        session.sent_tail(writer.tail(), full);
        if sent == 0 && full {
            return if session.is_closed() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(None) };
        }
        Ok(Some(sent))
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    /// The bytes stay in this host's memory.
    fn is_remote(&self) -> bool {
        false
    }

    fn transport(&self) -> &'static str {
        "shm"
    }

    /// Only servers pass files, and only workers take them.
    fn is_near(&self) -> bool {
        true
    }

    fn give(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.session.check()?;
        self.session.give(file)
    }

    fn take_given(&mut self) -> io::Result<Option<OwnedFd>> {
        self.session.drain_unasked();
        match self.session.take_given() {
            Some(file) => Ok(Some(file)),
            None => self.session.check().map(|()| None),
        }
    }

    fn rest(&mut self) {
        let ShmStream { session, writer, pages, .. } = self;
        let Some(memory) = session.memory().filter(|_| *pages != 0) else { return };
        let direction = session.side().outgoing();
        // The next send reports a wrong position.
        if writer.is_drained(&memory.ring(direction)).unwrap_or(false) {
            match memory.give_back(direction) {
                Ok(()) => *pages = 0,
                Err(error) => tracing::debug!(%error, "cannot return the pages of a ring to the system"),
            }
        }
    }

    /// The pages of the outgoing ring. The other side allocates and returns those of the incoming ring.
    fn held_bytes(&self) -> usize {
        self.pages.count_ones() as usize * RING_STEP_BYTES
    }
}

fn look(session: &ShmSession, reader: &mut RingReader) -> io::Result<usize> {
    session.check()?;
    let Some(memory) = session.memory() else { return Ok(0) };
    let ring = memory.ring(session.side().incoming());
    reader.look(&ring).map_err(|error| session.fail(error.into()))
}

/// Allocates pages for `count` bytes (at most a step) from this position on.
#[inline]
fn take_pages(
    memory: &SharedMemory,
    session: &ShmSession,
    at: u64,
    count: usize,
    pages: &mut u64,
) -> io::Result<()> {
    let from = at as usize & (memory.ring_bytes() - 1);
    let (first, last) = (from / RING_STEP_BYTES, (from + count - 1) / RING_STEP_BYTES);
    for step in [first, last] {
        // The first step follows the last one.
        let step = step % (memory.ring_bytes() / RING_STEP_BYTES);
        if *pages & 1 << step == 0 {
            memory.take_step(session.side().outgoing(), step)?;
            *pages |= 1 << step;
        }
    }
    Ok(())
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        self.session.leave();
    }
}
