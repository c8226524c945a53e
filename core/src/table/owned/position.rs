//! Places in the history of a shard.

use crate::schema::identity::TableUid;

/// The epoch of every history, until a shard can change its owner.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// A place in the history of a shard. Two positions can be compared when table, shard, birth and epoch agree.
///
/// ```
/// use gannet_core::{PushName, Schema, Shards, Store, Write};
/// use gannet_optim::{Add, Rule};
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let before = shards.positions()[0];
/// shards.push(&PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 }, Write::Gradient, &[7], None, &[1.0])?;
/// let after = shards.positions()[0];
/// assert!(before.is_comparable(&after) && before.command < after.command);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The table's id.
    pub table: TableUid,
    /// The shard's number.
    pub shard: u32,
    /// The birth of the shard's image: a random number that was drawn when the image was made.
    pub birth: u64,
    /// The epoch of the history. It is 1 as long as the shard keeps its owner.
    pub epoch: u64,
    /// The number of the last command.
    pub command: u64,
}

impl Position {
    /// Whether both positions are of one history.
    pub fn is_comparable(&self, other: &Position) -> bool {
        let of = |p: &Position| (p.table, p.shard, p.birth, p.epoch);
        of(self) == of(other)
    }
}
