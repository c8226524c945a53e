//! Which answers may leave: those whose commands all backups have.

/// What has left a thread, and what may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicationGate {
    /// Commands that were told.
    pub(crate) told: u64,
    /// How many of them all backups have that workers wait for.
    pub(crate) acknowledged: u64,
    /// Nothing may leave: the server's lease may have ended.
    pub(crate) is_silent: bool,
    /// Rows do not wait.
    pub(crate) is_async: bool,
}

impl ReplicationGate {
    /// Without backups.
    pub(crate) const OPEN: ReplicationGate =
        ReplicationGate { told: 0, acknowledged: u64::MAX, is_silent: false, is_async: false };

    /// For frames that wait for no command.
    pub(crate) fn without_waiting(self) -> ReplicationGate {
        ReplicationGate { told: 0, ..self }
    }
}
