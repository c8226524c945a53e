//! The state of a cut while it is read: how far the reader is, and the rows that changed before it reached them.

use crate::table::owned::slots::SlotRange;

/// Who reads a cut. Each reader has one cut of a shard at most. [`Shards::mark_cut`](crate::Shards::mark_cut) has an
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutReader {
    /// A checkpoint.
    Checkpoint,
    /// The follower with this number.
    Follower(u64),
}

/// A cut of a shard that is being read.
pub(crate) struct Cut {
    pub(crate) reader: CutReader,
    /// Only what changed above this command; 0: everything.
    pub(crate) from: u64,
    /// The command at which the cut was marked.
    pub(crate) at: u64,
    /// The slots that were in use at the mark and have not been read.
    pub(crate) slots: SlotRange,
    /// Rows that changed before they were read: keys, and the floats of each.
    pub(crate) keys: Vec<u64>,
    pub(crate) rows: Vec<f32>,
    pub(crate) floats: usize,
}
