//! Where a cache is, what it is a cache of, and how much room it may take.
//!
//! In a folder that the user names, the file's name comes from the names of the data files and the worker's share. A
//! writer has a file of its own under another name, and renames it when it is whole: so two processes may use one
//! folder at once. A cache without a folder is a file without a name in the folder for temporary files: it vanishes
//! with the process, whatever ends it.

use crate::limits::{CACHE_BYTES_MAX, CACHE_ROOM_KEPT, CACHE_ROOM_PART};
use crate::read::bytes::data_file::FileFacts;
use crate::read::cache::cache_file::MAGIC;
use crate::read::data::{Data, Share};
use crate::read::formats::labels::Labels;
use gannet_core::own_files::{self, FileOwner};
use rustix::fs::{FlockOperation, flock, statfs, statvfs};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A cache of parsed data for later passes.
#[derive(Clone, Debug)]
pub struct Cache(Arc<CachePlace>);

#[derive(Debug)]
struct CachePlace {
    folder: PathBuf,
    /// Whether the user named the folder.
    is_named: bool,
    /// A whole cache without a name, and what it is a cache of.
    own: Mutex<Option<(String, Arc<File>)>>,
    /// It is not used any more: writing it failed.
    off: AtomicBool,
}

/// The magic numbers of file systems in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// The ends of the names of a whole cache and of one that is being written.
const WHOLE: &str = ".gannet-cache";
const WRITING: &str = ".gannet-cache-part";

impl Cache {
    /// A cache in this folder, which is made if it does not exist. Its files stay there for later trainings.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn in_folder(folder: &Path) -> io::Result<Cache> {
        std::fs::create_dir_all(folder)?;
        let probe = folder.join(format!("{}{WRITING}", unique("probe")));
        own_files::make_own(&probe, MAGIC)?;
        own_files::remove_part(&probe, &[MAGIC])?;
        remove_left(folder);
        Ok(Cache::at(folder.to_owned(), true))
    }

    /// A cache in the folder for temporary files, which vanishes with the process. `None`: that folder is in memory, or
    /// has no room.
    pub fn temporary() -> Option<Cache> {
        let folder = std::env::temp_dir();
        let kind = statfs(&folder).ok()?.f_type as u64;
        let in_memory = IN_MEMORY.contains(&kind);
        (!in_memory && room(&folder) > 0).then(|| Cache::at(folder, false))
    }

    fn at(folder: PathBuf, is_named: bool) -> Cache {
        Cache(Arc::new(CachePlace { folder, is_named, own: Mutex::default(), off: AtomicBool::new(false) }))
    }

    /// Does without it from here on.
    pub(super) fn give_up(&self) {
        self.0.off.store(true, Relaxed);
    }

    pub(super) fn is_off(&self) -> bool {
        self.0.off.load(Relaxed)
    }

    /// The most bytes that a cache may take now.
    pub(super) fn room(&self) -> u64 {
        room(&self.0.folder).min(CACHE_BYTES_MAX)
    }

    /// The name of the whole file, in messages too.
    pub(super) fn path(&self, data: &Data, share: Share) -> PathBuf {
        let mut name = DefaultHasher::new();
        (&data.files, share.worker, share.workers).hash(&mut name);
        self.0.folder.join(format!("{:016x}{WHOLE}", name.finish()))
    }

    /// Opens a whole cache. A file in a folder may be one of other data. `None`: there is none.
    pub(super) fn open(&self, path: &Path, identity: &str) -> io::Result<Option<Arc<File>>> {
        if self.0.is_named {
            return match File::open(path) {
                Ok(file) => Ok(Some(Arc::new(file))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
        }
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(own.as_ref().filter(|(of, _)| of == identity).map(|(_, file)| file.clone()))
    }

    /// A file to write a cache to, and its name if it has one.
    pub(super) fn create(&self) -> io::Result<(File, Option<PathBuf>)> {
        loop {
            let part = self.0.folder.join(format!("{}{WRITING}", unique("of")));
            let file = own_files::make_own(&part, MAGIC)?;
            if !self.0.is_named {
                own_files::remove_part(&part, &[MAGIC])?;
                return Ok((file, None));
            }
            // Held while it is written: others remove a file without a writer, perhaps before it was held.
            flock(&file, FlockOperation::LockExclusive)?;
            if file.metadata()?.nlink() > 0 {
                return Ok((file, Some(part)));
            }
        }
    }

    /// Makes a file that was written the whole cache.
    pub(super) fn publish(
        &self,
        file: File,
        part: Option<&Path>,
        whole: &Path,
        identity: &str,
    ) -> io::Result<()> {
        match part {
            Some(part) => {
                file.sync_all()?;
                if own_files::owner_of_part(whole, &[MAGIC]) == FileOwner::User {
                    return Err(own_files::in_the_way(whole));
                }
                own_files::rename(part, whole)
            }
            None => {
                let mut own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
                *own = Some((identity.to_owned(), Arc::new(file)));
                Ok(())
            }
        }
    }

    /// Removes a cache that is damaged.
    pub(super) fn remove(&self, path: &Path) {
        *self.0.own.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.0.is_named {
            remove_part(path);
        }
    }
}

/// Removes a file that is of no use, unless it is one of the user.
pub(super) fn remove_part(path: &Path) {
    if let Err(error) = own_files::remove_part(path, &[MAGIC]) {
        tracing::warn!("{}: cannot be removed: {error}", path.display());
    }
}

/// A name that no other writer has.
fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let random = std::collections::hash_map::RandomState::new();
    let random = std::hash::BuildHasher::hash_one(&random, NEXT.load(Relaxed));
    format!("{what}-{}-{}-{random:016x}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Removes what writers left that were killed.
fn remove_left(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.to_str().is_some_and(|name| name.ends_with(WRITING)) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_part(&path);
        }
    }
}

/// The part of a file system's free bytes that a cache may take.
fn room(folder: &Path) -> u64 {
    let free = statvfs(folder).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
    free.saturating_sub(CACHE_ROOM_KEPT) / CACHE_ROOM_PART
}

/// What a cache is a cache of, and the bytes of its files.
pub(super) struct CacheIdentity {
    pub text: String,
    pub bytes: u64,
}

/// What a cache is a cache of: the files as they are, and all that changes what is read from them. `None`: the data can
/// be read only once, or its labels depend on what was read before.
pub(super) fn identity(data: &Data, batch: usize, share: Share) -> Option<CacheIdentity> {
    if data.source.is_some() || matches!(data.labels, Labels::Two(_)) {
        return None;
    }
    let (mut files, mut bytes) = (Vec::with_capacity(data.files.len()), 0);
    for file in &data.files {
        let facts =
            FileFacts::of(file).ok().filter(|facts| *file != "-" && facts.again && facts.bytes.is_some())?;
        bytes += facts.bytes.unwrap_or(0);
        files.push((file, facts.bytes, facts.version));
    }
    // All flags, also those that are still to come.
    let flags = Data { files: Vec::new(), cache: None, stop: Default::default(), ..data.clone() };
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("gannet {version}, batch {batch}, {share:?}, {flags:?}, {files:?}");
    Some(CacheIdentity { text, bytes })
}
