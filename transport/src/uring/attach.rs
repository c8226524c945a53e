//! How sockets are attached to a ring and detached from it, so that the kernel keeps nothing of theirs. This is cold
//! code.

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
            seats: Vec::new(),
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

    /// Attaches a socket. `early` are bytes that were received from it before.
    pub(super) fn seat(
        &mut self,
        of: Arc<dyn OpenDescriptor>,
        token: u64,
        early: Vec<u8>,
        is_listener: bool,
    ) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.generations.push(0);
            self.seats.len() as u32 - 1
        });
        let mut traffic = Traffic::new(of, token, is_listener);
        let is_early = !early.is_empty();
        if is_early {
            traffic.keep_early(early);
        }
        self.seats[at as usize] = Some(traffic);
        self.touch(at);
        if !is_listener {
            // A link that found no space elsewhere tries again here, and the ring will report space.
            self.note(at, |event| (event.readable, event.writable) = (is_early, true));
        }
        at
    }

    /// Detaches a socket that lives on. Returns the bytes that came and were not read.
    ///
    /// # Errors
    /// Bytes given to it cannot all be sent now. The socket can only be dropped then.
    pub(super) fn leave(&mut self, at: u32) -> io::Result<Vec<u8>> {
        self.go_home()?;
        let give_up = Instant::now() + LEAVE_TIME;
        loop {
            self.reap();
            self.settle_held(at)?;
            let Driver { ring, seats, .. } = self;
            let traffic = seats[at as usize].as_mut().expect("a seat is left once");
            let mut asked = true;
            if let ReceiveMode::Received(op) = traffic.reading {
                asked &= ring.cancel(op);
                traffic.reading = if asked { ReceiveMode::Stopping(op) } else { traffic.reading };
            }
            // A send that was submitted and is not complete waits for space.
            let waits = matches!(traffic.reading, ReceiveMode::Received(_) | ReceiveMode::Stopping(_));
            if traffic.flying.is_none() && !waits {
                break;
            }
            if Instant::now() > give_up {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "what was given to it could not be sent in time",
                ));
            }
            if asked {
                self.ring.wait(LOOK)?;
            } else {
                self.ring.submit()?;
            }
        }
        let Driver { ring, seats, .. } = self;
        let traffic = seats[at as usize].as_mut().expect("a seat is left once");
        let early = traffic.save(ring);
        self.vacate(at);
        Ok(early)
    }

    /// Sends the bytes that were held back, if no operation comes before them.
    fn settle_held(&mut self, at: u32) -> io::Result<()> {
        let Driver { ring, seats, .. } = self;
        let traffic = seats[at as usize].as_mut().expect("a seat is left once");
        traffic.send_held(ring);
        match traffic.flying.is_none().then(|| traffic.filling.take()).flatten() {
            None => Ok(()),
            Some((buffer, _)) => {
                ring.free(buffer);
                Err(io::Error::other("it takes no more bytes now"))
            }
        }
    }

    /// Prepares a socket to be dropped: held-back bytes are sent if possible, the peer sees the end at once, and
    /// operations in flight are cancelled. The ring keeps its descriptor and buffers until they have ended.
    pub(super) fn drop_seat(&mut self, at: u32) {
        if self.ring.is_at_home() {
            self.reap();
            // Bytes that cannot be sent now are lost, like those in the out queue of a dropped link.
            let _ = self.settle_held(at);
        }
        let _ = shutdown(&*self.traffic(at).of, Shutdown::Both);
        let Driver { ring, seats, .. } = self;
        if let Some(traffic) = &mut seats[at as usize] {
            traffic.discard(ring);
        }
        self.vacate(at);
    }

    /// Frees the index. Completions of its operations are ignored from now on.
    fn vacate(&mut self, at: u32) {
        let Some(traffic) = self.seats[at as usize].take() else { return };
        let reading = match traffic.reading {
            ReceiveMode::Plainly => None,
            ReceiveMode::Received(op) | ReceiveMode::Stopping(op) | ReceiveMode::Watched(op) => Some(op),
        };
        let flying = traffic.flying.map(|(op, _)| op);
        for op in [reading, flying, traffic.room].into_iter().flatten() {
            // If the queue is full, the end of the connection ends the operations.
            self.ring.cancel(op);
        }
        self.generations[at as usize] = self.generations[at as usize].wrapping_add(1);
        self.free.push(at);
    }

    /// The kernel lets only the thread that made a ring use it. On another thread this makes a new ring and begins all
    /// operations again. A send in flight breaks its connection, because its result can no longer be known.
    pub(super) fn go_home(&mut self) -> io::Result<()> {
        if self.ring.is_at_home() || self.closed {
            return Ok(());
        }
        let ring = Ring::new().map_err(|refusal| io::Error::other(refusal.to_string()))?;
        self.unseat_all();
        self.ring = ring;
        self.wake_watched = false;
        Ok(())
    }

    /// Takes the bytes of every socket out of the ring. Completions of operations in flight will not be seen.
    fn unseat_all(&mut self) {
        self.reap();
        for at in 0..self.seats.len() as u32 {
            let Driver { ring, seats, .. } = self;
            let Some(traffic) = &mut seats[at as usize] else { continue };
            let early = traffic.save(ring);
            traffic.keep_early(early);
            traffic.reading = ReceiveMode::Plainly;
            traffic.wants_more = true;
            traffic.wants_room |= traffic.room.take().is_some();
            let is_broken = traffic.flying.take().is_some();
            if self.settle_held(at).is_err() || is_broken {
                self.traffic(at).broken = Some(StreamEnd::Broken(Errno::CONNABORTED));
            }
            self.note(at, |event| (event.readable, event.writable) = (true, true));
            self.touch(at);
            self.generations[at as usize] = self.generations[at as usize].wrapping_add(1);
        }
    }

    /// The poll is dropped: from now on its sockets are served by plain system calls.
    pub(super) fn close(&mut self) {
        if self.ring.is_at_home() && self.ring.cancel_all().is_ok() {
            let give_up = Instant::now() + LEAVE_TIME;
            self.reap();
            while self.ring.under_way() > 0 && Instant::now() < give_up {
                if self.ring.wait(LOOK).is_err() {
                    break;
                }
                self.reap();
            }
        }
        self.unseat_all();
        if self.ring.is_at_home() {
            self.ring.retire();
        }
        self.closed = true;
    }
}
