//! The sockets of one ring. The driver records what links request, and passes it to the kernel in the same
//! system call as the wait. Completions become bytes to read, space to send, and events.
//! A socket receives in one of two ways. Small amounts: a multishot receive puts them into provided buffers without a
//! A socket receives in one of two ways. For small amounts, a multishot receive puts bytes into provided
//! buffers without a system call for each socket, and the link copies them out. For large amounts, a poll
//! reports bytes, and plain receives copy them directly to their destination. Small sends are copied into a
//! buffer and sent with the next system call. Large sends are made at once, without a copy. Memory that the
//! kernel may access never belongs to a link.

use super::ring::{Completion, CompletionTarget, OpId, OpenDescriptor, ReceivedBytes, Ring, SendBuffer};
use super::traffic::{ReceiveMode, StreamEnd, Traffic};
use crate::limits::{EVENTS_MAX, PARTS_MAX, URING_SEND_BYTES, URING_SENDS_HELD};
use crate::net::Event;
use crate::tcp::{recv_now, send_now};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The completion target of the poll with which other threads wake this one.
const WAKE: CompletionTarget = CompletionTarget { socket: u32::MAX, generation: 0 };

pub(super) struct Driver {
    pub(super) ring: Ring,
    pub(super) sockets: Vec<Option<Traffic>>,
    /// How often each index has been used. Completions for an earlier user of an index are ignored.
    pub(super) generations: Vec<u32>,
    pub(super) free: Vec<u32>,
    /// Sockets that have requests for the kernel.
    pub(super) dirty: Vec<u32>,
    /// Sockets that have events to report.
    pub(super) noted: VecDeque<u32>,
    /// Sends held back since the last system call.
    pub(super) sends_held: usize,
    pub(super) wake: Arc<dyn OpenDescriptor>,
    pub(super) wake_watched: bool,
    pub(super) woken: bool,
    /// Whether the poll has been dropped. Sockets then use plain system calls.
    pub(super) closed: bool,
}

impl Driver {
    pub(super) fn traffic(&mut self, at: u32) -> &mut Traffic {
        self.sockets[at as usize].as_mut().expect("a socket leaves its ring once")
    }

    /// Marks a socket that has requests for the kernel.
    pub(super) fn touch(&mut self, at: u32) {
        if !std::mem::replace(&mut self.traffic(at).is_dirty, true) {
            self.dirty.push(at);
        }
    }

    /// Marks a socket that has events to report.
    pub(super) fn note(&mut self, at: u32, what: impl FnOnce(&mut Event)) {
        let traffic = self.traffic(at);
        what(&mut traffic.event);
        if !std::mem::replace(&mut traffic.is_noted, true) {
            self.noted.push_back(at);
        }
    }

    /// As [`crate::Stream::recv`].
    pub(super) fn recv(&mut self, at: u32, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let requested: usize = slices.iter().map(|slice| slice.len()).sum();
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
        let read = traffic.read(ring, slices);
        let some = |bytes: usize| (bytes > 0).then_some(bytes);
        if read == requested {
            return Ok(Some(read));
        }
        if let Some(end) = traffic.ended {
            if read == 0 {
                return Err(end.error());
            }
            self.note(at, |event| event.closed = true);
            return Ok(Some(read));
        }
        if let ReceiveMode::Received(_) | ReceiveMode::Stopping(_) = traffic.reading {
            return Ok(some(read));
        }
        let mut rest = slices;
        IoSliceMut::advance_slices(&mut rest, read);
        match recv_now(&*traffic.socket, rest) {
            Ok(got) => {
                let got = got.unwrap_or(0);
                traffic.moved += got;
                if read + got < requested {
                    self.want_more(at);
                }
                Ok(some(read + got))
            }
            Err(error) if read > 0 => {
                traffic.ended = Some(StreamEnd::of(&error));
                self.note(at, |event| event.closed = true);
                Ok(Some(read))
            }
            Err(error) => Err(error),
        }
    }

    /// A plain receive (or accept) found nothing more: requests the next event.
    pub(super) fn want_more(&mut self, at: u32) {
        let traffic = self.traffic(at);
        if traffic.reading == ReceiveMode::Plainly && !traffic.wants_more {
            traffic.choose();
            traffic.wants_more = true;
            self.touch(at);
        }
    }

