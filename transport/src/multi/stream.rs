//! A connection over one of the transports.

use super::{AddressState, avoid};
use crate::remote::RemoteReader;
use crate::shm::ShmStream;
use crate::stream::Stream;
use crate::tcp::TcpStream;
use crate::verbs::VerbsStream;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

/// A connection over one of the transports.
#[derive(Debug)]
pub struct MultiStream(StreamKind);

#[derive(Debug)]
pub(super) enum StreamKind {
    Tcp(TcpStream),
    Shm(ShmStream, Option<ConnectOutcomes>),
    Verbs(VerbsStream),
}

/// Where a stream records that a server refused shared memory.
type ConnectOutcomes = Arc<Mutex<HashMap<String, AddressState>>>;

/// Calls the same method of the transport's own stream.
macro_rules! of {
    ($wire:expr, $stream:ident => $call:expr) => {
        match $wire {
            StreamKind::Tcp($stream) => $call,
            StreamKind::Shm($stream, _) => $call,
            StreamKind::Verbs($stream) => $call,
        }
    };
}

impl MultiStream {
    pub(super) fn tcp(stream: TcpStream) -> MultiStream {
        MultiStream(StreamKind::Tcp(stream))
    }

    /// A worker's session over shared memory.
    pub(super) fn shm(stream: ShmStream, choices: ConnectOutcomes) -> MultiStream {
        MultiStream(StreamKind::Shm(stream, Some(choices)))
    }

    /// A server's session over shared memory.
    pub(super) fn accepted(stream: ShmStream) -> MultiStream {
        MultiStream(StreamKind::Shm(stream, None))
    }

    pub(super) fn verbs(stream: VerbsStream) -> MultiStream {
        MultiStream(StreamKind::Verbs(stream))
    }

    pub(super) fn kind(&self) -> &StreamKind {
        &self.0
    }

    pub(super) fn is_open(&self) -> bool {
        match &self.0 {
            StreamKind::Tcp(_) => true,
            StreamKind::Shm(stream, _) => stream.is_open(),
            StreamKind::Verbs(stream) => stream.is_open(),
        }
    }

    /// Records that a session was refused, or that its rings cannot be used, so that another transport is tried
    /// next time. A session that only ended is not recorded: its server was stopped, and may come back.
    fn note_failure(&mut self, error: &io::Error) {
        if let StreamKind::Shm(stream, choices) = &mut self.0
            && (stream.failure().is_some() && !stream.is_open())
            && let Some(choices) = choices.take()
        {
            avoid(&choices, &stream.peer(), error.to_string());
        }
    }
}

impl Stream for MultiStream {
    #[inline]
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        of!(&mut self.0, stream => stream.recv(slices)).inspect_err(|error| self.note_failure(error))
    }

    #[inline]
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        of!(&mut self.0, stream => stream.send(slices)).inspect_err(|error| self.note_failure(error))
    }

    fn peer(&self) -> Arc<str> {
        of!(&self.0, stream => stream.peer())
    }

    fn is_remote(&self) -> bool {
        of!(&self.0, stream => stream.is_remote())
    }

    fn transport(&self) -> &'static str {
        of!(&self.0, stream => stream.transport())
    }

    fn is_near(&self) -> bool {
        of!(&self.0, stream => stream.is_near())
    }

    fn give(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        of!(&mut self.0, stream => stream.give(file))
    }

    fn take_given(&mut self) -> io::Result<Option<OwnedFd>> {
        of!(&mut self.0, stream => stream.take_given())
    }

    fn reader(&mut self) -> Option<&mut dyn RemoteReader> {
        of!(&mut self.0, stream => stream.reader())
    }

    fn allow_reads(&mut self) -> io::Result<bool> {
        of!(&mut self.0, stream => stream.allow_reads())
    }

    fn holds(&self) -> bool {
        of!(&self.0, stream => stream.holds())
    }

    fn may_send_now(&mut self) -> bool {
        of!(&mut self.0, stream => stream.may_send_now())
    }

    fn rest(&mut self) {
        of!(&mut self.0, stream => stream.rest())
    }

    fn held_bytes(&self) -> usize {
        of!(&self.0, stream => stream.held_bytes())
    }

    fn pinned_bytes(&self) -> usize {
        of!(&self.0, stream => stream.pinned_bytes())
    }
}
