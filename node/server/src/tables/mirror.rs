//! What a server mirrors that follows the servers of a job: it answers readers and other followers, and takes changes
//! only from the process that follows.

use gannet_worker::FollowedCut;
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

/// The cut on its way to the thread of a server that mirrors.
#[derive(Default)]
pub(crate) struct Mirror {
    change: Mutex<Option<MirrorChange>>,
    waker: Mutex<Option<Box<dyn Fn() + Send>>>,
    taken: Mutex<Option<TakenCut>>,
}

/// The last cut that was taken over.
#[derive(Clone, Copy)]
struct TakenCut {
    /// When, by the net's time.
    at: Duration,
    /// How old it was then.
    age: Duration,
    /// Its commands and its history.
    position: (u64, u64),
}

impl Mirror {
    /// Calls this when a cut has come.
    pub(crate) fn set_waker(&self, wake: impl Fn() + Send + 'static) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
    }

    /// Hands a cut on, in place of one that has not been taken. The receiver hears when the server has taken it over.
    pub(crate) fn put(&self, cut: Arc<FollowedCut>, age: Duration) -> Receiver<Result<(), String>> {
        let (done, taken) = sync_channel(1);
        let change = Some(MirrorChange { cut, age, done });
        *self.change.lock().unwrap_or_else(PoisonError::into_inner) = change;
        if let Some(wake) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
        taken
    }

    /// The cut that has come.
    pub(crate) fn take(&self) -> Option<MirrorChange> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that a cut of this age was taken over now.
    pub(crate) fn note(&self, cut: &FollowedCut, now: Duration, age: Duration) {
        let taken = TakenCut { at: now, age, position: (cut.commands, cut.history) };
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
    }

    /// How old the rows here are, and their commands and history on the servers of the job. `None`: there are none yet.
    pub(crate) fn taken(&self, now: Duration) -> Option<(Duration, (u64, u64))> {
        let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.map(|TakenCut { at, age, position }| (now.saturating_sub(at) + age, position))
    }
}