    /// As [`crate::Stream::send`]. Small sends go out with the next wait or [`Driver::submit`].
    pub(super) fn send(&mut self, at: u32, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.traffic(at).sending.is_some() {
            self.reap();
        }
        let Driver { ring, sockets, closed, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
        if let Some(end) = traffic.broken {
            return Err(end.error());
        }
        if traffic.sending.is_some() {
            traffic.is_full = true;
            return Ok(None);
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let held = traffic.filling.as_ref().map_or(0, |(_, range)| range.end);
        if held + offered > URING_SEND_BYTES || *closed {
            return self.send_plainly(at, slices, offered);
        }
        let filling = traffic.filling.take().or_else(|| Some((ring.send_buffer()?, 0..0)));
        let Some((buffer, mut range)) = filling else { return self.send_plainly(at, slices, offered) };
        let mut space = &mut ring.outgoing_mut(&buffer)[range.end..];
        for slice in slices {
            let (front, back) = space.split_at_mut(slice.len());
            front.copy_from_slice(slice);
            space = back;
        }
        self.sends_held += usize::from(range.is_empty());
        range.end += offered;
        traffic.filling = Some((buffer, range));
        self.touch(at);
        if self.sends_held >= URING_SENDS_HELD {
            self.submit()?;
        }
        Ok(Some(offered))
    }

    /// Sends at once: first the bytes that were held back, then these slices.
    fn send_plainly(&mut self, at: u32, slices: &[IoSlice<'_>], offered: usize) -> io::Result<Option<usize>> {
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("a socket leaves its ring once");
        let mut all = [IoSlice::new(&[]); PARTS_MAX + 1];
        let mut held = 0;
        if let Some((buffer, range)) = &traffic.filling {
            held = range.len();
            all[0] = IoSlice::new(&ring.outgoing(buffer)[range.clone()]);
        }
        let first = usize::from(held == 0);
        let count = slices.len().min(PARTS_MAX);
        all[1..=count].copy_from_slice(&slices[..count]);
        let sent = send_now(&*traffic.socket, &all[first..=count])?.unwrap_or(0);
        if let Some((buffer, mut range)) = traffic.filling.take() {
            range.start += sent.min(held);
            if range.start == range.end {
                ring.free(buffer);
            } else {
                // The rest is sent when there is space, and its completion reports space.
                traffic.filling = Some((buffer, range));
            }
        }
        let sent = sent.saturating_sub(held);
        traffic.is_full |= sent < offered;
        traffic.promise_space();
        self.touch(at);
        Ok((sent > 0).then_some(sent))
    }

    /// Writes the requests of links into the submission queue.
    pub(super) fn settle(&mut self) {
        // A single send is cheaper as a system call of its own.
        let is_lone = std::mem::take(&mut self.sends_held) == 1;
        for at in std::mem::take(&mut self.dirty) {
            let Some(traffic) = &mut self.sockets[at as usize] else { continue };
            traffic.is_dirty = false;
            let name = CompletionTarget { socket: at, generation: self.generations[at as usize] };
            if is_lone {
                traffic.send_held(&mut self.ring);
            }
            // A request that finds the queue full is tried again before the next system call.
            if !(traffic.settle_send(&mut self.ring, name) && traffic.settle_watches(&mut self.ring, name)) {
                self.touch(at);
            }
        }
        if !self.wake_watched {
            let flags = PollFlags::IN.bits().into();
            self.wake_watched = self.ring.watch(&self.wake, WAKE, flags, true).is_some();
        }
    }

    /// Handles every completion that is there, without a system call.
    pub(super) fn reap(&mut self) {
        while let Some(done) = self.ring.next() {
            self.take_in(done);
        }
    }

    fn is_registered(&self, name: CompletionTarget) -> bool {
        let at = name.socket as usize;
        self.sockets.get(at).is_some_and(Option::is_some) && self.generations[at] == name.generation
    }

    fn take_in(&mut self, done: Completion) {
        match done {
            Completion::Seen { name: WAKE, last, .. } => {
                self.woken = true;
                self.wake_watched &= !last;
            }
            // The socket has been detached.
            Completion::Received { name, got, .. } if !self.is_registered(name) => {
                if let Ok(Some(received)) = got {
                    self.ring.give_back(received);
                }
            }
            Completion::Sent { name, buffer, .. } if !self.is_registered(name) => self.ring.free(buffer),
            Completion::Seen { name, .. } if !self.is_registered(name) => {}
            Completion::Received { name, got, last } => self.take_received(name.socket, got, last),
            Completion::Sent { name, buffer, sent } => self.take_sent(name.socket, buffer, sent),
            Completion::Seen { name, op, seen, .. } => self.take_seen(name.socket, op, seen),
        }
    }

    fn take_received(&mut self, at: u32, got: Result<Option<ReceivedBytes>, Errno>, last: bool) {
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("the socket is registered");
        match got {
            Ok(Some(received)) => {
                if traffic.keep(received)
                    && let ReceiveMode::Received(op) = traffic.reading
                    && ring.cancel(op)
                {
                    traffic.is_bulk = true;
                    traffic.reading = ReceiveMode::Stopping(op);
                }
            }
            Ok(None) => traffic.ended = Some(StreamEnd::Closed),
            // No buffer was free: for a while the link uses plain receives.
            Err(Errno::NOBUFS) => traffic.is_bulk = true,
            Err(Errno::CANCELED) => {}
            Err(error) => traffic.ended = Some(StreamEnd::Broken(error)),
        }
        if last {
            traffic.reading = ReceiveMode::Plainly;
        }
        let closed = traffic.ended.is_some();
        self.note(at, |event| {
            event.readable = true;
            event.closed |= closed;
        });
    }

    fn take_sent(&mut self, at: u32, buffer: SendBuffer, sent: Result<usize, Errno>) {
        let Driver { ring, sockets, .. } = self;
        let traffic = sockets[at as usize].as_mut().expect("the socket is registered");
        let (_, mut range) = traffic.sending.take().expect("a send was in flight");
        let was_full = std::mem::take(&mut traffic.is_full);
        match sent {
            Ok(_) | Err(Errno::CANCELED) => {
                range.start += sent.unwrap_or(0);
                if range.start == range.end {
                    ring.free(buffer);
                } else {
                    traffic.filling = Some((buffer, range));
                    self.touch(at);
                }
                if was_full {
                    self.note(at, |event| event.writable = true);
                }
            }
            Err(error) => {
                ring.free(buffer);
                traffic.broken = Some(StreamEnd::Broken(error));
                self.note(at, |event| {
                    (event.readable, event.writable, event.closed) = (true, true, true);
                });
            }
        }
    }

    fn take_seen(&mut self, at: u32, op: OpId, seen: Result<u32, Errno>) {
        let traffic = self.traffic(at);
        if traffic.space_watch == Some(op) {
            (traffic.space_watch, traffic.is_full) = (None, false);
            self.note(at, |event| event.writable = true);
        } else if traffic.reading == ReceiveMode::Watched(op) {
            traffic.reading = ReceiveMode::Plainly;
            let gone = u32::from((PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR).bits());
            self.note(at, |event| {
                event.readable = true;
                event.closed |= seen.is_ok_and(|flags| flags & gone != 0);
            });
        }
    }

    /// As [`crate::Poll::submit`].
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.dirty.is_empty() || self.closed {
            return Ok(());
        }
        self.move_to_this_thread()?;
        self.settle();
        self.ring.submit()?;
        // Most sends have completed by now, and their buffers serve the next ones.
        self.reap();
        Ok(())
    }

    /// As [`crate::Poll::wait`].
    pub(super) fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        self.move_to_this_thread()?;
        self.reap();
        self.settle();
        let deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        loop {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            let is_over = left.is_zero() || self.woken || !self.noted.is_empty();
            if !is_over {
                self.ring.wait(left)?;
            } else if !self.ring.is_quiet() {
                self.ring.submit()?;
            }
            self.reap();
            if is_over || self.woken || !self.noted.is_empty() {
                break;
            }
            self.settle();
        }
        self.woken = false;
        self.report(events);
        Ok(())
    }

    fn report(&mut self, events: &mut Vec<Event>) {
        for _ in 0..EVENTS_MAX {
            let Some(at) = self.noted.pop_front() else { break };
            let Some(traffic) = &mut self.sockets[at as usize] else { continue };
            // An index that was freed and reused may be in the queue twice.
            if std::mem::take(&mut traffic.is_noted) {
                let nothing = Event { token: traffic.event.token, ..Event::default() };
                events.push(std::mem::replace(&mut traffic.event, nothing));
            }
        }
    }
}
