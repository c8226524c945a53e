//! The state of a cut while it is read: how far the reader is, and the rows that changed before it reached them.

use crate::table::owned::slots::SlotRange;

/// A cut of a shard that is being read.
#[derive(Default)]
pub(crate) struct Cut {
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
