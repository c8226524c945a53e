//! The name of a push, which makes a resend recognisable.

/// The name of a piece of a push. The rows that a push has in one shard are its *run* there, in the order of the push. A piece
/// of the run is named by the push and by the place of its first row in the run, so the name does not depend on how a push was
/// cut into frames, nor on which thread or server owns the shard.
///
/// In each shard the pieces of a pusher come in ascending order of (seq, row); a higher incarnation fences lower ones.
/// Pushes of training data are named by the data (`seq` = batch), others by a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushName {
    /// Who pushes: a stable identity.
    pub pusher: u64,
    /// Which life of it.
    pub incarnation: u64,
    /// Sequence number.
    pub seq: u64,
    /// How many rows of the run, in the shard of the first key, stand before the first key.
    pub row: u32,
}

/// Pushers from this number on are pieces of data (a task of a pass), not workers: when one is closed nothing of it comes
/// any more, and its entry may become another's.
pub const DATA_PUSHERS: u64 = 1 << 63;
