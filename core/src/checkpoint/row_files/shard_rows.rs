//! The rows of one shard in a checkpoint and the checkpoints that it needs.

use crate::checkpoint::directory::CheckpointDir;
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::{FileEntry, JobManifest};
use crate::checkpoint::row_files::row_file::RowFileHead;
use crate::checkpoint::row_files::row_file_reader::{RowBlock, RowFileReader};
use std::collections::HashSet;
use std::io::Read;
use std::path::PathBuf;

/// A row file of a checkpoint, with what its reader must find in it.
#[derive(Clone, Debug)]
pub struct SavedRowFile {
    directory: CheckpointDir,
    /// The file, as messages name it.
    pub path: PathBuf,
    /// Which rows it holds.
    pub head: RowFileHead,
    /// Its length, checksum and counts.
    pub entry: FileEntry,
}

impl SavedRowFile {
    /// Opens it.
    ///
    /// # Errors
    /// There is no such file, it has another length, or its head is damaged or that of another file.
    pub fn open(&self) -> Result<RowFileReader<Box<dyn Read + Send>>, CheckpointDirError> {
        let opened = self.directory.open_listed(self.head.number, &self.entry.name, self.entry.bytes)?;
        RowFileReader::new(opened.input, &self.path, &self.head, &self.entry)
    }
}

impl CheckpointDir {
    /// The row file with this head and manifest entry.
    pub fn row_file(&self, head: RowFileHead, entry: &FileEntry) -> SavedRowFile {
        let path = self.folder(head.number).join(&entry.name);
        SavedRowFile { directory: self.clone(), path, head, entry: entry.clone() }
    }

    /// The row files that hold a shard of a table, the oldest first. The first one has all rows, and each further one
    /// what changed and what was deleted since the one before it. `chain` is that of [`chain`](Self::chain). A table or
    /// shard that the newest checkpoint does not have has no files.
    pub fn shard_files(&self, chain: &[JobManifest], table: &str, shard: u32) -> Vec<SavedRowFile> {
        let mut files = Vec::new();
        for manifest in chain.iter().rev() {
            let Some((number, of_table)) = manifest.table(table) else { break };
            let Some(cut) = of_table.shards.get(shard as usize) else { break };
            if let (Some(entry), Some(head)) = (&cut.file, manifest.row_file_head(number, shard)) {
                files.push(self.row_file(head, entry));
            }
            if cut.from == 0 {
                break;
            }
        }
        files.reverse();
        files
    }

    /// Calls `rows` with the rows of a shard as they are in the newest checkpoint of `chain`: blocks of keys, and the
    /// floats of each. Memory holds one block, and the keys of the increments.
    ///
    /// ```
    /// use gannet_core::{
    ///     CheckpointDir, JobManifest, Cursor, RowFileWriter, Schema, ShardCut, TableCut, TableUid,
    /// };
    /// use gannet_optim::{Add, Rule};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// let draft = directory.begin()?;
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let cut = ShardCut { shard: 0, birth: 5, epoch: 1, from: 0, to: 9, file: None };
    /// let table = TableCut { schema, uid: TableUid([7; 16]), shards: vec![cut], cursors: Vec::new() };
    /// let mut manifest = JobManifest { tables: vec![table], ..JobManifest::new(draft.number(), "monday") };
    ///
    /// let head = manifest.row_file_head(0, 0).ok_or("no such shard")?;
    /// let mut writer = RowFileWriter::create(&directory, head, 1)?;
    /// writer.rows(&[3, 4], &[0.5, 1.5])?;
    /// manifest.tables[0].shards[0].file = Some(writer.finish()?);
    /// draft.publish(&manifest)?;
    ///
    /// let chain = directory.chain(1)?;
    /// let mut seen = Vec::new();
    /// directory.shard_rows(&chain, "clicks", 0, |keys, _| seen.extend_from_slice(keys))?;
    /// assert_eq!(seen, [3, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A file is missing or damaged. Rows were passed on before it was found, perhaps.
    pub fn shard_rows(
        &self,
        chain: &[JobManifest],
        table: &str,
        shard: u32,
        mut rows: impl FnMut(&[u64], &[f32]),
    ) -> Result<(), CheckpointDirError> {
        // From the newest file to the oldest: the first one that names a key has the last word on it.
        let mut newer: HashSet<u64> = HashSet::new();
        let files = self.shard_files(chain, table, shard);
        for (older, file) in files.iter().enumerate().rev() {
            let floats_a_row = file.head.floats as usize;
            let (mut kept_keys, mut kept_floats) = (Vec::new(), Vec::new());
            let mut own: Vec<u64> = Vec::new();
            let mut reader = file.open()?;
            while let Some(block) = reader.next()? {
                match block {
                    RowBlock::Sketch(_) => {}
                    RowBlock::Deletions { keys } => own.extend_from_slice(keys),
                    RowBlock::Rows { keys, floats } if newer.is_empty() => {
                        rows(keys, floats);
                        own.extend(keys.iter().filter(|_| older > 0));
                    }
                    RowBlock::Rows { keys, floats } => {
                        kept_keys.clear();
                        kept_floats.clear();
                        for (key, row) in keys.iter().zip(floats.chunks_exact(floats_a_row)) {
                            if !newer.contains(key) {
                                kept_keys.push(*key);
                                kept_floats.extend_from_slice(row);
                            }
                        }
                        rows(&kept_keys, &kept_floats);
                        own.extend(keys.iter().filter(|_| older > 0));
                    }
                }
            }
            newer.extend(own);
        }
        Ok(())
    }

    /// The admission sketch of a shard in the newest checkpoint of `chain`: that of the newest file which has one.
    /// `None`: no file has one.
    ///
    /// # Errors
    /// A file is missing or damaged.
    pub fn shard_sketch(
        &self,
        chain: &[JobManifest],
        table: &str,
        shard: u32,
    ) -> Result<Option<Vec<u8>>, CheckpointDirError> {
        for file in self.shard_files(chain, table, shard).iter().rev() {
            let (mut reader, mut found) = (file.open()?, None);
            while let Some(block) = reader.next()? {
                if let RowBlock::Sketch(bytes) = block {
                    found = Some(bytes.to_vec());
                }
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
