//! How sockets are attached to a ring and detached from it, so that the kernel does not use their memory
//! afterwards. This is cold code.

use super::driver::Driver;
use super::refusal::Refusal;
use super::ring::{OpenDescriptor, Ring};
use super::traffic::{ReceiveMode, StreamEnd, Traffic};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long cancelled operations may take to end.
const LEAVE_TIME: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

impl Driver {
    /// Makes a ring for the calling thread. This event descriptor wakes it.
    pub(super) fn new(wake: Arc<dyn OpenDescriptor>) -> Result<Driver, Refusal> {
        Ok(Driver {
            ring: Ring::new()?,
            sockets: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            noted: VecDeque::new(),
            sends_held: 0,
            wake,
            wake_watched: false,
            woken: false,
            closed: false,
        })
    }

    /// Attaches a socket. `early` are bytes that were received from the socket before.
    pub(super) fn register(
        &mut self,
        socket: Arc<dyn OpenDescriptor>,
        token: u64,
        early: Vec<u8>,
        is_listener: bool,
    ) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.generations.push(0);
            self.sockets.len() as u32 - 1
        });
        let mut traffic = Traffic::new(socket, token, is_listener);
        let is_early = !early.is_empty();
        if is_early {
            traffic.keep_early(early);
        }
        self.sockets[at as usize] = Some(traffic);
        self.touch(at);
        if !is_listener {
            // A link that found no space under another driver tries again here, and then the ring reports space.
            self.note(at, |event| (event.readable, event.writable) = (is_early, true));
        }
        at
    }

    /// Detaches a socket that stays open. Returns the bytes that arrived and were not read.
    ///
    /// # Errors
    /// Bytes that the ring accepted for sending cannot all be sent now. The socket can then only be dropped.
    pub(super) fn leave(&mut self, at: u32) -> io::Result<Vec<u8>> {
        self.move_to_this_thread()?;
        let give_up = Instant::now() + LEAVE_TIME;
        loop {
            self.reap();
            self.settle_held(at)?;
            let Driver { ring, sockets, .. } = self;
            let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
            let mut is_cancelled = true;
            if let ReceiveMode::Received(op) = traffic.reading {
                is_cancelled &= ring.cancel(op);
                traffic.reading = if is_cancelled { ReceiveMode::Stopping(op) } else { traffic.reading };
            }
            // A send that was submitted and is not complete waits for space.
            let waits = matches!(traffic.reading, ReceiveMode::Received(_) | ReceiveMode::Stopping(_));
            if traffic.sending.is_none() && !waits {
                break;
            }
            if Instant::now() > give_up {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "queued bytes could not be sent in time",
                ));
            }
            if is_cancelled {
                self.ring.wait(LOOK)?;
            } else {
                self.ring.submit()?;
            }
        }
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
        let early = traffic.save(ring);
        self.free_index(at);
        Ok(early)
    }

    /// Sends the bytes that were held back, if no operation must come before them.
    fn settle_held(&mut self, at: u32) -> io::Result<()> {
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
        traffic.send_held(ring);
        match traffic.sending.is_none().then(|| traffic.filling.take()).flatten() {
            None => Ok(()),
            Some((buffer, _)) => {
                ring.free(buffer);
                Err(io::Error::other("the socket takes no more bytes now"))
            }
        }
    }

    /// Prepares a socket to be dropped. Held-back bytes are sent if possible, the peer sees the end at once,
    /// and operations in flight are cancelled. The ring keeps its descriptor and buffers until these operations
    /// have ended.
    pub(super) fn deregister(&mut self, at: u32) {
        if self.ring.is_on_own_thread() {
            self.reap();
            // Bytes that cannot be sent now are lost, like those in the out queue of a dropped link.
            let _ = self.settle_held(at);
        }
        let _ = shutdown(&*self.traffic(at).socket, Shutdown::Both);
        let Driver { ring, sockets, .. } = self;
        if let Some(traffic) = &mut sockets[at as usize] {
            traffic.discard(ring);
        }
        self.free_index(at);
    }

    /// Frees the index. Completions of its operations are ignored from now on.
    fn free_index(&mut self, at: u32) {
        let Some(traffic) = self.sockets[at as usize].take() else { return };
        let reading = match traffic.reading {
            ReceiveMode::Plainly => None,
            ReceiveMode::Received(op) | ReceiveMode::Stopping(op) | ReceiveMode::Watched(op) => Some(op),
        };
        let sending = traffic.sending.map(|(op, _)| op);
        for op in [reading, sending, traffic.space_watch].into_iter().flatten() {
            // If the submission queue is full, the end of the connection ends the operations.
            self.ring.cancel(op);
        }
        self.generations[at as usize] = self.generations[at as usize].wrapping_add(1);
        self.free.push(at);
    }

    /// The kernel lets only the thread that made a ring use it. On another thread, this function makes a new
    /// ring and begins all operations again. A send in flight breaks its connection, because its result can no
    /// longer be known.
    pub(super) fn move_to_this_thread(&mut self) -> io::Result<()> {
        if self.ring.is_on_own_thread() || self.closed {
            return Ok(());
        }
        let ring = Ring::new().map_err(|refusal| io::Error::other(refusal.to_string()))?;
        self.detach_all();
        self.ring = ring;
        self.wake_watched = false;
        Ok(())
    }

    /// Takes the bytes of every socket out of the ring. Completions of operations in flight will not be processed.
    fn detach_all(&mut self) {
        self.reap();
        for at in 0..self.sockets.len() as u32 {
            let Driver { ring, sockets, .. } = self;
            let Some(traffic) = &mut sockets[at as usize] else { continue };
            let early = traffic.save(ring);
            traffic.keep_early(early);
            traffic.reading = ReceiveMode::Plainly;
            traffic.wants_more = true;
            traffic.wants_space |= traffic.space_watch.take().is_some();
            let is_broken = traffic.sending.take().is_some();
            if self.settle_held(at).is_err() || is_broken {
                self.traffic(at).broken = Some(StreamEnd::Broken(Errno::CONNABORTED));
            }
            self.note(at, |event| (event.readable, event.writable) = (true, true));
            self.touch(at);
            self.generations[at as usize] = self.generations[at as usize].wrapping_add(1);
        }
    }

    /// Called when the poll is dropped: from now on its sockets use plain system calls.
    pub(super) fn close(&mut self) {
        if self.ring.is_on_own_thread() && self.ring.cancel_all().is_ok() {
            let give_up = Instant::now() + LEAVE_TIME;
            self.reap();
            while self.ring.in_flight() > 0 && Instant::now() < give_up {
                if self.ring.wait(LOOK).is_err() {
                    break;
                }
                self.reap();
            }
        }
        self.detach_all();
        if self.ring.is_on_own_thread() {
            self.ring.retire();
        }
        self.closed = true;
    }
}
