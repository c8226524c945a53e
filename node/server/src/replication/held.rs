//! What a thread tells backups, and what it keeps as a backup of other servers.

use crate::replication::Replication;
use crate::replication::copies::Copies;
use crate::replication::state_copies::StateCopies;

/// See the module.
#[derive(Default)]
pub(crate) struct Backups {
    /// Tells the commands of the shards here to backups. `None`: there are no backups.
    pub(crate) replication: Option<Replication>,
    /// Copies of the shards of other servers.
    pub(crate) copies: Vec<Copies>,
    /// States of another server that are not rows.
    pub(crate) states: Option<StateCopies>,
}
