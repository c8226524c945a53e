//! Checkpoints: a folder with a manifest and row files. A reader finds either the old checkpoint or the new one, whole.
//! Checksums find a changed byte before a row is used. docs/checkpoint.md has the bytes.
//!
//! The names of a save's row files contain the generation of the save. The manifest lists these files with
//! their lengths and checksums, and replaces the older manifest by a rename. Only then are the row files removed that
//! the older manifest lists (model_folder.rs).

use crate::hash::{hash, shard_of};
use crate::own_files;
use crate::schema::table_schema::Schema;
use crate::table::models::model_folder::{self, MANIFEST_NEW};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

pub(crate) const MANIFEST: &str = "MANIFEST";
pub(crate) const MANIFEST_MAGIC: &[u8; 8] = b"GANNETCK";
pub(crate) const ROWS_MAGIC: &[u8; 8] = b"GANNETRW";
const VERSION: u32 = 2;
/// Bytes of a manifest or row file before its content.
pub(crate) const HEAD: usize = 32;
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// What the manifest says, version 1. Frozen: a change is a new struct.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize, Clone, Debug, PartialEq)]
pub struct ManifestV1 {
    /// [`Schema::encode`].
    pub schema: Vec<u8>,
    /// Generation of the save.
    pub generation: u64,
    /// Rows in all files.
    pub rows: u64,
    /// The row files.
    pub files: Vec<FileV1>,
    /// Notes of the writer: (name, value).
    pub notes: Vec<(String, String)>,
}

/// One row file.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize, Clone, Debug, PartialEq)]
pub struct FileV1 {
    /// Name in the folder.
    pub name: String,
    /// Shard whose rows it holds.
    pub shard: u32,
    /// Rows.
    pub rows: u64,
    /// CRC32C of the whole file.
    pub crc: u32,
}

/// Why a checkpoint cannot be written or read.
///
/// ```
/// use gannet_core::{Checkpoint, CheckpointError};
///
/// # let folder = tempfile::tempdir()?;
/// let opened = Checkpoint::open(folder.path()); // an empty folder
/// assert!(matches!(opened, Err(CheckpointError::Missing(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A call of the operating system failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder has no checkpoint.
    #[error("{}: no gannet checkpoint here (no MANIFEST file): give the folder that --out named", .0.display())]
    Missing(PathBuf),
    /// A file is damaged, or is not part of a checkpoint of this version.
    #[error("{}: {why}: the checkpoint is damaged; use another one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A save has removed a file while the checkpoint was read. The folder has a newer checkpoint.
    #[error("{}: a save replaced the checkpoint while it was read: read it again", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A save would replace a file that Gannet has not written, or that is damaged.
    #[error(
        "{}: a save would replace this file, but gannet did not write it, or it is damaged: move it away, or name \
         another folder", path.display()
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
}

pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_path_buf();
    move |source| CheckpointError::Io { what, path, source }
}

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
        std::fs::create_dir_all(folder).map_err(io_error("making", folder))?;
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
            model_folder::begin(&self.folder, self.manifest.generation)?;
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
        own_files::remove_part(&new, &[MANIFEST_MAGIC]).map_err(io_error("removing", &new))?;
        write_synced(&new, File::create_new, &[&head, &body])?;
        own_files::rename(&new, &path).map_err(io_error("naming", &path))?;
        let folder = File::open(&self.folder).map_err(io_error("opening", &self.folder))?;
        folder.sync_all().map_err(io_error("syncing", &self.folder))?;
        let now: Vec<String> = self.manifest.files.iter().map(|file| file.name.clone()).collect();
        model_folder::end(&self.folder, &before, &now);
        Ok(self.manifest.rows)
    }
}

