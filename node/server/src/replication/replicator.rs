//! The replicator: it has the links to one backup, and sends the blocks of one server thread's queue over them.
//!
//! A lost link is made again, and the blocks that were not acknowledged are sent again: the backup skips those that it
//! has. If the backup refuses a block, has restarted, or stays away, the connection is over: what the backup has is
//! dropped, and it is filled from the beginning. So it is when another server gets the backup slot.

use crate::limits::REPLICATOR_PAUSE;
use crate::replication::queue::CommandQueue;
use crate::replication::slot::{BackupLink, SlotHolder};
use gannet_transport::{Net, Poll, Waker};
use gannet_wire::log_limiter::RepeatedFailure;
use gannet_worker::{Worker, WorkerConfig, WorkerError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest wait for something new.
const PATIENCE: Duration = Duration::from_millis(100);

/// Wakes a replicator.
pub(crate) struct ReplicatorWaker<N: Net>(Arc<Mutex<Option<N::Waker>>>);

impl<N: Net> ReplicatorWaker<N> {
    /// Wakes it, if it has a connection.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake();
        }
    }

    fn set(&self, waker: Option<N::Waker>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }
}

/// Sends what one thread of a server tells to the backup in one slot. [`Server`](crate::server::Server) runs it on a
/// thread of its own. With a [`LocalServer`](crate::local::LocalServer) the program runs it.
pub struct Replicator<N: Net> {
    net: N,
    link: BackupLink,
    queue: Arc<CommandQueue>,
    /// Wakes the thread that owns the shards.
    owner: N::Waker,
    own: ReplicatorWaker<N>,
}

impl<N: Net> Replicator<N> {
    pub(crate) fn new(
        net: N,
        link: BackupLink,
        queue: Arc<CommandQueue>,
        owner: N::Waker,
    ) -> (Replicator<N>, ReplicatorWaker<N>) {
        let waker = Arc::default();
        let own = ReplicatorWaker(Arc::clone(&waker));
        (Replicator { net, link, queue, owner, own }, ReplicatorWaker(waker))
    }

    /// Runs until `is_over`.
    pub fn run(&self, is_over: impl Fn() -> bool) {
        let mut failures = RepeatedFailure::default();
        while !is_over() {
            let (Some(holder), changes) = self.link.slot.holder() else {
                self.pause(PATIENCE);
                continue;
            };
            let served = self.serve(&holder, || is_over() || self.link.slot.has_changed(changes));
            if is_over() {
                break;
            }
            self.own.set(None);
            let joined = self.queue.disconnect();
            self.owner.wake();
            let backup = &holder.addr;
            match served {
                // Another server has got the slot.
                Ok(()) => continue,
                Err(error) if joined => {
                    tracing::error!(backup, %error, "a backup has left: workers do not wait for it any more")
                }
                Err(error) if failures.is_news(&format!("{backup}: {error}"), self.net.now()) => {
                    tracing::warn!(backup, %error, "a backup cannot be filled; this server tries again")
                }
                Err(error) => tracing::debug!(backup, %error, "a backup cannot be filled, as before"),
            }
            self.link.slot.note_failure();
            self.pause(REPLICATOR_PAUSE);
        }
        self.own.set(None);
    }

    fn pause(&self, time: Duration) {
        if let Ok(mut poll) = self.net.poll() {
            // It fails like a pause that was too short.
            let _ = poll.wait(time, &mut Vec::new());
        }
    }

    /// Connects, and sends what the queue has, until that fails or is over.
    fn serve(&self, holder: &SlotHolder, is_over: impl Fn() -> bool) -> Result<(), WorkerError> {
        let config = WorkerConfig { servers: vec![holder.addr.clone()], ..self.link.config.clone() };
        let mut worker = Worker::connect(self.net.clone(), config)?;
        let links = worker.backup_links();
        if holder.incarnation.is_some_and(|incarnation| incarnation != links.incarnation) {
            return Err(WorkerError::Protocol {
                peer: holder.addr.as_str().into(),
                what: "another server listens there than the one that has registered with the coordinator"
                    .into(),
            });
        }
        let threads = links.threads;
        self.own.set(Some(worker.waker()));
        self.queue.connect(threads, links.incarnation);
        self.owner.wake();
        let mut under_way: Vec<VecDeque<_>> = (0..threads).map(|_| VecDeque::new()).collect();
        while !is_over() {
            for (thread, requests) in under_way.iter_mut().enumerate() {
                while let Some(block) = self.queue.take(thread) {
                    requests.push_back(worker.begin_block(thread, block)?);
                }
            }
            worker.wait_for_blocks(links, PATIENCE)?;
            let mut moved = false;
            for (thread, requests) in under_way.iter_mut().enumerate() {
                while requests.front().is_some_and(|request| worker.finish_block(*request)) {
                    requests.pop_front();
                    self.queue.acknowledge(thread);
                    moved = true;
                }
            }
            if moved {
                self.owner.wake();
            }
        }
        Ok(())
    }
}
