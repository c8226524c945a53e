//! The replicator: it has the links to one backup, and sends the blocks of one server thread's queue over them.
//!
//! A lost link is made again, and the blocks that were not acknowledged are sent again: the backup skips those that it
//! has. If the backup refuses a block, has restarted, or stays away, the connection is over: what the backup has is
//! dropped, and it is filled from the beginning.

use super::queue::CommandQueue;
use crate::error::WorkerError;
use crate::limits::{BACKUP_TIMEOUT, REPLICATOR_PAUSE};
use crate::server::ServerConfig;
use crate::worker::{NO_INCARNATION, OneSided, Worker, WorkerConfig};
use gannet_transport::{Net, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl ServerConfig {
    /// How each backup is reached.
    pub(in crate::server) fn backup_links(&self) -> Vec<WorkerConfig> {
        // Workers wait for a backup that is away. With a membership it is given the time of an owner that is away.
        let timeout = self.membership.as_ref().map_or(BACKUP_TIMEOUT, |membership| membership.lease);
        let config = |addr: &String| WorkerConfig {
            token: self.token.clone(),
            peer_timeout: timeout,
            one_sided: OneSided::Never,
            spin: Duration::ZERO,
            ..WorkerConfig::builder([addr.clone()]).incarnation(NO_INCARNATION).build()
        };
        self.backups.iter().map(config).collect()
    }
}

/// The longest wait for something new.
const PATIENCE: Duration = Duration::from_millis(100);

/// Wakes a replicator.
pub(in crate::server) struct ReplicatorWaker<N: Net>(Arc<Mutex<Option<N::Waker>>>);

impl<N: Net> ReplicatorWaker<N> {
    /// Wakes it, if it has a connection.
    pub(in crate::server) fn wake(&self) {
        if let Some(waker) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake();
        }
    }

    fn set(&self, waker: Option<N::Waker>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }
}

/// Sends what one thread of a server tells to one backup. [`Server`](crate::Server) runs it on a thread of its own.
/// With a [`LocalServer`](crate::LocalServer) the program runs it.
pub struct Replicator<N: Net> {
    net: N,
    /// Its only server is the backup.
    config: WorkerConfig,
    queue: Arc<CommandQueue>,
    /// Wakes the thread that owns the shards.
    owner: N::Waker,
    own: ReplicatorWaker<N>,
}

impl<N: Net> Replicator<N> {
    pub(in crate::server) fn new(
        net: N,
        config: WorkerConfig,
        queue: Arc<CommandQueue>,
        owner: N::Waker,
    ) -> (Replicator<N>, ReplicatorWaker<N>) {
        let waker = Arc::default();
        let own = ReplicatorWaker(Arc::clone(&waker));
        (Replicator { net, config, queue, owner, own }, ReplicatorWaker(waker))
    }

    /// Runs until `is_over`.
    pub fn run(&self, is_over: impl Fn() -> bool) {
        while !is_over() {
            let Err(error) = self.serve(&is_over) else { break };
            self.own.set(None);
            let joined = self.queue.disconnect();
            self.owner.wake();
            let backup = self.config.servers.first().map_or("", String::as_str);
            match joined {
                true => {
                    tracing::error!(backup, %error, "a backup has left: workers do not wait for it any more")
                }
                false => tracing::warn!(backup, %error, "a backup cannot be filled; this server tries again"),
            }
            if let Ok(mut poll) = self.net.poll() {
                // It fails like a pause that was too short.
                let _ = poll.wait(REPLICATOR_PAUSE, &mut Vec::new());
            }
        }
        self.own.set(None);
    }

    /// Connects, and sends what the queue has, until that fails.
    fn serve(&self, is_over: &impl Fn() -> bool) -> Result<(), WorkerError> {
        let mut worker = Worker::connect(self.net.clone(), self.config.clone())?;
        let links = worker.backup_links();
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
