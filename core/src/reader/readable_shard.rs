//! What of the shards a device may read on behalf of another machine: each image's header, and its rows in stretches. What was
//! listed once stays so for good, so that one registration stands for it: their number is constant once the table stops
//! growing. The index is not among it: slots come with an answer to an earlier pull.
//!
//! A stretch ends where its extent does, or, in the small extents of a shard that begins, at the next mark: 64, 96, 128, 192,
//! 256 KiB and so on. Memory that is registered is taken: a table of a few rows takes 4 MiB of its 64 shards then, not 128.

use crate::error::GrowError;
use crate::image::owned_image::Image;
use crate::limits::READABLE_BYTES_MIN;
use crate::reader::remote_row_reader::{HEADER_LINE_AT, HEADER_LINE_BYTES};
use crate::table::shards::Shards;
use std::ops::Range;

/// A stretch of memory of this process. It stays where it is, allocated, while the shards live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Where it starts, among the bytes of what it is a part of.
    pub offset: u64,
    /// Its address in this process.
    pub addr: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// One shard, as [`Glimpse`](crate::Glimpse) reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadableShard {
    /// Which shard.
    pub shard: u32,
    /// This life of it.
    pub incarnation: u64,
    /// The first bytes of the image's header; what [`is_served`](crate::is_served) looks at stands
    /// [`HEADER_LINE_AT`](crate::HEADER_LINE_AT) behind its start.
    pub header: MemoryRange,
    /// Its rows, in ascending order of their offsets ([`Glimpse::offset`](crate::Glimpse::offset)); a row may stand across two.
    pub rows: Vec<MemoryRange>,
}

/// What is registered of a header: a page.
const HEADER_BYTES: usize = 4096;
const _: () = assert!(HEADER_LINE_AT + HEADER_LINE_BYTES <= HEADER_BYTES);

impl Shards {
    /// What of these shards a device may read. Each shard's rows are made ready up to the end of the last stretch for it, which takes up
    /// to half of their memory ahead of its use, a quarter in shards from 16 MiB of rows on; where a limit forbids that, or much is missing and the grower is still at it, the stretch is
    /// left out: its rows are to be asked for. Ask again, now and then, while rows stand behind what was listed.
    ///
    /// Registered memory must be let go of before the shards are dropped.
    pub fn readable(&mut self, of: Range<u32>) -> Vec<ReadableShard> {
        let mut all = Vec::with_capacity(of.len());
        for shard in self.shards.iter_mut().filter(|shard| of.contains(&shard.number)) {
            if let Err(error) = list(&shard.image, &mut shard.listed) {
                tracing::debug!(shard = shard.number, %error, "the last rows are not readable from afar");
            }
            let header = MemoryRange { offset: 0, addr: shard.image.header_addr(), bytes: HEADER_BYTES };
            let mut from = 0;
            let rows = shard.listed.iter().map(|&end| {
                let offset = std::mem::replace(&mut from, end);
                MemoryRange {
                    offset: offset as u64,
                    addr: shard.image.rows_addr() + offset,
                    bytes: end - offset,
                }
            });
            let rows = rows.collect();
            all.push(ReadableShard { shard: shard.number, incarnation: shard.incarnation(), header, rows });
        }
        all
    }
}

/// Lists the stretches behind those that are listed, as far as there are rows.
fn list(image: &Image, listed: &mut Vec<usize>) -> Result<(), GrowError> {
    let rows = image.row_bytes();
    for (at, bytes) in image.row_extents() {
        while listed.last().copied().unwrap_or(0) < rows.min(at + bytes) {
            let end = mark(rows).min(at + bytes);
            if !image.make_ready(end)? {
                return Ok(());
            }
            listed.push(end);
        }
    }
    Ok(())
}

/// The next mark for so many bytes of rows: two lie in each doubling.
fn mark(bytes: usize) -> usize {
    if bytes <= READABLE_BYTES_MIN {
        return READABLE_BYTES_MIN;
    }
    bytes.next_multiple_of((1 << bytes.ilog2()) / 2)
}

#[cfg(test)]
mod tests {
    use super::mark;

    #[test]
    fn marks_are_few_and_near() {
        let (mut end, mut marks) = (0, Vec::new());
        while end < 2 << 20 {
            let next = mark(end + 1);
            assert!(next > end && next.is_multiple_of(4096));
            assert!(next <= (64 << 10).max((end + 1) * 3 / 2), "{end}: {next}");
            assert_eq!((mark(next), mark(next - 1)), (next, next));
            marks.push(next >> 10);
            end = next;
        }
        assert_eq!(marks, [64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048]);
    }
}
