//! The memory that an RDMA device may read on behalf of another machine: each image's header, and its rows in
//! stretches. A listed stretch never moves or changes its size, so it is registered once. The number of
//! stretches is constant once the table stops growing. The index is not listed: a reader knows a row's slot
//! from the answer to an earlier pull.
//!
//! A stretch ends at the end of its extent. In the small extents of a new shard it ends at the next mark: 64,
//! 96, 128, 192, 256 KiB and so on. Registered memory is pinned. With these marks, a table of a few rows in 64
//! shards pins 4 MiB instead of 128.

use crate::error::GrowError;
use crate::image::owned_image::Image;
use crate::limits::READABLE_BYTES_MIN;
use crate::reader::remote_row_reader::{HEADER_LINE_AT, HEADER_LINE_BYTES};
use crate::schema::shard_set::ShardSet;
use crate::table::owned::shards::Shards;

/// A range of memory of this process. It stays allocated at its address until the shards are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its offset in the header or in the rows.
    pub offset: u64,
    /// Its address in this process.
    pub addr: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

/// One shard, as [`RemoteRowReader`](crate::RemoteRowReader) reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadableShard {
    /// Which shard.
    pub shard: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// The first bytes of the image's header. The line that [`is_served`](crate::is_served) reads is at
    /// [`HEADER_LINE_AT`](crate::HEADER_LINE_AT).
    pub header: MemoryRange,
    /// Its rows, by ascending offset ([`RemoteRowReader::offset`](crate::RemoteRowReader::offset)). A row may
    /// cross the boundary of two ranges.
    pub rows: Vec<MemoryRange>,
}

/// Bytes of a header that are registered: a page.
const HEADER_BYTES: usize = 4096;
const _: () = assert!(HEADER_LINE_AT + HEADER_LINE_BYTES <= HEADER_BYTES);

impl Shards {
    /// Lists what a device may read of the shards in `of`. Each shard's rows are made ready up to the end of
    /// their last stretch. This takes up to half of their memory ahead of its use, and a quarter in shards from
    /// 16 MiB of rows on. A stretch is left out if a limit forbids it, or if many bytes are missing and the
    /// grower is still preparing them. Its rows must then be pulled. Call this again now and then while there
    /// are rows past the listed stretches.
    ///
    /// Registered memory must be released before the shards are dropped.
    pub fn readable(&mut self, of: &ShardSet) -> Vec<ReadableShard> {
        let mut all = Vec::with_capacity(of.len());
        for shard in self.shards.iter_mut().filter(|shard| of.contains(shard.number)) {
            if let Err(error) = list(&shard.image, &mut shard.listed) {
                tracing::debug!(shard = shard.number, %error, "the last rows are not readable over RDMA");
            }
            let header = MemoryRange { offset: 0, addr: shard.image.header_addr(), bytes: HEADER_BYTES };
            let mut from = 0;
            let rows = shard.listed.iter().map(|&(end, addr)| {
                let offset = std::mem::replace(&mut from, end);
                MemoryRange { offset: offset as u64, addr, bytes: end - offset }
            });
            let rows = rows.collect();
            all.push(ReadableShard { shard: shard.number, incarnation: shard.incarnation(), header, rows });
        }
        all
    }
}

/// Lists the stretches that follow the listed ones, up to the last row.
fn list(image: &Image, listed: &mut Vec<(usize, usize)>) -> Result<(), GrowError> {
    let rows = image.row_bytes();
    let mut from = listed.last().map_or(0, |&(end, _)| end);
    for (at, bytes) in image.row_extents() {
        while from < rows.min(at + bytes) {
            let end = mark(rows).min(at + bytes);
            if !image.make_ready(end)? {
                return Ok(());
            }
            listed.push((end, image.rows_addr() + from));
            from = end;
        }
    }
    Ok(())
}

/// The first mark at or above `bytes` of rows. There are two marks in each doubling.
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
