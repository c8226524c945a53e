//! A store of checkpoints in memory whose calls fail when a test wants it. It stands in for a disk that is full, a
//! network that loses answers, and an upload that is cut short.
#![forbid(unsafe_code)]

use gannet_core::{CheckpointStore, OpenedFile, StoreWriter, StoredFile};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Cursor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A call of a [`MemoryStore`], for the choice of a [`Fault`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCall {
    /// Its number, from 1. All calls of a store are counted together.
    pub number: u64,
    /// The method of [`CheckpointStore`], or `write` and `finish` of [`StoreWriter`].
    pub method: &'static str,
    /// The folder and the file, which may be empty.
    pub place: (String, String),
}

/// What goes wrong in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and the call fails.
    Fails,
    /// The call is done, and fails: its answer was lost.
    AnswerLost,
    /// Half of the bytes are written, or half of the files removed, and the call fails.
    Torn,
    /// The store is full. Only calls that write bytes fail.
    Full,
    /// The call succeeds, after this time.
    Slow(Duration),
}

type Choice = Box<dyn FnMut(&StoreCall) -> Option<Fault> + Send>;
type Folders = BTreeMap<String, BTreeMap<String, Arc<Vec<u8>>>>;

#[derive(Default)]
struct Contents {
    folders: Folders,
    calls: u64,
    faults: Option<Choice>,
}

/// A [`CheckpointStore`] in memory, shared by its clones.
///
/// ```
/// use gannet_core::{CheckpointDir, JobManifest};
/// use gannet_memory_store::{Fault, MemoryStore};
/// use std::sync::Arc;
///
/// let store = MemoryStore::default();
/// let directory = CheckpointDir::with_store("memory", Arc::new(store.clone()));
/// let draft = directory.begin()?;
/// store.set_faults(|call| (call.method == "publish").then_some(Fault::Fails));
/// let manifest = JobManifest::new(draft.number(), "monday");
/// assert!(draft.publish(&manifest).is_err());
/// store.clear_faults();
/// assert!(directory.newest_valid()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    contents: Arc<Mutex<Contents>>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.lock();
        let calls = contents.calls;
        f.debug_struct("MemoryStore")
            .field("folders", &contents.folders.len())
            .field("calls", &calls)
            .finish()
    }
}

impl MemoryStore {
    /// From now on `choose` says what goes wrong in each call. It must not call the store.
    pub fn set_faults(&self, choose: impl FnMut(&StoreCall) -> Option<Fault> + Send + 'static) {
        self.lock().faults = Some(Box::new(choose));
    }

