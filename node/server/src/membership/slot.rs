//! A backup slot, as the membership sees it.

use crate::replication::queue::{CommandQueue, QueueProgress};
use crate::replication::slot::{BackupSlot, SlotHolder};
use gannet_wire::messages::members::{ServerV1, SlotV1};
use std::sync::Arc;
use std::time::Duration;

/// A backup slot, as the membership sees it.
#[derive(Clone)]
pub(crate) struct Slot {
    /// The address of the server that the configuration names.
    pub(crate) first: Option<String>,
    pub(crate) shared: Arc<BackupSlot>,
    /// The queue of each thread.
    pub(crate) queues: Vec<Arc<CommandQueue>>,
    /// How long the server in the slot, or the first choice, has been away from the registry.
    pub(crate) away: Duration,
    /// The backup is to leave, because another server is to get the slot.
    pub(crate) is_leaving: bool,
}

impl Slot {
    pub(crate) fn holder(&self) -> Option<SlotHolder> {
        self.shared.holder().0
    }

    /// The address of the server in the slot, or of the one that should be.
    pub(crate) fn addr(&self) -> Option<String> {
        self.holder().map(|holder| holder.addr).or_else(|| self.first.clone())
    }

    /// Workers wait for nobody here.
    pub(crate) fn is_idle(&self) -> bool {
        !self.queues.iter().any(|queue| queue.is_joined() || queue.is_lost())
    }

    pub(crate) fn give(&mut self, addr: &str, server: &ServerV1) {
        tracing::info!(backup = addr, "a server gets a backup slot");
        self.shared.give(Some(SlotHolder { addr: addr.to_owned(), incarnation: Some(server.incarnation) }));
        (self.away, self.is_leaving) = (Duration::ZERO, false);
    }

    /// From now on workers wait for the backup, if it is this incarnation and has all rows of all threads. Returns
    /// whether it has everything that a worker knows of.
    pub(crate) fn join(&self, incarnation: u64) -> bool {
        if self.queues.iter().all(|queue| queue.is_ready(incarnation)) {
            self.queues.iter().for_each(|queue| queue.join());
        }
        self.queues.iter().all(|queue| queue.joined() == Some(incarnation))
    }

    /// Whether this backup is in the slot, and has everything that any worker knows of.
    pub(crate) fn has_joined(&self, (addr, incarnation): &(String, u64)) -> bool {
        let is_it = |of: SlotHolder| of.addr == *addr && of.incarnation == Some(*incarnation);
        let has_all = || self.queues.iter().all(|queue| queue.joined() == Some(*incarnation));
        self.holder().is_some_and(is_it) && has_all()
    }

    /// What the registry is told.
    pub(crate) fn told(&self) -> SlotV1 {
        let all = self.queues.iter().map(|queue| queue.progress());
        let none = QueueProgress { joined: !self.queues.is_empty(), ..QueueProgress::default() };
        let QueueProgress { joined, filled, shards, commands, bytes } = all.fold(none, QueueProgress::and);
        let (addr, incarnation) = match self.holder() {
            Some(SlotHolder { addr, incarnation }) => (addr, incarnation.unwrap_or(0)),
            None => (String::new(), 0),
        };
        SlotV1 { addr, incarnation, joined, filled, shards, commands, bytes }
    }
}
