//! The bytes of a row file: its head, the heads of its blocks, its end. docs/checkpoint.md has the tables.
//!
//! All checksums after the head continue the one in the head. So a block of another file, or one at another place, does
//! not match.

use crate::limits::{CHECKPOINT_BLOCK_BYTES_MAX, DIM_MAX, SHARDS_MAX};
use crate::schema::identity::TableUid;

pub(crate) const MAGIC: &[u8; 8] = b"GANNETSR";
const VERSION: u32 = 1;
/// Bytes of a row file before its first block.
pub(crate) const HEAD_BYTES: usize = 64;
/// Bytes of a block before its payload.
pub(crate) const BLOCK_HEAD_BYTES: usize = 32;
/// Bytes of the end's payload: rows and deletions.
pub(crate) const END_BYTES: usize = 16;
/// The most floats of a row: the weights, and three planes of state.
pub(crate) const FLOATS_MAX: u32 = 4 * DIM_MAX + 64;

const _: () = assert!(FLOATS_MAX as usize * 4 + 8 <= CHECKPOINT_BLOCK_BYTES_MAX);

/// What a row file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFileKind {
    /// Every row of the shard.
    Full,
    /// The rows that changed since the parent's cut, and the keys that were deleted.
    Increment,
}

/// Which rows a file holds. A writer stores it, and a reader refuses a file that says something else.
/// [`RowFileEncoder`](crate::RowFileEncoder) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFileHead {
    /// The number of the checkpoint.
    pub number: u64,
    /// The table's id.
    pub uid: TableUid,
    /// The table's place in the manifest, from 0 on.
    pub table: u32,
    /// The shard.
    pub shard: u32,
    /// The shards of the table: a power of two.
    pub shards: u32,
    /// Floats of a stored row ([`Schema::floats`](crate::Schema::floats)).
    pub floats: u32,
    /// All rows, or those that changed.
    pub kind: RowFileKind,
}

fn head_word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

fn head_long(bytes: &[u8], at: usize) -> u64 {
    u64::from(head_word(bytes, at)) | u64::from(head_word(bytes, at + 4)) << 32
}

impl RowFileHead {
    /// The name of the file in the checkpoint's folder: `t00-0003.rows` for shard 3 of table 0.
    pub fn file_name(&self) -> String {
        format!("t{:02}-{:04}.rows", self.table, self.shard)
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        let kind = match self.kind {
            RowFileKind::Full => 0u32,
            RowFileKind::Increment => 1,
        };
        out[..8].copy_from_slice(MAGIC);
        let words = [VERSION, kind, self.table, self.shard, self.shards, self.floats];
        for (place, word) in out[8..32].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..56].copy_from_slice(&self.uid.0);
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The head, and the checksum in it: that of the bytes before it. (Continued over itself, every CRC is the same
    /// constant, so it must not be.)
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(RowFileHead, u32), String> {
        if bytes[..8] != *MAGIC {
            return Err("this is not a row file of a checkpoint".into());
        }
        if head_word(bytes, 8) != VERSION {
            let version = head_word(bytes, 8);
            return Err(format!("its version is {version}, but this version of gannet reads {VERSION}"));
        }
        let crc = crc32c::crc32c(&bytes[..60]);
        if head_word(bytes, 60) != crc {
            return Err("the checksum of its head is wrong".into());
        }
        let kind = match head_word(bytes, 12) {
            0 => RowFileKind::Full,
            1 => RowFileKind::Increment,
            other => return Err(format!("its kind is {other}, which is none")),
        };
        let mut uid = TableUid::NONE;
        uid.0.copy_from_slice(&bytes[40..56]);
        let (table, shard) = (head_word(bytes, 16), head_word(bytes, 20));
        let (shards, floats, number) = (head_word(bytes, 24), head_word(bytes, 28), head_long(bytes, 32));
        let sound = shards.is_power_of_two() && shards <= SHARDS_MAX && shard < shards;
        if !sound || floats == 0 || floats > FLOATS_MAX {
            return Err(format!("its head says shard {shard} of {shards} and {floats} floats a row"));
        }
        Ok((RowFileHead { number, uid, table, shard, shards, floats, kind }, crc))
    }

    /// How the head of a file differs from what was expected. `None`: it does not.
    pub(crate) fn differs_from(&self, expected: &RowFileHead) -> Option<String> {
        if self == expected {
            return None;
        }
        let words = |head: &RowFileHead| {
            let RowFileHead { number, uid, table, shard, shards, floats, kind } = head;
            let kind = match kind {
                RowFileKind::Full => "all rows",
                RowFileKind::Increment => "changed rows",
            };
            format!(
                "{kind} of shard {shard} of {shards} of table {table} (id {uid}) with {floats} floats a row, of \
                 checkpoint {number}"
            )
        };
        let (holds, wants) = (words(self), words(expected));
        Some(format!("it holds {holds}; the manifest says {wants}: the file belongs elsewhere"))
    }

    /// Bytes of a row in a block: its key and its floats.
    pub(crate) fn row_bytes(&self) -> usize {
        8 + 4 * self.floats as usize
    }
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Rows,
    Deletions,
    Sketch,
    End,
}

/// A block before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) kind: BlockKind,
    /// Keys in it.
    pub(crate) count: u32,
    /// Bytes of the payload before compression.
    pub(crate) raw: u32,
    /// Bytes of the payload in the file. Fewer than `raw`: it is compressed.
    pub(crate) stored: u32,
    /// CRC32C of the stored payload, continued from the file's head.
    pub(crate) crc: u32,
    /// The place of the block in the file, from 0 on.
    pub(crate) place: u32,
}

