//! A connection over verbs, and the part of it that a poll owns.

use super::StreamState;
use super::connect::Phase;
use super::reader::VerbsReader;
use super::session::VerbsSession;
use super::teardown::Ending;
use crate::limits::VERBS_RING_BYTES;
use crate::remote::RemoteReader;
use crate::stream::Stream;
use rustix::fd::OwnedFd;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The state that the stream and its poll share.
pub(crate) struct SharedStream {
    session: Mutex<VerbsSession>,
    /// Whether a poll reports events of rdma_cm.
    watched: AtomicBool,
}

impl SharedStream {
    pub(crate) fn lock(&self) -> MutexGuard<'_, VerbsSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ending for SharedStream {
    fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    fn is_cut_off(&self) -> bool {
        self.lock().is_cut_off()
    }
}

/// A stream of bytes over a pair of rings. The peer's device writes into our ring, and ours into the peer's.
pub struct VerbsStream {
    shared: Arc<SharedStream>,
    peer: Arc<str>,
    reader: Option<VerbsReader>,
}

impl VerbsStream {
    pub(crate) fn new(session: VerbsSession) -> VerbsStream {
        let peer = session.name.clone();
        let shared = SharedStream { session: Mutex::new(session), watched: AtomicBool::new(false) };
        VerbsStream { shared: Arc::new(shared), peer, reader: None }
    }

    /// Whether the peer has answered, so that bytes may be sent. (Receiving or sending continues to connect.)
    pub fn is_open(&self) -> bool {
        let session = self.shared.lock();
        session.phase == Phase::Open && session.end_of().is_none()
    }

    /// The part that a poll owns to watch the stream.
    pub fn watch(&self) -> Watch {
        self.shared.watched.store(true, Ordering::Relaxed);
        Watch(Arc::downgrade(&self.shared))
    }

    /// The descriptor to wait for.
    pub fn event_fd(&self) -> Arc<OwnedFd> {
        self.shared.lock().event_fd.clone()
    }

    /// Ends the watch of a poll.
    pub fn unwatch(&self) {
        self.shared.watched.store(false, Ordering::Relaxed);
        self.shared.lock().cm_ready = true;
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &SharedStream {
        &self.shared
    }

    fn watched(&self) -> bool {
        self.shared.watched.load(Ordering::Relaxed)
    }
}

impl Stream for VerbsStream {
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let watched = self.watched();
        self.shared.lock().recv(slices, watched)
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let watched = self.watched();
        self.shared.lock().send(slices, watched)
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn transport(&self) -> &'static str {
        "verbs"
    }

    fn pinned_bytes(&self) -> usize {
        if self.shared.lock().flow.is_some() { 2 * VERBS_RING_BYTES } else { 0 }
    }

    fn allow_reads(&mut self) -> io::Result<bool> {
        match &self.shared.lock().reading {
            Some(pair) => pair.allow_reads().map(|()| true),
            None => Ok(false),
        }
    }

    fn reader(&mut self) -> Option<&mut dyn RemoteReader> {
        if self.reader.is_none() {
            let mut session = self.shared.lock();
            if session.phase == Phase::Open
                && session.end_of().is_none()
                && let Some(pair) = session.reading.take()
            {
                let verbs = session.verbs.clone();
                drop(session);
                self.reader = Some(VerbsReader::new(pair, verbs, Arc::downgrade(&self.shared)));
            }
        }
        self.reader.as_mut().map(|reader| reader as &mut dyn RemoteReader)
    }
}

impl Drop for VerbsStream {
    fn drop(&mut self) {
        self.reader = None;
        let verbs = {
            let mut session = self.shared.lock();
            session.begin_end();
            session.verbs.clone()
        };
        verbs.end(self.shared.clone());
    }
}

impl fmt::Debug for VerbsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsStream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The part of a stream that a poll owns. It does not keep the stream alive.
pub struct Watch(Weak<SharedStream>);

impl Watch {
    /// Looks for changes. It makes no system call on a connected session, except after [`Watch::woken`].
    pub fn look(&self) -> StreamState {
        let Some(shared) = self.0.upgrade() else { return StreamState::Gone };
        let mut session = shared.lock();
        if session.gone {
            return StreamState::Gone;
        }
        let edges = session.look();
        StreamState::Edges { readable: edges.readable, writable: edges.writable, closed: edges.closed }
    }

    /// Makes the next completion turn the stream's descriptor readable. Check once more before sleeping.
    pub fn arm(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lock().arm();
        }
    }

    /// Whether the stream was dropped.
    pub fn is_gone(&self) -> bool {
        self.0.upgrade().is_none_or(|shared| shared.lock().gone)
    }

    /// Whether it watches this stream.
    pub fn is_of(&self, stream: &VerbsStream) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&stream.shared))
    }

    /// Call it when the descriptor was readable.
    pub fn woken(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lock().woken();
        }
    }
}
