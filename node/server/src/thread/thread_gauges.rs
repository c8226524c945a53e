//! The gauges of a server thread: what its sessions and tables have at this moment.

use crate::thread::event_loop::ShardThread;
use gannet_transport::{Net, Stream};

impl<N: Net> ShardThread<N> {
    /// Updates the gauges.
    pub(crate) fn publish(&mut self) {
        self.tables.publish();
        let (mut queued, mut full, mut keysets, mut received, mut buffers) = (0, 0, 0, 0, 0);
        let (mut waiting_for_memory, mut parked, mut pinned) = (0, 0, 0);
        for session in self.sessions.iter_mut().flatten() {
            queued += session.link.transmit().queued_bytes() as u64;
            full += u64::from(session.is_blocked());
            keysets += session.keyset_bytes() as u64;
            received += session.link.receive().pending_bytes() as u64;
            buffers += session.link.held_bytes() as u64;
            waiting_for_memory += u64::from(session.is_waiting_for_memory());
            pinned += session.link.stream().pinned_bytes() as u64;
            parked += u64::from(session.is_waiting());
        }
        let counters = self.own_counters();
        counters.queued_bytes.set(queued);
        counters.full_sessions.set(full);
        counters.keyset_bytes.set(keysets);
        counters.regions.set(self.tables.all.iter().map(|table| table.regions.count() as u64).sum());
        counters.unhandled_bytes.set(received);
        counters.buffer_bytes.set(buffers);
        counters.sessions_waiting_for_memory.set(waiting_for_memory);
        counters.pinned_bytes.set(pinned);
        counters.parked_sessions.set(parked);
        let replication = self.tables.backups.replication.as_ref();
        let (joined, all) = replication.map(|replication| replication.progress()).unwrap_or_default();
        counters.backups_joined.set(joined as u64);
        counters.backup_queue_bytes.set(all.bytes);
        counters.backup_queue_commands.set(all.commands);
        counters.backup_shards.set(all.shards);
        counters.backup_shards_filled.set(all.filled);
        let groups = self.tables.all.iter().filter_map(|table| table.group.as_ref());
        counters
            .kept_bytes
            .set(groups.filter_map(|group| group.sums.as_ref()).map(|sums| sums.bytes() as u64).sum());
        // The limit is that of the whole server, so only thread 0 reports it.
        counters.kept_limit_bytes.set(if self.settings.thread == 0 {
            self.settings.step_budget.max() as u64
        } else {
            0
        });
    }
}
