//! What a follower has not read of its cut.

use crate::cuts::writer::CutFileId;
use std::collections::VecDeque;

/// A cut that a follower reads.
#[derive(Default)]
pub(crate) struct CutStream {
    /// The shards that are not read to their end, with the floats of a row.
    pub(crate) left: Vec<(CutFileId, u32)>,
    /// Blocks that are read, and not sent yet.
    pub(crate) blocks: VecDeque<StreamBlock>,
}

/// Rows of a shard, or keys whose rows were deleted.
pub(crate) struct StreamBlock {
    /// The table's place in the mark.
    pub(crate) place: u32,
    pub(crate) shard: u32,
    pub(crate) keys: Vec<u64>,
    /// The floats of each key. Empty if the rows were deleted.
    pub(crate) rows: Vec<f32>,
    /// Floats of a row. 0: the rows were deleted.
    pub(crate) floats: usize,
}

impl StreamBlock {
    /// Cuts what is behind the first rows of at most `bytes` off.
    pub(crate) fn split(&mut self, bytes: usize) -> Option<StreamBlock> {
        let most = (bytes / (8 + 4 * self.floats)).max(1);
        if self.keys.len() <= most {
            return None;
        }
        let (keys, rows) = (self.keys.split_off(most), self.rows.split_off(most * self.floats));
        Some(StreamBlock { keys, rows, ..*self })
    }
}
