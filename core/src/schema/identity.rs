//! Which table an image belongs to. Each table gets one random id, and every image has it. An image also has
//! the number of the server that made it, the number of servers, and its own random number, the birth.

use crate::hash::mix;
use std::fmt;

/// The id of a table: random, drawn when the table is made. All shards on all servers have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableUid(pub [u8; 16]);

impl TableUid {
    /// The id of tables that were made without one.
    pub const NONE: TableUid = TableUid([0; 16]);

    /// Its first and its last eight bytes as numbers, little-endian.
    pub fn words(self) -> [u64; 2] {
        let bits = u128::from_le_bytes(self.0);
        [bits as u64, (bits >> 64) as u64]
    }

    /// Its first eight bytes as a number.
    pub fn low(self) -> u64 {
        self.words()[0]
    }
}

impl fmt::Display for TableUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which table a server's images belong to, and which of the table's servers made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdentity {
    /// The table's id.
    pub uid: TableUid,
    /// The number of the server that made the images, from 0 on.
    pub server: u32,
    /// The number of servers of the table.
    pub servers: u32,
}

impl TableIdentity {
    /// The identity of images without an id, made by the only server.
    pub const NONE: TableIdentity = TableIdentity { uid: TableUid::NONE, server: 0, servers: 1 };
}

impl fmt::Display for TableIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableIdentity { uid, server, servers } = self;
        write!(f, "id {uid}, made by server {server} of {servers}")
    }
}

/// The origin of new images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The table's identity. Existing images must have the same.
    pub identity: TableIdentity,
    /// Seed of the births of new images: random, different for each incarnation of a process.
    pub seed: u64,
}

/// What the head of one new image gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageOrigin {
    pub(crate) identity: TableIdentity,
    pub(crate) birth: u64,
}

impl Origin {
    /// The birth of a shard's new image. Never 0.
    pub(crate) fn birth(&self, number: u32) -> u64 {
        let (low, high) = self.identity.uid.0.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or_default());
        let table = mix(word(low) ^ mix(word(high)));
        mix(self.seed ^ mix(table ^ u64::from(number))).max(1)
    }
}