impl BlockHead {
    pub(crate) fn encode(&self, file_crc: u32) -> [u8; BLOCK_HEAD_BYTES] {
        let kind = match self.kind {
            BlockKind::Rows => 1u32,
            BlockKind::Deletions => 2,
            BlockKind::Sketch => 3,
            BlockKind::End => 4,
        };
        let mut out = [0; BLOCK_HEAD_BYTES];
        let words = [kind, self.count, self.raw, self.stored, self.crc, self.place, 0];
        for (place, word) in out.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(file_crc, &out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The head of the block at `place`, whose numbers fit each other and `file`.
    pub(crate) fn decode(
        bytes: &[u8; BLOCK_HEAD_BYTES],
        file: &RowFileHead,
        file_crc: u32,
        place: u32,
    ) -> Result<BlockHead, String> {
        if head_word(bytes, 28) != crc32c::crc32c_append(file_crc, &bytes[..28]) {
            return Err("the checksum of the block's head is wrong".into());
        }
        let kind = match head_word(bytes, 0) {
            1 => BlockKind::Rows,
            2 => BlockKind::Deletions,
            3 => BlockKind::Sketch,
            4 => BlockKind::End,
            other => return Err(format!("the block's kind is {other}, which is none")),
        };
        let [count, raw, stored, crc, own] = [4, 8, 12, 16, 20].map(|at| head_word(bytes, at));
        let head = BlockHead { kind, count, raw, stored, crc, place };
        if own != place {
            return Err(format!("block {own} stands where block {place} belongs"));
        }
        let keys = u64::from(count);
        let fits = match kind {
            BlockKind::Rows => count > 0 && u64::from(raw) == keys * file.row_bytes() as u64,
            BlockKind::Deletions => {
                count > 0 && u64::from(raw) == keys * 8 && file.kind == RowFileKind::Increment
            }
            BlockKind::Sketch => count == 0 && raw > 0,
            BlockKind::End => count == 0 && raw as usize == END_BYTES && stored == raw,
        };
        if !fits || stored > raw || stored == 0 || raw as usize > CHECKPOINT_BLOCK_BYTES_MAX {
            return Err(format!(
                "the block of {count} keys, {raw} bytes and {stored} stored bytes cannot be"
            ));
        }
        Ok(head)
    }
}
