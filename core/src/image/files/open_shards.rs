//! Which shards of a store are open. A shard has one owner at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The shards of a store that are open, by table and number.
#[derive(Default)]
pub(crate) struct OpenShards(Mutex<HashSet<(String, u32)>>);

/// A claim to an open shard. Dropping it releases the shard.
pub(crate) struct OpenShard {
    open_shards: Arc<OpenShards>,
    shard: (String, u32),
}

impl OpenShards {
    /// Whether a shard of a table is open.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(name, _)| name == table)
    }

    /// Claims a shard; `None` when it is already open.
    pub(crate) fn claim(self: &Arc<OpenShards>, table: &str, number: u32) -> Option<OpenShard> {
        let shard = (table.to_owned(), number);
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(shard.clone());
        free.then(|| OpenShard { open_shards: self.clone(), shard })
    }
}

impl Drop for OpenShard {
    fn drop(&mut self) {
        self.open_shards.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.shard);
    }
}
