//! The name of a push, by which a shard recognises a resend.

/// The name of a part of a push. The rows that a push has in one shard are its *run* there, in the order of the push. A
/// part of the run is named by the push and by the place of its first row in the run. So the name does not depend on
/// how a push was cut into frames, nor on the thread or server that owns the shard.
///
/// Each shard gets the parts of a pusher in ascending order of (seq, row). A higher incarnation fences lower ones.
/// Pushes of training data are named by the data (`seq` is the batch), other pushes by a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushName {
    /// The pusher: a stable number.
    pub pusher: u64,
    /// The pusher's incarnation.
    pub incarnation: u64,
    /// Sequence number.
    pub seq: u64,
    /// How many rows of the run, in the shard of the first key, stand before the first key.
    pub row: u32,
}

/// Pushers from this number on are splits of the data (in one pass), not workers. After such a pusher is closed, no
/// push of it comes any more, and its entry may be reused.
pub const DATA_PUSHERS: u64 = 1 << 63;
