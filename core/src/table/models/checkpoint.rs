//! Saved models: a folder with a manifest and row files. A reader finds either the old one or the new one, whole.
//! Checksums find a changed byte before a row is used. docs/checkpoint.md has the bytes.
//!
//! The names of a save's row files contain the generation of the save. The manifest lists these files with
//! their lengths and checksums, and replaces the older manifest by a rename. Only then are the row files removed that
//! the older manifest lists (model_folder.rs).

use crate::own_files;
use crate::schema::table_schema::Schema;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

pub(crate) const MANIFEST: &str = "MANIFEST";
pub(crate) const MANIFEST_MAGIC: &[u8; 8] = b"GANNETCK";
pub(crate) const ROWS_MAGIC: &[u8; 8] = b"GANNETRW";
pub(crate) const VERSION: u32 = 2;
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

pub(crate) fn model_io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_path_buf();
    move |source| CheckpointError::Io { what, path, source }
}

pub(crate) fn write_synced<'a>(
    path: &'a Path,
    create: fn(&'a Path) -> io::Result<File>,
    parts: &[&[u8]],
) -> Result<(), CheckpointError> {
    let file = create(path).map_err(model_io_error("making", path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    parts.iter().try_for_each(|part| out.write_all(part)).map_err(model_io_error("writing", path))?;
    out.flush().map_err(model_io_error("writing", path))?;
    out.get_ref().sync_all().map_err(model_io_error("syncing", path))
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
    digest: u64,
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
        let file = match own_files::open_regular(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointError::Missing(folder.into()));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Err(damaged(e.to_string())),
            other => other.map_err(model_io_error("opening", &path))?,
        };
        let mut bytes = Vec::new();
        file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(model_io_error("reading", &path))?;
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
        let digest = u64::from(word(12)) << 32 | body.len() as u64;
        Ok(Checkpoint { folder: folder.into(), manifest, schema, digest, held: Vec::new() })
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.manifest.rows
    }

    /// Tells two saves apart. A copy has that of the original.
    pub fn digest(&self) -> u64 {
        self.digest
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
        std::fs::create_dir_all(folder).map_err(model_io_error("making", folder))?;
        // The manifest comes first, so that an unfinished folder says which files are its own.
        let names = [MANIFEST].into_iter().chain(self.manifest.files.iter().map(|file| file.name.as_str()));
        for name in names.filter(|name| !name.contains(['/', '\\'])) {
            let (from, to) = (self.folder.join(name), folder.join(name));
            // A copy is a new file, so it must be synced. The save has synced the original.
            let copy = || std::fs::copy(&from, &to).and_then(|_| File::open(&to)?.sync_all());
            let linked = std::fs::hard_link(&from, &to).or_else(|_| copy());
            linked.map_err(model_io_error("keeping", &to))?;
        }
        let made = File::open(folder).map_err(model_io_error("opening", folder))?;
        made.sync_all().map_err(model_io_error("syncing", folder))
    }
}
