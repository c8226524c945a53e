//! Encodes the rows of a shard as the bytes of a row file. It writes no file: another thread may.

use crate::checkpoint::manifest::FileEntry;
use crate::checkpoint::row_files::row_file::{
    BLOCK_HEAD_BYTES, BlockHead, BlockKind, RowFileHead, RowFileKind,
};
use crate::limits::{CHECKPOINT_BLOCK_BYTES, CHECKPOINT_BLOCK_BYTES_MAX};
use zstd::bulk::Compressor;

/// Blocks of rows that are stored as they are after one that hardly shrank. Floats that were learned hardly shrink, and
/// zstd finds that out at a third of a disk's rate.
const BLOCKS_LEFT_ALONE: u32 = 31;

/// Encodes the rows of one shard. Rows wait in memory until a block of 512 KiB is full. Each call appends whole
/// blocks to `out`, which the caller writes to the file in this order.
///
/// A key stands in a file at most once: as a row or as a deletion.
///
/// ```
/// use gannet_core::{RowFileEncoder, RowFileHead, RowFileKind, TableUid};
///
/// let head = RowFileHead {
///     number: 1,
///     uid: TableUid([7; 16]),
///     table: 0,
///     shard: 0,
///     shards: 1,
///     floats: 2,
///     kind: RowFileKind::Increment,
/// };
/// let mut bytes = Vec::new();
/// let mut encoder = RowFileEncoder::new(head, 1, &mut bytes);
/// encoder.rows(&[5, 6], &[0.5, 1.5, 2.5, 3.5], &mut bytes); // two keys, two floats each
/// encoder.deletions(&[9], &mut bytes);
/// let entry = encoder.finish(&mut bytes);
/// assert_eq!((entry.rows, entry.deletions, entry.bytes), (2, 1, bytes.len() as u64));
/// ```
pub struct RowFileEncoder {
    head: RowFileHead,
    /// The head's checksum, from which all others continue.
    head_crc: u32,
    /// A place for each row of a whole block: keys first, then floats.
    block: Vec<u8>,
    /// Rows of a whole block.
    most: usize,
    /// Rows in the block.
    held: usize,
    /// Keys of deletions that wait, as bytes.
    deleted: Vec<u8>,
    /// `None`: blocks are stored as they are.
    compressor: Option<Compressor<'static>>,
    /// Blocks of rows that are stored as they are before the next try to compress one.
    left_alone: u32,
    /// The place of the next block.
    place: u32,
    entry: FileEntry,
}

impl RowFileEncoder {
    /// An encoder for one file, whose head is appended to `out`. `level` is zstd's level; 0 stores blocks as they
    /// are. A block that does not shrink is stored as it is. After one that shrinks by less than an eighth, the next 31
    /// blocks of rows are too.
    ///
    /// # Panics
    /// When `head` has no floats, more floats than a row can have, or a shard that is not below its number of shards.
    pub fn new(head: RowFileHead, level: i32, out: &mut Vec<u8>) -> RowFileEncoder {
        let bytes = head.encode();
        let head_crc = match RowFileHead::decode(&bytes) {
            Ok((_, crc)) => crc,
            Err(why) => panic!("the head of a row file: {why}"),
        };
        out.extend_from_slice(&bytes);
        let most = (CHECKPOINT_BLOCK_BYTES / head.row_bytes()).max(1);
        let crc = crc32c::crc32c(&bytes);
        let name = head.file_name();
        RowFileEncoder {
            head,
            head_crc,
            block: vec![0; most * head.row_bytes()],
            most,
            held: 0,
            deleted: Vec::new(),
            compressor: if level == 0 { None } else { Compressor::new(level).ok() },
            left_alone: 0,
            place: 0,
            entry: FileEntry { name, bytes: bytes.len() as u64, crc, rows: 0, deletions: 0 },
        }
    }

    /// Adds rows: `floats` holds the head's number of floats for each key, in the order of `keys`.
    ///
    /// # Panics
    /// When `floats` has another length.
    pub fn rows(&mut self, mut keys: &[u64], mut floats: &[f32], out: &mut Vec<u8>) {
        let width = self.head.floats as usize;
        assert_eq!(floats.len(), keys.len() * width, "one row for each key");
        while !keys.is_empty() {
            let now = keys.len().min(self.most - self.held);
            let (head_keys, more_keys) = keys.split_at(now);
            let (head_floats, more_floats) = floats.split_at(now * width);
            let at = self.held * 8;
            self.block[at..at + now * 8].copy_from_slice(bytemuck::cast_slice(head_keys));
            let at = self.most * 8 + self.held * width * 4;
            self.block[at..at + now * width * 4].copy_from_slice(bytemuck::cast_slice(head_floats));
            (keys, floats) = (more_keys, more_floats);
            self.held += now;
            if self.held == self.most {
                self.flush_rows(out);
            }
        }
    }

