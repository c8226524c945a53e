//! A backup slot: the place for one backup of a server. The membership says which server is in it, and the replicators
//! of all threads follow.

use crate::config::ServerConfig;
use crate::limits::BACKUP_TIMEOUT;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_worker::{OneSided, WorkerConfig};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The server in a backup slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotHolder {
    pub(crate) addr: String,
    /// Its incarnation, which its greeting must have. `None`: whoever listens there is the backup.
    pub(crate) incarnation: Option<u64>,
}

/// Which server is in a backup slot.
#[derive(Debug, Default)]
pub(crate) struct BackupSlot {
    holder: Mutex<Option<SlotHolder>>,
    /// Raised whenever another server gets the slot.
    changes: AtomicU64,
    /// How often the server in the slot could not be reached or filled since it got the slot, or has joined.
    failures: AtomicU64,
}

impl BackupSlot {
    /// The server in the slot, and how often that has changed.
    pub(crate) fn holder(&self) -> (Option<SlotHolder>, u64) {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        (holder.clone(), self.changes.load(Relaxed))
    }

    /// Whether another server has got the slot since.
    pub(crate) fn has_changed(&self, since: u64) -> bool {
        self.changes.load(Relaxed) != since
    }

    /// Gives the slot to a server. Workers must not wait for the one before.
    pub(crate) fn give(&self, to: Option<SlotHolder>) {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        *holder = to;
        self.changes.fetch_add(1, Relaxed);
        self.failures.store(0, Relaxed);
    }

    pub(crate) fn note_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn forget_failures(&self) {
        self.failures.store(0, Relaxed);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

/// A backup slot, and how the server in it is reached.
#[derive(Clone)]
pub(crate) struct BackupLink {
    /// Without a server.
    pub(crate) config: WorkerConfig,
    pub(crate) slot: Arc<BackupSlot>,
}

impl BackupLink {
    /// The backup slots of a server, with what its configuration names for each.
    pub(crate) fn all_of(server: &ServerConfig) -> Vec<BackupLink> {
        // Workers wait for a backup that is away. With a membership it is given the time of an owner that is away.
        let timeout = server.membership.as_ref().map_or(BACKUP_TIMEOUT, |membership| membership.lease);
        let slots = server.membership.as_ref().map_or(0, |membership| membership.backups);
        let link = |number: usize| {
            let slot = Arc::<BackupSlot>::default();
            // With a membership the registry of servers says who listens at an address.
            if let (None, Some(addr)) = (&server.membership, server.backups.get(number)) {
                slot.give(Some(SlotHolder { addr: addr.clone(), incarnation: None }));
            }
            let config = WorkerConfig {
                token: server.token.clone(),
                peer_timeout: timeout,
                one_sided: OneSided::Never,
                spin: Duration::ZERO,
                ..WorkerConfig::builder(Vec::<String>::new()).incarnation(NO_INCARNATION).build()
            };
            BackupLink { config, slot }
        };
        (0..server.backups.len().max(slots)).map(link).collect()
    }
}
