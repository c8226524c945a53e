//! Cached rows that servers keep fresh. The worker subscribes to rows that it has used again. In regular sweeps its
//! servers send the rows that have changed, and then that the sweep is over.
//!
//! A frame of changes comes among the answers in order. So it includes every own push that was acknowledged before it,
//! and none of the unacknowledged ones: the worker leaves rows that such pushes touch as they are. A row that a sweep
//! does not mention has not changed since the sweep before. The worker knows when a sweep began from the latest request
//! that the server had answered when the sweep before it was over.

use crate::cache::rows::RowCache;
use crate::cache::swept::Swept;
use gannet_transport::Head;
use std::sync::atomic::Ordering::Relaxed;

/// What a link's server keeps fresh of one table.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The keys; their indices are their numbers on the link.
    pub(crate) keys: Vec<u64>,
    /// The number of this set of keys. Frames of another set are about other rows.
    pub(crate) generation: u32,
    /// The server cannot keep more rows fresh.
    pub(crate) refused: bool,
    /// How many of the rows sent in this set the cache no longer has, and how many rows were sent.
    pub(crate) gone: usize,
    pub(crate) sent: usize,
    /// As of when all unmentioned rows are current; and what that will be when the next sweep is over.
    pub(crate) swept: Swept,
    pub(crate) next: Swept,
}

/// A frame of changes, copied out of the receive buffer.
pub(crate) struct Delta {
    pub(crate) head: Head,
    pub(crate) payload: Vec<u64>,
}

impl Followed {
    /// Ends the set: the link is lost, or the set is given up. The next set starts from nothing.
    pub(crate) fn lose(&mut self) {
        *self = Followed::default();
    }

    /// The number of the set that rows should be in; 0 if none are followed.
    pub(crate) fn generation(&mut self, rows: &RowCache) -> u32 {
        if self.generation == 0 && !self.refused && rows.config.active.is_some() {
            self.generation = rows.generations.fetch_add(1, Relaxed) + 1;
        }
        self.generation
    }
}
