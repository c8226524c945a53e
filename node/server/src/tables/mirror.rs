//! What a server mirrors that follows the servers of a job: it answers readers and other followers, and takes changes
//! only from the process that follows.

use gannet_worker::FollowedCut;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A cut that the server is to take over.
pub(crate) struct MirrorChange {
    pub(crate) cut: Arc<FollowedCut>,
    /// How old the cut was when it came.
    pub(crate) age: Duration,
    pub(crate) done: SyncSender<Result<(), String>>,
}

/// Cuts on their way to the thread of a server that mirrors.
#[derive(Default)]
pub(crate) struct Mirror {
    changes: Mutex<VecDeque<MirrorChange>>,
    waker: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// The thread takes a cut over now, so a table that is not there is made.
    pub(crate) makes_tables: AtomicBool,
    /// The time of the net at which the servers had the rows here.
    as_of: Mutex<Option<Duration>>,
}

impl Mirror {
    /// Calls this when a cut has come.
    pub(crate) fn set_waker(&self, wake: impl Fn() + Send + 'static) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
    }

    /// Hands a cut on. The receiver hears when the server has taken it over.
    pub(crate) fn put(&self, cut: Arc<FollowedCut>, age: Duration) -> Receiver<Result<(), String>> {
        let (done, taken) = sync_channel(1);
        let changes = &mut self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push_back(MirrorChange { cut, age, done });
        if let Some(wake) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
        taken
    }

    /// The next cut.
    pub(crate) fn take(&self) -> Option<MirrorChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Whether tables may be made now.
    pub(crate) fn makes_tables(&self) -> bool {
        self.makes_tables.load(Relaxed)
    }

    /// Notes that the servers had the rows here at this time.
    pub(crate) fn note(&self, as_of: Duration) {
        *self.as_of.lock().unwrap_or_else(PoisonError::into_inner) = Some(as_of);
    }

    /// How old the rows here are. `None`: there are none yet.
    pub(crate) fn age(&self, now: Duration) -> Option<Duration> {
        let as_of = *self.as_of.lock().unwrap_or_else(PoisonError::into_inner);
        as_of.map(|as_of| now.saturating_sub(as_of))
    }
}