    /// Adds keys that were deleted since the parent's cut.
    ///
    /// # Panics
    /// When the file is a full one, which has no deletions.
    pub fn deletions(&mut self, keys: &[u64], out: &mut Vec<u8>) {
        assert_eq!(self.head.kind, RowFileKind::Increment, "a full row file has no deletions");
        for keys in keys.chunks(CHECKPOINT_BLOCK_BYTES / 8) {
            self.deleted.extend_from_slice(bytemuck::cast_slice(keys));
            if self.deleted.len() >= CHECKPOINT_BLOCK_BYTES {
                self.flush_deletions(out);
            }
        }
    }

    /// Adds the bytes of the shard's admission sketch. A file has at most one. No bytes are no sketch.
    ///
    /// # Panics
    /// When the sketch has more bytes than [`SKETCH_BYTES_MAX`](crate::limits::SKETCH_BYTES_MAX).
    pub fn sketch(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        assert!(bytes.len() <= crate::limits::SKETCH_BYTES_MAX, "a sketch of {} bytes", bytes.len());
        if !bytes.is_empty() {
            self.append(BlockKind::Sketch, 0, bytes, out);
        }
    }

    /// Appends what waits, and the end of the file. Returns what the manifest says of the file.
    pub fn finish(mut self, out: &mut Vec<u8>) -> FileEntry {
        self.flush_rows(out);
        self.flush_deletions(out);
        let mut end = [0; crate::checkpoint::row_files::row_file::END_BYTES];
        end[..8].copy_from_slice(&self.entry.rows.to_le_bytes());
        end[8..].copy_from_slice(&self.entry.deletions.to_le_bytes());
        self.compressor = None;
        self.append(BlockKind::End, 0, &end, out);
        self.entry
    }

    fn flush_rows(&mut self, out: &mut Vec<u8>) {
        let (held, row) = (self.held, self.head.row_bytes());
        if held == 0 {
            return;
        }
        let mut block = std::mem::take(&mut self.block);
        if held < self.most {
            // Floats follow the keys that are there.
            let from = self.most * 8;
            block.copy_within(from..from + held * (row - 8), held * 8);
        }
        self.append(BlockKind::Rows, held, &block[..held * row], out);
        (self.block, self.held) = (block, 0);
        self.entry.rows += held as u64;
    }

    fn flush_deletions(&mut self, out: &mut Vec<u8>) {
        let mut deleted = std::mem::take(&mut self.deleted);
        for keys in deleted.chunks(CHECKPOINT_BLOCK_BYTES) {
            self.append(BlockKind::Deletions, keys.len() / 8, keys, out);
        }
        self.entry.deletions += deleted.len() as u64 / 8;
        deleted.clear();
        self.deleted = deleted;
    }

    /// Appends a block. The numbers fit: a payload has at most `CHECKPOINT_BLOCK_BYTES_MAX` bytes.
    fn append(&mut self, kind: BlockKind, count: usize, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert!(payload.len() <= CHECKPOINT_BLOCK_BYTES_MAX);
        let start = out.len();
        let at = start + BLOCK_HEAD_BYTES;
        let tried = kind != BlockKind::Rows || self.left_alone == 0;
        let shrunk = self.compressor.as_mut().filter(|_| tried).and_then(|compressor| {
            // The place is one byte too short for a payload that does not shrink.
            out.resize(at + payload.len() - 1, 0);
            compressor.compress_to_buffer(payload, &mut out[at..]).ok()
        });
        if kind == BlockKind::Rows {
            let worth = shrunk.is_some_and(|bytes| bytes <= payload.len() / 8 * 7);
            self.left_alone = match tried {
                true if worth => 0,
                true => BLOCKS_LEFT_ALONE,
                false => self.left_alone - 1,
            };
        }
        match shrunk {
            Some(bytes) => out.truncate(at + bytes),
            None => {
                out.resize(at, 0);
                out.extend_from_slice(payload);
            }
        }
        let head = BlockHead {
            kind,
            count: count as u32,
            raw: payload.len() as u32,
            stored: (out.len() - at) as u32,
            crc: crc32c::crc32c_append(self.head_crc, &out[at..]),
            place: self.place,
        };
        out[start..at].copy_from_slice(&head.encode(self.head_crc));
        self.entry.crc = crc32c::crc32c_append(self.entry.crc, &out[start..]);
        self.entry.bytes += (out.len() - start) as u64;
        self.place += 1;
    }
}
