//! The state of a cut while it is read: how far the reader is, and the rows that changed before it reached them.

/// A cut of a shard that is being read.
#[derive(Default)]
pub(crate) struct Cut {
    /// Only what changed above this command; 0: everything.
    pub(crate) from: u64,
    /// The next slot to read, and the end of the slots that were in use at the mark.
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// If the page of `next` was read from its first slot on: the highest version that was read of it, and what the
    /// shard's [`PageVersions`](super::page_versions::PageVersions) had for it at the first slot.
    pub(crate) page: Option<(u64, u64)>,
    /// Rows that changed before they were read: keys, and the floats of each.
    pub(crate) keys: Vec<u64>,
    pub(crate) rows: Vec<f32>,
    pub(crate) floats: usize,
}
