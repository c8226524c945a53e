//! What a server thread does for its backups in each round of its event loop.

use super::{CommandQueue, Replication, Replicator};
use crate::server::session::Session;
use crate::server::thread::ShardThread;
use crate::worker::WorkerConfig;
use gannet_transport::{Net, Poll};
use std::sync::Arc;

impl<N: Net> ShardThread<N> {
    /// Tells backups the next rows, if they need some, and sends the replies that waited for them. Returns whether
    /// there is more to do at once.
    pub(in crate::server) fn replicate(&mut self) -> bool {
        let more = self.tables.replicate();
        let tables = self.tables.all.len();
        let moved = self.tables.replication.as_mut().is_some_and(|replication| replication.has_moved(tables));
        if moved {
            for token in 0..self.sessions.len() {
                if self.sessions[token].as_ref().is_some_and(Session::is_holding) {
                    self.enqueue(token);
                }
            }
        }
        self.wake_replicators();
        more
    }

    /// Wakes the replicators that have something new to send.
    pub(in crate::server) fn wake_replicators(&self) {
        let Some(replication) = &self.tables.replication else { return };
        replication.take_news().for_each(|backup| self.replicators[backup].wake());
    }

    /// From now on backups are told all commands. Returns what sends them, which needs a thread for each.
    pub(in crate::server) fn replicate_to(&mut self, backups: &[WorkerConfig]) -> Vec<Replicator<N>> {
        let mut replicators = Vec::new();
        let mut queues = Vec::new();
        for config in backups {
            let queue = Arc::<CommandQueue>::default();
            let (replicator, waker) =
                Replicator::new(self.net.clone(), config.clone(), queue.clone(), self.poll.waker());
            replicators.push(replicator);
            queues.push(queue);
            self.replicators.push(waker);
        }
        let seed = self.settings.incarnation.wrapping_add(u64::from(self.settings.thread));
        self.tables.replicate_to(Replication::new(queues, seed));
        replicators
    }
}
