//! Checkpoints in a folder of a filesystem.

use crate::checkpoint::names::{MANIFEST, MANIFEST_BEGINNING};
use crate::checkpoint::row_files::file_ring::FileRing;
use crate::checkpoint::stores::store::{CheckpointStore, OpenedFile, StoreWriter, StoredFile};
use crate::image::files::durability::{self, Durable};
use crate::own_files::{self, FileOwner};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that makes a folder one of Gannet's.
const MARK: &str = "RESERVED";
const MARK_BYTES: &[u8] = b"gannet reserves this folder for a checkpoint\n";
/// The ending of a file that is published and has not its name yet.
const NEW: &str = ".new";
/// So many bytes tell what a killed process has left under such a name.
const BEGINNING_BYTES: usize = 8;

/// A [`CheckpointStore`] in a folder. Each checkpoint has a folder in it.
///
/// ```
/// use gannet_core::{CheckpointStore, LocalStore};
///
/// # let folder = tempfile::tempdir()?;
/// let store = LocalStore::create(&folder.path().join("checkpoints"))?;
/// assert!(store.reserve("0000000001")?);
/// assert!(folder.path().join("checkpoints/0000000001").is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LocalStore {
    path: PathBuf,
}

impl LocalStore {
    /// The store in a folder, which must exist before it is used.
    pub fn new(path: &Path) -> LocalStore {
        LocalStore { path: path.into() }
    }

    /// The store in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn create(path: &Path) -> io::Result<LocalStore> {
        durability::make_folder(path)?;
        Ok(LocalStore::new(path))
    }

    /// Makes the names of the folders durable.
    fn sync_folders(&self) -> io::Result<()> {
        durability::folder(&self.path)?;
        crate::kill_point!();
        Ok(())
    }
}

impl CheckpointStore for LocalStore {
    fn reserve(&self, folder: &str) -> io::Result<bool> {
        match std::fs::create_dir(self.path.join(folder)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            made => made?,
        }
        crate::kill_point!();
        // A kill before this leaves an empty folder, which nobody takes for a checkpoint or removes.
        let mark = self.path.join(folder).join(MARK);
        own_files::replace(&mark, MARK_BYTES, MARK_BYTES)?;
        crate::kill_point!();
        self.sync_folders()?;
        Ok(true)
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.extend(entry.file_name().into_string()); // ours are text
            }
        }
        Ok(names)
    }

    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.path.join(folder))? {
            let entry = entry?;
            let metadata = match std::fs::metadata(entry.path()) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue, // it was removed meanwhile
                other => other?,
            };
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string())
                && name != MARK
            {
                let written = metadata.mtime().try_into().ok();
                files.push(StoredFile { name, bytes: metadata.len(), written });
            }
        }
        Ok(files)
    }

    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>> {
        let file = File::create_new(self.path.join(folder).join(name))?;
        crate::kill_point!();
        Ok(Box::new(LocalWriter::Begun(file)))
    }

    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile> {
        let file = own_files::open_regular(&self.path.join(folder).join(name))?;
        // The system then reads further ahead. A filesystem that does not know this reads as it does.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(OpenedFile { bytes: file.metadata()?.len(), input: Box::new(file) })
    }

    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let folder = self.path.join(folder);
        let path = folder.join(name);
        if std::fs::symlink_metadata(&path).is_ok() {
            return match own_files::read_whole(&path)?.as_deref() == Some(bytes) {
                true => durability::folder(&folder).and_then(|()| self.sync_folders()),
                false => Err(own_files::in_the_way(&path)),
            };
        }
        let new = folder.join(format!("{name}{NEW}"));
        let mut file = own_files::make_own(&new, &bytes[..bytes.len().min(BEGINNING_BYTES)])?;
        crate::kill_point!();
        file.write_all(bytes)?;
        crate::kill_point!();
        sync_own_file(&file)?;
        own_files::rename_new(&new, &path)?;
        crate::kill_point!();
        durability::folder(&folder)?;
        crate::kill_point!();
        self.sync_folders()
    }

    fn sync(&self, folder: &str) -> io::Result<()> {
        durability::folder(&self.path.join(folder))?;
        crate::kill_point!();
        Ok(())
    }

    fn is_reserved(&self, folder: &str) -> io::Result<bool> {
        let folder = self.path.join(folder);
        let has = |name: &str, beginning: &[u8]| {
            own_files::owner(&folder.join(name), &[beginning]) == FileOwner::Gannet
        };
        Ok(has(MARK, MARK_BYTES) || has(MANIFEST, MANIFEST_BEGINNING))
    }

    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()> {
        let folder = self.path.join(folder);
        for name in names {
            own_files::remove_listed(&folder.join(name))?;
            crate::kill_point!();
        }
        match durability::folder(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        let folder = self.path.join(folder);
        own_files::remove_own(&folder.join(MARK), &[MARK_BYTES])?;
        crate::kill_point!();
        own_files::remove_folder(&folder)?;
        crate::kill_point!();
        self.sync_folders()
    }
}

/// Writes a file of a folder. The first bytes are written at once: a short file needs no ring.
enum LocalWriter {
    /// Nothing is written.
    Begun(File),
    /// So many bytes are written.
    First(File, u64),
    Ring(Box<FileRing>),
    /// There is no ring for this file.
    Plain(File),
    /// All bytes are written.
    Ended(Arc<File>),
    /// An error gave the file up.
    GivenUp,
}

impl StoreWriter for LocalWriter {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let (next, written) = match std::mem::replace(self, LocalWriter::GivenUp) {
            LocalWriter::Begun(file) => {
                let length = bytes.len() as u64;
                let written = write_all(&file, bytes)?;
                (LocalWriter::First(file, length), written)
            }
            LocalWriter::First(file, end) => {
                *self = match FileRing::new(file, end) {
                    Ok(ring) => LocalWriter::Ring(Box::new(ring)),
                    Err(file) => LocalWriter::Plain(file),
                };
                return self.write(bytes);
            }
            LocalWriter::Ring(mut ring) => {
                let written = ring.write(bytes)?;
                (LocalWriter::Ring(ring), written)
            }
            LocalWriter::Plain(file) => {
                let written = write_all(&file, bytes)?;
                (LocalWriter::Plain(file), written)
            }
            LocalWriter::Ended(_) | LocalWriter::GivenUp => return Err(upload_given_up()),
        };
        *self = next;
        crate::kill_point!();
        Ok(written)
    }

    fn end(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, LocalWriter::GivenUp) {
            LocalWriter::Ring(ring) => LocalWriter::Ended(ring.finish()?),
            other => other,
        };
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        match *self {
            LocalWriter::Ended(file) => sync_own_file(&file),
            LocalWriter::Begun(file) | LocalWriter::First(file, _) | LocalWriter::Plain(file) => {
                sync_own_file(&file)
            }
            LocalWriter::Ring(ring) => sync_own_file(&*ring.finish()?),
            LocalWriter::GivenUp => Err(upload_given_up()),
        }
    }
}

fn upload_given_up() -> io::Error {
    io::Error::other("the file has ended, or was given up after an earlier error")
}

fn write_all(mut file: &File, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    file.write_all(&bytes)?;
    bytes.clear();
    Ok(bytes)
}

/// Syncs a file.
fn sync_own_file(file: &File) -> io::Result<()> {
    durability::during(&Durable::File, || file.sync_all())?;
    crate::kill_point!();
    Ok(())
}
