//! Checkpoints: a folder with a manifest and row files. A reader finds either the old checkpoint or the new one, whole.
//! Checksums find a changed byte before a row is used. docs/checkpoint.md has the bytes.
//!
//! The names of a save's row files contain the generation of the save. The manifest lists these files with
//! their lengths and checksums, and replaces the older manifest by a rename. Only then are row files of older
//! generations removed.

use crate::hash::{hash, shard_of};
use crate::schema::table_schema::Schema;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MANIFEST: &str = "MANIFEST";
const MANIFEST_MAGIC: &[u8; 8] = b"GANNETCK";
const ROWS_MAGIC: &[u8; 8] = b"GANNETRW";
const VERSION: u32 = 2;
/// Bytes of a manifest or row file before its content.
const HEAD: usize = 32;
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Rows that a reader passes on at a time.
const ROWS_A_BLOCK: usize = 4096;

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
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
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
    /// The rows that [`add`](Self::add) has collected, by shard: keys and floats.
    added: Vec<(Vec<u64>, Vec<f32>)>,
}

impl CheckpointWriter {
    /// Starts a save into `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn create(folder: &Path, schema: &Schema) -> Result<CheckpointWriter, CheckpointError> {
        std::fs::create_dir_all(folder).map_err(io_error("making", folder))?;
        let generation = match Checkpoint::open(folder) {
            Ok(old) => old.manifest.generation + 1,
            Err(_) => 1,
        };
        let (rows, files, notes) = (0, Vec::new(), Vec::new());
        let manifest = ManifestV1 { schema: schema.encode(), generation, rows, files, notes };
        Ok(CheckpointWriter {
            folder: folder.into(),
            manifest,
            floats: schema.floats(),
            shards: schema.shards,
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
        let mut name = format!("rows-{:06}-{shard:04}", self.manifest.generation);
        let earlier = self.manifest.files.iter().filter(|file| file.shard == shard).count();
        if earlier > 0 {
            name = format!("{name}-{earlier}");
        }
        let path = self.folder.join(&name);
        let mut head = [0u8; HEAD];
        head[..8].copy_from_slice(ROWS_MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&shard.to_le_bytes());
        head[16..24].copy_from_slice(&(keys.len() as u64).to_le_bytes());
        head[24..28].copy_from_slice(&(self.floats as u32).to_le_bytes());
        let parts: [&[u8]; 3] = [&head, bytemuck::cast_slice(keys), bytemuck::cast_slice(rows)];
        let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        write_synced(&path, &parts)?;
        self.manifest.rows += keys.len() as u64;
        self.manifest.files.push(FileV1 { name, shard, rows: keys.len() as u64, crc });
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
        let path = self.folder.join(MANIFEST);
        let body = rkyv::to_bytes::<rkyv::rancor::Error>(&self.manifest)
            .map_err(|e| CheckpointError::Damaged { path: path.clone(), why: e.to_string() })?;
        let mut head = [0u8; HEAD];
        head[..8].copy_from_slice(MANIFEST_MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        head[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
        let new = self.folder.join("MANIFEST.new");
        write_synced(&new, &[&head, &body])?;
        std::fs::rename(&new, &path).map_err(io_error("naming", &path))?;
        let folder = File::open(&self.folder).map_err(io_error("opening", &self.folder))?;
        folder.sync_all().map_err(io_error("syncing", &self.folder))?;
        let ours = format!("rows-{:06}-", self.manifest.generation);
        for entry in std::fs::read_dir(&self.folder).map_err(io_error("listing", &self.folder))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("rows-") && !name.starts_with(&ours) {
                let _ = std::fs::remove_file(entry.path()); // a file that remains only takes space
            }
        }
        Ok(self.manifest.rows)
    }
}

fn write_synced(path: &Path, parts: &[&[u8]]) -> Result<(), CheckpointError> {
    let file = File::create(path).map_err(io_error("making", path))?;
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
    folder: PathBuf,
    manifest: ManifestV1,
    schema: Schema,
}

impl Checkpoint {
    /// Opens a checkpoint and checks its manifest.
    ///
    /// # Errors
    /// There is no checkpoint, or its manifest is damaged.
    pub fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let path = folder.join(MANIFEST);
        let damaged = |why: String| CheckpointError::Damaged { path: path.clone(), why };
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointError::Missing(folder.into()));
            }
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
        Ok(Checkpoint { folder: folder.into(), manifest, schema })
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.manifest.rows
    }

    /// The value of a note that the writer stored; `None` if there is no such note.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.manifest.notes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Puts the same checkpoint into another folder, which is made. Files are hard links where the filesystem
    /// allows it, else copies. Row files are never rewritten, so later saves into this folder do not change the
    /// other one.
    ///
    /// # Errors
    /// The folder cannot be made, or a file cannot be linked or copied.
    pub fn link_into(&self, folder: &Path) -> Result<(), CheckpointError> {
        std::fs::create_dir_all(folder).map_err(io_error("making", folder))?;
        let names = self.manifest.files.iter().map(|file| file.name.as_str()).chain([MANIFEST]);
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

    /// Reads every row file. Checks each file whole and only then passes its rows to `rows`, in blocks of at most 4096:
    /// keys, and [`Schema::floats`] floats for each.
    ///
    /// # Errors
    /// A file is missing, has another length, or does not match its checksum.
    pub fn read(&self, mut rows: impl FnMut(&[u64], &[f32])) -> Result<(), CheckpointError> {
        let floats = self.schema.floats();
        for file in &self.manifest.files {
            if file.name.contains(['/', '\\']) {
                let (path, why) = (
                    self.folder.join(MANIFEST),
                    format!("it names {:?}, which is not a file of this folder", file.name),
                );
                return Err(CheckpointError::Damaged { path, why });
            }
            let path = self.folder.join(&file.name);
            let bytes = match std::fs::read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let why = "the manifest names this file, but it does not exist".into();
                    return Err(CheckpointError::Damaged { path, why });
                }
                other => other.map_err(io_error("reading", &path))?,
            };
            let damaged = |why: String| CheckpointError::Damaged { path: path.clone(), why };
            let n = file.rows as usize;
            let want = n.checked_mul(8 + 4 * floats).and_then(|b| b.checked_add(HEAD));
            if want != Some(bytes.len()) {
                return Err(damaged(format!(
                    "the file has {} bytes, but {} were saved",
                    bytes.len(),
                    want.unwrap_or(usize::MAX)
                )));
            }
            if crc32c::crc32c(&bytes) != file.crc || bytes[..8] != *ROWS_MAGIC {
                return Err(damaged("its checksum is wrong".into()));
            }
            let (keys, values) = bytes[HEAD..].split_at(8 * n);
            let (mut k, mut v) = (Vec::new(), Vec::new());
            for (keys, values) in keys.chunks(8 * ROWS_A_BLOCK).zip(values.chunks(4 * floats * ROWS_A_BLOCK))
            {
                k.clear();
                k.extend(keys.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())));
                v.clear();
                v.extend(
                    values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default())),
                );
                rows(&k, &v);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_optim::{Add, Rule};

    fn save(folder: &Path, base: u64) -> Schema {
        let schema = Schema { dim: 2, shards: 2, ..Schema::scalar("t", Rule::Add(Add)) };
        let mut writer = CheckpointWriter::create(folder, &schema).unwrap();
        writer.note("model", "lr");
        writer.shard(0, &[base, base + 1], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        writer.shard(1, &[base + 2], &[5.0, base as f32]).unwrap();
        assert_eq!(writer.finish().unwrap(), 3);
        schema
    }

    fn load(folder: &Path) -> Result<Vec<(u64, [f32; 2])>, CheckpointError> {
        let mut all = Vec::new();
        Checkpoint::open(folder)?.read(|keys, rows| {
            all.extend(keys.iter().copied().zip(rows.chunks(2).map(|r| [r[0], r[1]])));
        })?;
        Ok(all)
    }

    #[test]
    fn comes_back_and_replaces() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(load(folder.path()), Err(CheckpointError::Missing(_))));
        let schema = save(folder.path(), 10);
        save(folder.path(), 20);
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        assert_eq!(
            (checkpoint.schema(), checkpoint.rows(), checkpoint.note("model")),
            (&schema, 3, Some("lr"))
        );
        assert_eq!(load(folder.path()).unwrap(), [(20, [1.0, 2.0]), (21, [3.0, 4.0]), (22, [5.0, 20.0])]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "older files are gone");
        // An unfinished save changes nothing.
        let mut writer = CheckpointWriter::create(folder.path(), &schema).unwrap();
        writer.shard(0, &[1], &[0.0, 0.0]).unwrap();
        drop(writer);
        assert_eq!(load(folder.path()).unwrap()[0].0, 20);
    }

    /// Any changed, missing or extra byte of any file is found.
    #[test]
    fn every_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), 10);
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let good = std::fs::read(&path).unwrap();
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                std::fs::write(&path, &bad).unwrap();
                // Reserved bytes of the manifest's head are the only ones that may change.
                let reserved = path.ends_with(MANIFEST) && (24..32).contains(&at);
                assert_eq!(load(folder.path()).is_err(), !reserved, "{path:?} byte {at}");
            }
            for bad in [&good[..good.len() - 1], &[&good[..], b"x"].concat(), b""] {
                std::fs::write(&path, bad).unwrap();
                assert!(load(folder.path()).is_err(), "{path:?} of {} bytes", bad.len());
            }
            std::fs::write(&path, &good).unwrap();
        }
        load(folder.path()).unwrap();
    }

    /// Golden: the archive of a manifest is frozen.
    #[test]
    fn manifest_bytes_are_frozen() {
        let manifest = ManifestV1 {
            schema: vec![1, 2, 3],
            generation: 4,
            rows: 5,
            files: vec![FileV1 { name: "rows-000004-0000".into(), shard: 0, rows: 5, crc: 6 }],
            notes: vec![("a".into(), "b".into())],
        };
        let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&manifest).unwrap();
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (112, GOLDEN_CRC), "{:?}", &bytes[..]);
    }
    const GOLDEN_CRC: u32 = 4_115_943_461;

    #[test]
    fn another_folder_has_what_was_saved_whatever_is_saved_next() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        save(&first, 1);
        let before = load(&first).unwrap();
        Checkpoint::open(&first).unwrap().link_into(&second).unwrap();
        save(&first, 7);
        assert_eq!(load(&second).unwrap(), before);
        assert_ne!(load(&first).unwrap(), before);
    }
}