pub(crate) fn write_synced<'a>(
    path: &'a Path,
    create: fn(&'a Path) -> io::Result<File>,
    parts: &[&[u8]],
) -> Result<(), CheckpointError> {
    let file = create(path).map_err(io_error("making", path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    parts.iter().try_for_each(|part| out.write_all(part)).map_err(io_error("writing", path))?;
    out.flush().map_err(io_error("writing", path))?;
    out.get_ref().sync_all().map_err(io_error("syncing", path))
}

/// An existing checkpoint, whose manifest is checked.
///
/// ```
/// use gannet_core::{Checkpoint, CheckpointWriter, Schema};
/// use gannet_optim::{Add, Rule};
///
/// let folder = tempfile::tempdir()?;
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut writer = CheckpointWriter::create(folder.path(), &schema)?;
/// writer.shard(0, &[7], &[0.5])?;
/// writer.finish()?;
///
/// let checkpoint = Checkpoint::open(folder.path())?;
/// checkpoint.read(|keys, rows| assert_eq!((keys, rows), (&[7][..], &[0.5][..])))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    pub(crate) folder: PathBuf,
    pub(crate) manifest: ManifestV1,
    pub(crate) schema: Schema,
    /// The row files, in the order of the manifest. Empty: they are opened when they are read.
    pub(crate) held: Vec<File>,
}

impl Checkpoint {
    /// Opens a checkpoint and checks its manifest. If a save may replace the checkpoint before it is read, use
    /// [`open_to_read`](Self::open_to_read).
    ///
    /// # Errors
    /// There is no checkpoint, or its manifest is damaged.
    pub fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let path = folder.join(MANIFEST);
        let damaged = |why: String| CheckpointError::Damaged { path: path.clone(), why };
        let file = match own_files::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointError::Missing(folder.into()));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Err(damaged(e.to_string())),
            other => other.map_err(io_error("opening", &path))?,
        };
        let mut bytes = Vec::new();
        file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(io_error("reading", &path))?;
        if bytes.len() < HEAD || bytes[..8] != *MANIFEST_MAGIC {
            return Err(damaged("this is not a gannet manifest".into()));
        }
        let (head, body) = bytes.split_at(HEAD);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(8) != VERSION {
            return Err(damaged(format!(
                "its version is {}, but this version of gannet reads {VERSION}",
                word(8)
            )));
        }
        if u64::from(word(16)) | u64::from(word(20)) << 32 != body.len() as u64
            || word(12) != crc32c::crc32c(body)
        {
            return Err(damaged("its length or checksum is wrong".into()));
        }
        let mut aligned = rkyv::util::AlignedVec::<16>::with_capacity(body.len());
        aligned.extend_from_slice(body);
        let manifest = rkyv::from_bytes::<ManifestV1, rkyv::rancor::Error>(&aligned)
            .map_err(|e| damaged(format!("its archive is not valid: {e}")))?;
        let schema =
            Schema::decode(&manifest.schema).ok_or_else(|| damaged("its schema is not valid".into()))?;
        Ok(Checkpoint { folder: folder.into(), manifest, schema, held: Vec::new() })
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.manifest.rows
    }

    /// The generation of the save: 1 for the first in a folder, and higher for each later one.
    pub(crate) fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// The names of the row files.
    pub(crate) fn files(&self) -> Vec<String> {
        self.manifest.files.iter().map(|file| file.name.clone()).collect()
    }

    /// The value of a note that the writer stored; `None` if there is no such note.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.manifest.notes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Puts the same checkpoint into another folder, which is made. Files are hard links where the filesystem
    /// allows it, else copies. Row files are never rewritten, so later saves into this folder do not change the
    /// other one. Until the call has returned, the other folder is not complete.
    ///
    /// # Errors
    /// The folder cannot be made, or a file cannot be linked or copied.
    pub fn link_into(&self, folder: &Path) -> Result<(), CheckpointError> {
        std::fs::create_dir_all(folder).map_err(io_error("making", folder))?;
        // The manifest comes first, so that an unfinished folder says which files are its own.
        let names = [MANIFEST].into_iter().chain(self.manifest.files.iter().map(|file| file.name.as_str()));
        for name in names.filter(|name| !name.contains(['/', '\\'])) {
            let (from, to) = (self.folder.join(name), folder.join(name));
            // A copy is a new file, so it must be synced. The save has synced the original.
            let copy = || std::fs::copy(&from, &to).and_then(|_| File::open(&to)?.sync_all());
            let linked = std::fs::hard_link(&from, &to).or_else(|_| copy());
            linked.map_err(io_error("keeping", &to))?;
        }
        let made = File::open(folder).map_err(io_error("opening", folder))?;
        made.sync_all().map_err(io_error("syncing", folder))
    }
}
