//! The state of a session that its stream and its poll share: the control socket, the rings, and which events
//! were already reported. Only one thread uses it at a time, so its atomics are relaxed.

use super::error::ShmError;
use super::memory::{Direction, SharedMemory};
use super::packet::{self, Packet, PacketOutcome};
use super::ring::{Ring, Word};
use crate::limits::{GIVEN_FILES_MAX, PACKETS_PER_READ};
use crate::net::Event;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Which end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShmSide {
    Server,
    Worker,
}

impl ShmSide {
    pub(super) fn outgoing(self) -> Direction {
        match self {
            ShmSide::Server => Direction::ToWorker,
            ShmSide::Worker => Direction::ToServer,
        }
    }

    pub(super) fn incoming(self) -> Direction {
        match self {
            ShmSide::Server => Direction::ToServer,
            ShmSide::Worker => Direction::ToWorker,
        }
    }
}

/// Numbers of a poll's sessions that became awake without a wake-up packet.
pub(crate) type WokenSessions = Mutex<Vec<u32>>;

#[derive(Debug)]
pub(crate) struct ShmSession {
    socket: OwnedFd,
    side: ShmSide,
    /// A worker's rings come with the server's first packet.
    memory: OnceLock<SharedMemory>,
    /// The write position of the incoming ring that was last reported to the link.
    known_tail: AtomicU64,
    /// The write position of the outgoing ring.
    sent_tail: AtomicU64,
    /// The link knows that the ring is full, and waits for space.
    wants_room: AtomicBool,
    /// The other side has ended. Bytes in the ring can still be read.
    closed: AtomicBool,
    /// The end was reported to the link.
    closed_reported: AtomicBool,
    /// The stream has been dropped.
    gone: AtomicBool,
    /// Whether every wait of the poll checks the session. Otherwise the poll waits for a wake-up packet.
    awake: AtomicBool,
    watcher: Mutex<Option<(Arc<WokenSessions>, u32)>>,
    failure: OnceLock<ShmError>,
    files: Mutex<VecDeque<OwnedFd>>,
}

impl ShmSession {
    pub(super) fn new(socket: OwnedFd, side: ShmSide, memory: Option<SharedMemory>) -> ShmSession {
        let cell = OnceLock::new();
        if let Some(memory) = memory {
            let _ = cell.set(memory);
        }
        ShmSession {
            socket,
            side,
            memory: cell,
            known_tail: AtomicU64::new(0),
            sent_tail: AtomicU64::new(0),
            wants_room: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closed_reported: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            awake: AtomicBool::new(true),
            watcher: Mutex::default(),
            failure: OnceLock::new(),
            files: Mutex::default(),
        }
    }

    pub(super) fn side(&self) -> ShmSide {
        self.side
    }

