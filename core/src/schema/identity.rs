//! Which table an image belongs to. The id of a table is drawn once, and every image repeats it. An image also says which
//! server of how many made it, and has a birth that is drawn with the image.

use crate::hash::mix;
use std::fmt;

/// The id of a table: drawn by chance when the table is made, and the same in all its shards on all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableUid(pub [u8; 16]);

impl TableUid {
    /// Of a table whose images were made without an id.
    pub const NONE: TableUid = TableUid([0; 16]);
}

impl fmt::Display for TableUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which table a server's images are of, and which of its servers made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdentity {
    /// The table's id.
    pub uid: TableUid,
    /// Which of the table's servers, from 0 on.
    pub server: u32,
    /// Of how many.
    pub servers: u32,
}

impl TableIdentity {
    /// Images without an id, of one server.
    pub const NONE: TableIdentity = TableIdentity { uid: TableUid::NONE, server: 0, servers: 1 };
}

impl fmt::Display for TableIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableIdentity { uid, server, servers } = self;
        write!(f, "id {uid}, made by server {server} of {servers}")
    }
}

/// What new images are made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which table they are of. Images that are there must be of the same.
    pub identity: TableIdentity,
    /// What the births of new images are made of: drawn by chance, another one for each life of a process.
    pub seed: u64,
}

impl Origin {
    /// The birth of a shard's image that is made now. Never 0.
    pub(crate) fn birth(&self, number: u32) -> u64 {
        let (low, high) = self.identity.uid.0.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or_default());
        let table = mix(word(low) ^ mix(word(high)));
        mix(self.seed ^ mix(table ^ u64::from(number))).max(1)
    }
}
