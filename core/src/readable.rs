//! What of the shards a device may read on behalf of another machine: each image's header, and the extents of its rows.
//! Whole extents only, so that one registration stands for each of them for good: their number is constant once the table
//! stops growing. The index is not among it: slots come with an answer to an earlier pull.

use crate::glimpse::{HEADER_LINE_AT, HEADER_LINE_BYTES};
use crate::table::Shards;
use std::ops::Range;

/// A stretch of memory of this process. It stays where it is, allocated, while the shards live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it starts, among the bytes of what it is a part of.
    pub offset: u64,
    /// Its address in this process.
    pub addr: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// One shard, as [`Glimpse`](crate::Glimpse) reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readable {
    /// Which shard.
    pub shard: u32,
    /// This life of it.
    pub incarnation: u64,
    /// The first bytes of the image's header; what [`is_served`](crate::is_served) looks at stands
    /// [`HEADER_LINE_AT`](crate::HEADER_LINE_AT) behind its start.
    pub header: Stretch,
    /// Its rows, in ascending order of their offsets ([`Glimpse::offset`](crate::Glimpse::offset)); a row may stand across two.
    pub rows: Vec<Stretch>,
}

/// What is registered of a header: a page.
const HEADER_BYTES: usize = 4096;
const _: () = assert!(HEADER_LINE_AT + HEADER_LINE_BYTES <= HEADER_BYTES);

impl Shards {
    /// What of these shards a device may read. The last extent of each shard is made whole for it, which takes up to a quarter of the rows'
    /// memory ahead of its use; where a limit forbids that, or much is missing and the grower is still at it, the extent is
    /// left out: its rows are to be asked for. Ask again, now and then, while [`row_extents`](Self::row_extents) is above what
    /// was listed.
    ///
    /// Registered memory must be let go of before the shards are dropped.
    pub fn readable(&mut self, of: Range<u32>) -> Vec<Readable> {
        let mut all = Vec::with_capacity(of.len());
        for shard in self.shards.iter().filter(|shard| of.contains(&shard.number)) {
            if let Err(error) = shard.image.make_whole() {
                tracing::debug!(shard = shard.number, %error, "the last extent of rows is not readable from afar");
            }
            let header = Stretch { offset: 0, addr: shard.image.header_addr(), bytes: HEADER_BYTES };
            let extents = shard.image.whole_extents().into_iter();
            let rows = extents.map(|(at, addr, bytes)| Stretch { offset: at as u64, addr, bytes }).collect();
            all.push(Readable { shard: shard.number, incarnation: shard.incarnation(), header, rows });
        }
        all
    }

    /// Extents of rows that these shards have, whole or not: a look at each shard's directory.
    pub fn row_extents(&self) -> usize {
        self.shards.iter().map(|shard| shard.image.row_extents()).sum()
    }
}