    /// The rings, if they have arrived.
    pub(super) fn memory(&self) -> Option<&SharedMemory> {
        self.memory.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// The error that ended the session, if there was one.
    pub(super) fn check(&self) -> io::Result<()> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone().io()))
    }

    pub(super) fn failure(&self) -> Option<&ShmError> {
        self.failure.get()
    }

    /// Ends the session with this error.
    pub(super) fn fail(&self, why: ShmError) -> io::Error {
        self.failure.get_or_init(|| why).clone().io()
    }

    /// Records that the link knows of the bytes before this position.
    pub(super) fn known_tail(&self, tail: u64) {
        self.known_tail.store(tail, Relaxed);
    }

    /// Records that the link has written the bytes before this position. `full`: it has more to write.
    pub(super) fn sent_tail(&self, tail: u64, full: bool) {
        self.sent_tail.store(tail, Relaxed);
        self.wants_room.store(full, Relaxed);
        if full {
            self.mark_woken();
        }
    }

    /// Makes the poll check the session again, because its state has changed.
    fn mark_woken(&self) {
        if !self.wake()
            && let Some((woken, number)) = &*lock_of_session(&self.watcher)
        {
            lock_of_session(woken).push(*number);
        }
    }

    /// Wakes the other side.
    pub(super) fn wake_peer(&self) {
        match packet::send_wake_up(&self.socket) {
            // The socket is full: the other side has not yet read earlier wake-ups, so it will wake.
            Ok(()) | Err(Errno::AGAIN) => {}
            // The other side has ended. A receive reports that in order, after the bytes that it wrote before.
            Err(_) => {}
        }
    }

    pub(super) fn give(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        if self.side == ShmSide::Worker {
            // A server would have to hold a worker's files, so it refuses them.
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(packet::send_file(&self.socket, file)?)
    }

    pub(super) fn take_given(&self) -> Option<OwnedFd> {
        lock_of_session(&self.files).pop_front()
    }

    /// As [`ShmSession::drain`], for the stream. It makes the poll check the session, because the poll does not
    /// see a wake-up that was read here.
    pub(super) fn drain_unasked(&self) {
        if self.drain() {
            self.mark_woken();
        }
    }

    /// Reads the packets that have arrived on the control socket. `true` if there were any.
    pub(crate) fn drain(&self) -> bool {
        // An honest peer never sends more.
        for packets in 0..PACKETS_PER_READ {
            if self.is_closed() || self.failure.get().is_some() {
                return packets > 0;
            }
            let taken = match packet::recv(&self.socket, self.side == ShmSide::Worker) {
                Ok(PacketOutcome::Nothing) => return packets > 0,
                Ok(PacketOutcome::Ended) => {
                    self.closed.store(true, Relaxed);
                    return true;
                }
                Ok(PacketOutcome::Packet(packet)) => self.take_in(packet),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                self.fail(error);
                return true;
            }
        }
        self.fail(ShmError::Packet("there are too many packets"));
        true
    }

    fn take_in(&self, packet: Packet) -> Result<(), ShmError> {
        let is_open = self.memory.get().is_some();
        match packet {
            Packet::WakeUp if is_open => Ok(()),
            Packet::Rings(file, ring_bytes) if !is_open && self.side == ShmSide::Worker => {
                let memory = SharedMemory::open(&file, ring_bytes);
                let memory = memory.map_err(|error| ShmError::Rings(error.to_string()))?;
                self.memory.set(memory).map_err(|_| ShmError::Packet("the rings came twice"))
            }
            Packet::Refused(why) if !is_open && self.side == ShmSide::Worker => Err(ShmError::Refused(why)),
            Packet::File(file) if is_open && self.side == ShmSide::Worker => {
                let mut files = lock_of_session(&self.files);
                if files.len() == GIVEN_FILES_MAX {
                    return Err(ShmError::Packet("too many files wait to be taken"));
                }
                files.push_back(file);
                Ok(())
            }
            _ => Err(ShmError::Packet("it is not allowed at this point")),
        }
    }

    /// The event to report to the link, if there is one. It makes no system call.
    pub(crate) fn look(&self, token: u64) -> Option<Event> {
        let mut event = Event { token, ..Event::default() };
        if let Some(memory) = self.memory.get() {
            let incoming = memory.ring(self.side.incoming());
            let tail = incoming.tail.load(Acquire);
            event.readable = self.known_tail.swap_if(tail);
            if self.wants_room.load(Relaxed) && self.has_room(&memory.ring(self.side.outgoing())) {
                self.wants_room.store(false, Relaxed);
                event.writable = true;
            }
        }
        if (self.is_closed() || self.failure.get().is_some()) && !self.closed_reported.swap(true, Relaxed) {
            (event.readable, event.writable, event.closed) = (true, true, true);
        }
        (event.readable || event.writable || event.closed).then_some(event)
    }

    /// Whether there is space, as far as the reader claims. The claim is checked when bytes are written.
    fn has_room(&self, outgoing: &Ring<'_, AtomicU64>) -> bool {
        let unread = self.sent_tail.load(Relaxed).wrapping_sub(outgoing.head.load(Acquire));
        // An impossible claim counts as space too, so that the link finds the error.
        unread as usize > outgoing.byte_count()
            || outgoing.byte_count() - unread as usize >= outgoing.room_bytes()
    }

    /// The thread is about to sleep: from now on the other side sends a wake-up. A fence and a check must follow.
    pub(crate) fn arm(&self) {
        self.awake.store(false, Relaxed);
        if let Some(memory) = self.memory.get() {
            memory.ring(self.side.incoming()).arm_reader();
            if self.wants_room.load(Relaxed) {
                memory.ring(self.side.outgoing()).arm_writer();
            }
        }
    }

    /// Makes every wait of the poll check the session again. `true`: the session was awake already.
    pub(crate) fn wake(&self) -> bool {
        self.awake.swap(true, Relaxed)
    }

    /// The thread is awake, so wake-ups are not needed.
    pub(crate) fn disarm(&self) {
        if let Some(memory) = self.memory.get() {
            memory.ring(self.side.incoming()).disarm_reader();
            memory.ring(self.side.outgoing()).disarm_writer();
        }
    }

    /// The fence between [`ShmSession::arm`] and [`ShmSession::look`].
    pub(crate) fn fence() {
        <AtomicU64 as Word>::fence();
    }

    /// A poll begins to watch the session under this number. Its first check reports the present state.
    pub(crate) fn begin_watch(&self, woken: &Arc<WokenSessions>, number: u32) {
        *lock_of_session(&self.watcher) = Some((woken.clone(), number));
        self.awake.store(true, Relaxed);
        // No position has this value.
        self.known_tail.store(u64::MAX, Relaxed);
        self.closed_reported.store(false, Relaxed);
    }

    /// The poll stops watching.
    pub(crate) fn end_watch(&self) {
        *lock_of_session(&self.watcher) = None;
    }

    /// The stream is dropped. The other side learns this at once, even if the poll still refers to the session.
    pub(super) fn leave(&self) {
        self.gone.store(true, Relaxed);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }
}

/// Only one thread uses the mutex at a time, so nobody waits for it.
pub(crate) fn lock_of_session<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An atomic flag that can report whether it changed.
trait SwapIf {
    fn swap_if(&self, value: u64) -> bool;
}

impl SwapIf for AtomicU64 {
    fn swap_if(&self, value: u64) -> bool {
        let changes = self.load(Relaxed) != value;
        if changes {
            self.store(value, Relaxed);
        }
        changes
    }
}

impl AsFd for ShmSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
