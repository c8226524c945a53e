//! Writes a row file: what the encoder makes, to the store and durable.

use crate::checkpoint::directory::CheckpointDir;
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::FileEntry;
use crate::checkpoint::names::folder_name;
use crate::checkpoint::row_files::encoder::RowFileEncoder;
use crate::checkpoint::row_files::row_file::RowFileHead;
use crate::checkpoint::stores::store::StoreWriter;
use crate::limits::CHECKPOINT_BLOCK_BYTES;
use rustix::process::{Resource, getrlimit};
use std::path::PathBuf;

/// Writes the rows of one shard to a file. Errors name the file.
///
/// ```
/// use gannet_core::{CheckpointDir, RowBlock, RowFileHead, RowFileKind, RowFileWriter, TableUid};
///
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::create(folder.path())?;
/// let draft = directory.begin()?;
/// let (number, uid, kind) = (draft.number(), TableUid([7; 16]), RowFileKind::Full);
/// let head = RowFileHead { number, uid, table: 0, shard: 0, shards: 1, floats: 1, kind };
/// let mut writer = RowFileWriter::create(&directory, head, 1)?;
/// writer.rows(&[5, 6], &[0.5, 1.5])?;
/// let entry = writer.finish()?; // durable
///
/// let mut reader = directory.row_file(head, &entry).open()?;
/// assert!(matches!(reader.next()?, Some(RowBlock::Rows { keys: &[5, 6], floats: &[0.5, 1.5] })));
/// assert!(reader.next()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowFileWriter {
    encoder: RowFileEncoder,
    file: Box<dyn StoreWriter>,
    path: PathBuf,
    /// Whole blocks that are not written yet.
    encoded: Vec<u8>,
}

impl RowFileWriter {
    /// Makes the file [`RowFileHead::file_name`] in the folder of checkpoint [`RowFileHead::number`], which was begun
    /// ([`CheckpointDir::begin`]). `level` is that of [`RowFileEncoder::new`].
    ///
    /// # Errors
    /// The file exists or cannot be made.
    ///
    /// # Panics
    /// Where [`RowFileEncoder::new`] does.
    pub fn create(
        directory: &CheckpointDir,
        head: RowFileHead,
        level: i32,
    ) -> Result<RowFileWriter, CheckpointDirError> {
        let path = directory.folder(head.number).join(head.file_name());
        let file = directory.store().create(&folder_name(head.number), &head.file_name());
        let file = file.map_err(CheckpointDirError::io("making", &path))?;
        let mut encoded = Vec::new();
        let encoder = RowFileEncoder::new(head, level, &mut encoded);
        Ok(RowFileWriter { encoder, file, path, encoded })
    }

    /// Adds rows, as [`RowFileEncoder::rows`] does.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// When `floats` has another length.
    pub fn rows(&mut self, keys: &[u64], floats: &[f32]) -> Result<(), CheckpointDirError> {
        self.encoder.rows(keys, floats, &mut self.encoded);
        self.write(CHECKPOINT_BLOCK_BYTES)
    }

    /// Adds deleted keys, as [`RowFileEncoder::deletions`] does.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// When the file is a full one.
    pub fn deletions(&mut self, keys: &[u64]) -> Result<(), CheckpointDirError> {
        self.encoder.deletions(keys, &mut self.encoded);
        self.write(CHECKPOINT_BLOCK_BYTES)
    }

    /// Adds the shard's admission sketch, as [`RowFileEncoder::sketch`] does.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// When the sketch is too long.
    pub fn sketch(&mut self, bytes: &[u8]) -> Result<(), CheckpointDirError> {
        self.encoder.sketch(bytes, &mut self.encoded);
        self.write(CHECKPOINT_BLOCK_BYTES)
    }

    /// Writes the rest and makes the file durable. Returns what the manifest says of it.
    ///
    /// # Errors
    /// The file cannot be written, or may not be durable.
    pub fn finish(self) -> Result<FileEntry, CheckpointDirError> {
        self.end()?.finish()
    }

    /// Writes the rest. Of several files it is faster to [end](Self::end) all, and then to
    /// [finish](EndedRowFile::finish) all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(mut self) -> Result<EndedRowFile, CheckpointDirError> {
        let entry = self.encoder.finish(&mut self.encoded);
        let written = self.file.write(self.encoded).and_then(|_| self.file.end());
        written.map_err(CheckpointDirError::io("writing", &self.path))?;
        Ok(EndedRowFile { entry, file: self.file, path: self.path })
    }

    /// Writes what is encoded if it has at least so many bytes.
    fn write(&mut self, least: usize) -> Result<(), CheckpointDirError> {
        if self.encoded.len() >= least {
            let written = self.file.write(std::mem::take(&mut self.encoded));
            self.encoded = written.map_err(CheckpointDirError::io("writing", &self.path))?;
        }
        Ok(())
    }
}

/// A row file whose rows are all written. It may not be durable yet.
pub struct EndedRowFile {
    entry: FileEntry,
    file: Box<dyn StoreWriter>,
    path: PathBuf,
}

impl EndedRowFile {
    /// How many such files a process should have at once, of at most `most`: each takes a descriptor, and a quarter of
    /// the process's limit is left for them.
    pub fn at_once_max(most: usize) -> usize {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        most.min(usize::try_from(limit / 4).unwrap_or(most)).max(1)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    /// Makes the file durable. Returns what the manifest says of it.
    ///
    /// # Errors
    /// The file may not be durable.
    pub fn finish(self) -> Result<FileEntry, CheckpointDirError> {
        self.file.finish().map_err(CheckpointDirError::io("writing", &self.path))?;
        Ok(self.entry)
    }
}