    /// From now on nothing goes wrong.
    pub fn clear_faults(&self) {
        self.lock().faults = None;
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a call. `whole` does all of it, and `half` what a torn one does.
    fn call<T>(
        &self,
        method: &'static str,
        (folder, name): (&str, &str),
        whole: impl FnOnce(&mut Folders) -> io::Result<T>,
        half: impl FnOnce(&mut Folders),
    ) -> io::Result<T> {
        let mut contents = self.lock();
        contents.calls += 1;
        let call = StoreCall { number: contents.calls, method, place: (folder.into(), name.into()) };
        let fault = contents.faults.as_mut().and_then(|choose| choose(&call));
        let failed = |kind, what: &str| {
            Err(io::Error::new(kind, format!("{what} in call {} ({method})", call.number)))
        };
        match fault {
            None => whole(&mut contents.folders),
            Some(Fault::Fails) => failed(io::ErrorKind::Other, "a fault"),
            Some(Fault::AnswerLost) => {
                whole(&mut contents.folders)?;
                failed(io::ErrorKind::TimedOut, "a lost answer")
            }
            Some(Fault::Torn) => {
                half(&mut contents.folders);
                failed(io::ErrorKind::ConnectionReset, "a torn transfer")
            }
            Some(Fault::Full) if matches!(method, "reserve" | "create" | "write" | "finish" | "publish") => {
                failed(io::ErrorKind::StorageFull, "no space")
            }
            Some(Fault::Full) => whole(&mut contents.folders),
            Some(Fault::Slow(time)) => {
                drop(contents);
                std::thread::sleep(time);
                whole(&mut self.lock().folders)
            }
        }
    }
}

fn absent() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl CheckpointStore for MemoryStore {
    fn reserve(&self, folder: &str) -> io::Result<bool> {
        let make = |folders: &mut Folders| {
            let free = !folders.contains_key(folder);
            folders.entry(folder.into()).or_default();
            Ok(free)
        };
        self.call("reserve", (folder, ""), make, |_| {})
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        self.call("folders", ("", ""), |folders| Ok(folders.keys().cloned().collect()), |_| {})
    }

    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let list = |folders: &mut Folders| {
            let files = folders.get(folder).ok_or_else(absent)?.iter();
            let stored = |(name, bytes): (&String, &Arc<Vec<u8>>)| StoredFile {
                name: name.clone(),
                bytes: bytes.len() as u64,
                written: None,
            };
            Ok(files.map(stored).collect())
        };
        self.call("files", (folder, ""), list, |_| {})
    }

    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>> {
        let check = |folders: &mut Folders| match folders.get(folder).ok_or_else(absent)?.contains_key(name) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => Ok(()),
        };
        self.call("create", (folder, name), check, |_| {})?;
        let (store, place) = (self.clone(), (folder.to_owned(), name.to_owned()));
        Ok(Box::new(MemoryWriter { store, place, bytes: Vec::new() }))
    }

    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile> {
        let open = |folders: &mut Folders| {
            let bytes = folders.get(folder).and_then(|files| files.get(name)).ok_or_else(absent)?;
            Ok(Vec::clone(bytes))
        };
        let bytes = self.call("open", (folder, name), open, |_| {})?;
        Ok(OpenedFile { bytes: bytes.len() as u64, input: Box::new(Cursor::new(bytes)) })
    }

    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let write = |folders: &mut Folders| put(folders, folder, name, bytes);
        self.call("publish", (folder, name), write, |_| {})
    }

    fn sync(&self, folder: &str) -> io::Result<()> {
        self.call("sync", (folder, ""), |_| Ok(()), |_| {})
    }

    fn is_reserved(&self, folder: &str) -> io::Result<bool> {
        self.call("is_reserved", (folder, ""), |folders| Ok(folders.contains_key(folder)), |_| {})
    }

    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()> {
        let remove = |folders: &mut Folders, names: &[String]| {
            let files = folders.get_mut(folder);
            files.into_iter().for_each(|files| files.retain(|name, _| !names.contains(name)));
        };
        let whole = |folders: &mut Folders| {
            remove(folders, names);
            Ok(())
        };
        let half = |folders: &mut Folders| remove(folders, &names[..names.len().div_ceil(2)]);
        self.call("remove_files", (folder, ""), whole, half)
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        let whole = |folders: &mut Folders| {
            if folders.get(folder).is_some_and(BTreeMap::is_empty) {
                folders.remove(folder);
            }
            Ok(())
        };
        self.call("remove_folder", (folder, ""), whole, |_| {})
    }
}

fn put(folders: &mut Folders, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let files = folders.get_mut(folder).ok_or_else(absent)?;
    if files.get(name).is_some_and(|there| there[..] != *bytes) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    files.insert(name.into(), Arc::new(bytes.to_vec()));
    Ok(())
}

/// Writes a file of a [`MemoryStore`], which is there once it is finished.
struct MemoryWriter {
    store: MemoryStore,
    place: (String, String),
    bytes: Vec<u8>,
}

impl StoreWriter for MemoryWriter {
    fn write(&mut self, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let place = (&self.place.0[..], &self.place.1[..]);
        self.bytes.extend_from_slice(&bytes);
        bytes.clear();
        let half = |folders: &mut Folders| {
            // A store that cannot take the half has nothing.
            let _ = put(folders, place.0, place.1, &self.bytes[..self.bytes.len() / 2]);
        };
        self.store.call("write", place, |_| Ok(bytes), half)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        let place = (&self.place.0[..], &self.place.1[..]);
        let whole = |folders: &mut Folders| match folders
            .get(place.0)
            .is_some_and(|files| files.contains_key(place.1))
        {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => put(folders, place.0, place.1, &self.bytes),
        };
        let half = |folders: &mut Folders| {
            // A store that cannot take the half has nothing.
            let _ = put(folders, place.0, place.1, &self.bytes[..self.bytes.len() / 2]);
        };
        self.store.call("finish", place, whole, half)
    }
}
