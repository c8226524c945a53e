//! Writes a saved model: row files under the names of a new generation, then the manifest that replaces the older one.

use crate::hash::{hash, shard_of};
use crate::own_files;
use crate::schema::table_schema::Schema;
use crate::table::models::checkpoint::{
    Checkpoint, CheckpointError, FileV1, HEAD, MANIFEST, MANIFEST_MAGIC, ManifestV1, ROWS_MAGIC, VERSION,
    model_io_error, write_synced,
};
use crate::table::models::model_folder::{self, MANIFEST_NEW};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Writes a checkpoint. If the writer is dropped before [`finish`](Self::finish), an older checkpoint in the folder
/// stays as it was.
///
/// ```
/// use gannet_core::{Checkpoint, CheckpointWriter, Schema};
/// use gannet_optim::{Add, Rule};
///
/// let folder = tempfile::tempdir()?;
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut writer = CheckpointWriter::create(folder.path(), &schema)?;
/// writer.note("run", "monday");
/// writer.shard(0, &[7, 8], &[0.5, 1.5])?; // two keys, one float each
/// writer.finish()?;
/// assert_eq!(Checkpoint::open(folder.path())?.rows(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CheckpointWriter {
    folder: PathBuf,
    manifest: ManifestV1,
    floats: usize,
    shards: u32,
    /// The save has named its generation in the folder.
    begun: bool,
    /// The rows that [`add`](Self::add) has collected, by shard: keys and floats.
    added: Vec<(Vec<u64>, Vec<f32>)>,
}

impl CheckpointWriter {
    /// Starts a save into `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made, or has a file of another program that the save would replace.
    pub fn create(folder: &Path, schema: &Schema) -> Result<CheckpointWriter, CheckpointError> {
        std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
            // A file, or a link that leads nowhere, has the name of the folder.
            io::ErrorKind::AlreadyExists => CheckpointError::InTheWay { path: folder.into() },
            _ => model_io_error("making", folder)(error),
        })?;
        let generation = model_folder::next_generation(folder)?;
        let (rows, files, notes) = (0, Vec::new(), Vec::new());
        let manifest = ManifestV1 { schema: schema.encode(), generation, rows, files, notes };
        Ok(CheckpointWriter {
            folder: folder.into(),
            manifest,
            floats: schema.floats(),
            shards: schema.shards,
            begun: false,
            added: Vec::new(),
        })
    }

    /// Stores a note, which [`Checkpoint::note`] reads.
    pub fn note(&mut self, name: &str, value: &str) {
        self.manifest.notes.push((name.into(), value.into()));
    }

    /// Writes the rows of one shard: `rows` holds [`Schema::floats`] floats for each key, in the order of `keys`.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// When `rows` has another length, or the table has no such shard.
    pub fn shard(&mut self, shard: u32, keys: &[u64], rows: &[f32]) -> Result<(), CheckpointError> {
        assert!(shard < self.shards && rows.len() == keys.len() * self.floats, "rows of one shard");
        self.begin()?;
        let earlier = self.manifest.files.iter().filter(|file| file.shard == shard).count();
        let name = model_folder::row_file(self.manifest.generation, shard, earlier);
        let path = self.folder.join(&name);
        let mut head = [0u8; HEAD];
        head[..8].copy_from_slice(ROWS_MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&shard.to_le_bytes());
        head[16..24].copy_from_slice(&(keys.len() as u64).to_le_bytes());
        head[24..28].copy_from_slice(&(self.floats as u32).to_le_bytes());
        let parts: [&[u8]; 3] = [&head, bytemuck::cast_slice(keys), bytemuck::cast_slice(rows)];
        let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        write_synced(&path, File::create_new, &parts)?;
        self.manifest.rows += keys.len() as u64;
        self.manifest.files.push(FileV1 { name, shard, rows: keys.len() as u64, crc });
        Ok(())
    }

    /// Names the save in its folder, before its first file.
    fn begin(&mut self) -> Result<(), CheckpointError> {
        if !self.begun {
            model_folder::begin_save(&self.folder, self.manifest.generation)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Adds rows of any shards: `rows` holds [`Schema::floats`] floats for each key, in the order of `keys`. They stay
    /// in memory until [`finish`](Self::finish) writes them.
    ///
    /// ```
    /// use gannet_core::{Checkpoint, CheckpointWriter, Schema};
    /// use gannet_optim::{Add, Rule};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let schema = Schema { shards: 4, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut writer = CheckpointWriter::create(folder.path(), &schema)?;
    /// writer.add(&[1, 2, 3], &[0.5, 1.5, 2.5]);
    /// assert_eq!(writer.finish()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `rows` has another length.
    pub fn add(&mut self, keys: &[u64], rows: &[f32]) {
        assert_eq!(rows.len(), keys.len() * self.floats, "one row for each key");
        self.added.resize_with(self.shards as usize, Default::default);
        for (&key, row) in keys.iter().zip(rows.chunks_exact(self.floats)) {
            let (keys, rows) = &mut self.added[shard_of(hash(key), self.shards) as usize];
            keys.push(key);
            rows.extend_from_slice(row);
        }
    }

    /// Publishes the checkpoint and removes the files of older ones. Returns the number of rows.
    ///
    /// # Errors
    /// The manifest cannot be written. A reader still finds the older checkpoint.
    pub fn finish(mut self) -> Result<u64, CheckpointError> {
        let added = std::mem::take(&mut self.added);
        for (shard, (keys, rows)) in (0..).zip(added).filter(|(_, (keys, _))| !keys.is_empty()) {
            self.shard(shard, &keys, &rows)?;
        }
        self.begin()?;
        let path = self.folder.join(MANIFEST);
        let before = Checkpoint::open(&self.folder).map(|before| before.files()).unwrap_or_default();
        let body = rkyv::to_bytes::<rkyv::rancor::Error>(&self.manifest)
            .map_err(|e| CheckpointError::Damaged { path: path.clone(), why: e.to_string() })?;
        let mut head = [0u8; HEAD];
        head[..8].copy_from_slice(MANIFEST_MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        head[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
        let new = self.folder.join(MANIFEST_NEW);
        own_files::remove_part(&new, &[MANIFEST_MAGIC]).map_err(model_io_error("removing", &new))?;
        write_synced(&new, File::create_new, &[&head, &body])?;
        own_files::rename(&new, &path).map_err(model_io_error("naming", &path))?;
        let folder = File::open(&self.folder).map_err(model_io_error("opening", &self.folder))?;
        folder.sync_all().map_err(model_io_error("syncing", &self.folder))?;
        let now: Vec<String> = self.manifest.files.iter().map(|file| file.name.clone()).collect();
        model_folder::end_save(&self.folder, &before, &now);
        Ok(self.manifest.rows)
    }
}
