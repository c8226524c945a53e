//! The name of a push, by which a shard recognises a resend.

/// The name of a part of a push. The rows that a push has in one shard are its *run* there, in the order of the
/// push. The name of a part of the run consists of the push and the position of the part's first row in the
/// run. So it does not depend on how the push was divided into frames, nor on which thread or server owns the
/// shard.
///
/// Each shard receives the parts of a pusher in ascending order of (seq, row). A higher incarnation fences
/// lower ones. For a push of training data, `seq` is the number of the batch in its split; for other pushes it
/// is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushName {
    /// The pusher: a stable number.
    pub pusher: u64,
    /// The pusher's incarnation.
    pub incarnation: u64,
    /// Sequence number.
    pub seq: u64,
    /// How many rows of the run, in the shard of the first key, come before the first key.
    pub row: u32,
}

/// Pushers from this number on are splits of the data (in one pass), not workers. After such a pusher is
/// closed, it never pushes again, and its entry may be reused.
pub const DATA_PUSHERS: u64 = 1 << 63;
