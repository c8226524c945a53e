//! Reads a row file block by block. Nothing of a block is handed out before its checksum is right.

use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::FileEntry;
use crate::checkpoint::row_files::row_file::{
    BLOCK_HEAD_BYTES, BlockHead, BlockKind, END_BYTES, HEAD_BYTES, RowFileHead,
};
use crate::hash::{hash, shard_of};
use crate::limits::SKETCH_BYTES_MAX;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zstd::bulk::Decompressor;

/// A block of a row file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowBlock<'a> {
    /// Rows.
    Rows {
        /// Their keys.
        keys: &'a [u64],
        /// The floats of each row, in the order of `keys`.
        floats: &'a [f32],
    },
    /// Keys that were deleted since the parent's cut.
    Deletions {
        /// The keys.
        keys: &'a [u64],
    },
    /// The bytes of the shard's admission sketch.
    Sketch(&'a [u8]),
}

/// Reads the row file of one shard. It holds one block in memory. [`RowFileWriter`](crate::RowFileWriter) has an
/// example.
///
/// A block's checksum is checked before the block is handed out. The checksum of the whole file and the number of
/// rows are checked at the end: use the rows only after [`next`](Self::next) has answered `None`.
pub struct RowFileReader<R> {
    input: R,
    path: PathBuf,
    head: RowFileHead,
    entry: FileEntry,
    /// The head's checksum, from which those of the blocks continue.
    head_crc: u32,
    /// The checksum of all bytes so far.
    crc: u32,
    /// Bytes so far.
    read: u64,
    /// The place of the next block.
    place: u32,
    rows: u64,
    deletions: u64,
    sketches: u32,
    ended: bool,
    decompressor: Option<Decompressor<'static>>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    keys: Vec<u64>,
    floats: Vec<f32>,
}

impl<R: Read> RowFileReader<R> {
    /// Reads a file's bytes from `input`. Errors call it `path`.
    ///
    /// # Errors
    /// Its head cannot be read, is damaged, or is that of another file.
    pub fn new(
        input: R,
        path: &Path,
        expected: &RowFileHead,
        entry: &FileEntry,
    ) -> Result<RowFileReader<R>, CheckpointDirError> {
        let mut reader = RowFileReader {
            input,
            path: path.into(),
            head: *expected,
            entry: entry.clone(),
            head_crc: 0,
            crc: 0,
            read: 0,
            place: 0,
            rows: 0,
            deletions: 0,
            sketches: 0,
            ended: false,
            decompressor: None,
            stored: Vec::new(),
            raw: Vec::new(),
            keys: Vec::new(),
            floats: Vec::new(),
        };
        let mut head = [0; HEAD_BYTES];
        reader.fill(&mut head)?;
        let (found, crc) = RowFileHead::decode(&head).map_err(|why| reader.damaged(why))?;
        if let Some(why) = found.differs_from(expected) {
            return Err(reader.damaged(why));
        }
        (reader.head_crc, reader.crc) = (crc, crc32c::crc32c(&head));
        Ok(reader)
    }

    /// The next block; `None` after the end of a whole file. After an error it is called no more.
    ///
    /// # Errors
    /// The file cannot be read, is torn, or is damaged.
    #[allow(clippy::should_implement_trait)] // a block borrows from the reader
    pub fn next(&mut self) -> Result<Option<RowBlock<'_>>, CheckpointDirError> {
        if self.ended {
            return Ok(None);
        }
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        self.fill(&mut bytes)?;
        let head = BlockHead::decode(&bytes, &self.head, self.head_crc, self.place);
        let head = head.map_err(|why| self.damaged_block(&why))?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes);
        self.payload(&head)?;
        self.place += 1;
        let count = head.count as usize;
        match head.kind {
            BlockKind::Rows => {
                self.take_keys(count)?;
                self.rows += u64::from(head.count);
                let floats = &self.raw[8 * count..];
                self.floats.clear();
                self.floats.extend(
                    floats.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default())),
                );
                Ok(Some(RowBlock::Rows { keys: &self.keys, floats: &self.floats }))
            }
            BlockKind::Deletions => {
                self.take_keys(count)?;
                self.deletions += u64::from(head.count);
                Ok(Some(RowBlock::Deletions { keys: &self.keys }))
            }
            BlockKind::Sketch => {
                self.sketches += 1;
                if self.sketches > 1 || self.raw.len() > SKETCH_BYTES_MAX {
                    return Err(
                        self.damaged_block("it is a second admission sketch, or one that is too long")
                    );
                }
                Ok(Some(RowBlock::Sketch(&self.raw)))
            }
            BlockKind::End => self.end().map(|()| None),
        }
    }

    /// Reads the payload of a block into `raw`.
    fn payload(&mut self, head: &BlockHead) -> Result<(), CheckpointDirError> {
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(head.stored as usize, 0);
        self.fill(&mut stored)?;
        if crc32c::crc32c_append(self.head_crc, &stored) != head.crc {
            return Err(self.damaged_block("its checksum is wrong"));
        }
        self.crc = crc32c::crc32c_append(self.crc, &stored);
        if head.stored == head.raw {
            (self.raw, self.stored) = (stored, std::mem::take(&mut self.raw));
            return Ok(());
        }
        self.raw.resize(head.raw as usize, 0);
        if self.decompressor.is_none() {
            let made = Decompressor::new().map_err(CheckpointDirError::io("decompressing", &self.path))?;
            self.decompressor = Some(made);
        }
        let (decompressor, raw) = (self.decompressor.as_mut(), &mut self.raw[..]);
        let length = decompressor.and_then(|d| d.decompress_to_buffer(&stored, raw).ok());
        if length != Some(head.raw as usize) {
            return Err(self.damaged_block("it cannot be decompressed"));
        }
        self.stored = stored;
        Ok(())
    }

    /// Takes the keys of a block, which must belong to the shard.
    fn take_keys(&mut self, count: usize) -> Result<(), CheckpointDirError> {
        let keys = &self.raw[..8 * count];
        self.keys.clear();
        self.keys.extend(keys.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())));
        let (shard, shards) = (self.head.shard, self.head.shards);
        match self.keys.iter().find(|&&key| shard_of(hash(key), shards) != shard) {
            None => Ok(()),
            Some(&key) => {
                let of = shard_of(hash(key), shards);
                let why = format!("key {key} is of shard {of}, and the file is that of shard {shard}");
                Err(self.damaged(why))
            }
        }
    }

    /// Checks the end: the counts, the length and the checksum of the whole file.
    fn end(&mut self) -> Result<(), CheckpointDirError> {
        let counts: Vec<u64> = self.raw[..END_BYTES]
            .chunks_exact(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
            .collect();
        let entry = &self.entry;
        if counts != [self.rows, self.deletions] || counts != [entry.rows, entry.deletions] {
            let (rows, deletions) = (self.rows, self.deletions);
            let why = format!(
                "it has {rows} rows and {deletions} deletions, but {} and {} were saved",
                entry.rows, entry.deletions
            );
            return Err(self.damaged(why));
        }
        let mut more = [0];
        let after = self.input.read(&mut more).map_err(CheckpointDirError::io("reading", &self.path))?;
        if after > 0 || self.read != entry.bytes {
            let (read, saved) = (self.read, entry.bytes);
            return Err(self.damaged(format!("the file ends after {read} bytes, but {saved} were saved")));
        }
        if self.crc != entry.crc {
            return Err(self.damaged("the checksum of the whole file is not that of the manifest".into()));
        }
        self.ended = true;
        Ok(())
    }

    /// Reads bytes, all of them.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), CheckpointDirError> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.read += bytes.len() as u64;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(format!("the file is cut short after byte {}", self.read)))
            }
            Err(e) => Err(CheckpointDirError::io("reading", &self.path)(e)),
        }
    }

    fn damaged(&self, why: String) -> CheckpointDirError {
        CheckpointDirError::damaged(&self.path, why)
    }

    fn damaged_block(&self, why: &str) -> CheckpointDirError {
        self.damaged(format!("block {}, which ends near byte {}: {why}", self.place, self.read))
    }
}
