//! A checkpoint directory: which checkpoints it has, and which of them can be used.

use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::checkpoint::names::{MANIFEST, folder_name, state_file};
use crate::checkpoint::stores::local_store::LocalStore;
use crate::checkpoint::stores::store::{CheckpointStore, OpenedFile, StoredFile};
use crate::limits::{CHECKPOINT_LOOKS_MAX, CHECKPOINT_MANIFEST_BYTES_MAX, CHECKPOINT_STATE_BYTES_MAX};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a directory is listed again that changes meanwhile.
const LOOKS_MAX: u32 = 100;
/// Why a file that is not there is missed.
const ABSENT: &str = "the manifest names this file, but it does not exist";

/// A checkpoint directory: a folder, or another [`CheckpointStore`], with a numbered folder for each checkpoint.
///
/// ```
/// use gannet_core::{CheckpointDir, CheckpointState, JobManifest};
///
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::create(&folder.path().join("checkpoints"))?;
/// let draft = directory.begin()?;
/// let tasks = draft.state("tasks", b"what the scheduler knows")?;
/// let manifest = JobManifest { states: vec![tasks], ..JobManifest::new(draft.number(), "monday") };
/// draft.publish(&manifest)?;
///
/// directory.begin()?; // a save that is cut short
/// let all = directory.list()?;
/// assert!(matches!(all[0].state, CheckpointState::Valid(_)));
/// assert!(matches!(all[1].state, CheckpointState::Incomplete));
/// let newest = directory.newest_valid()?.ok_or("no checkpoint")?;
/// assert_eq!(directory.read_state(&newest, "tasks")?, b"what the scheduler knows");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointDir {
    /// Its name in messages.
    path: PathBuf,
    store: Arc<dyn CheckpointStore>,
}

/// A checkpoint of a directory.
#[derive(Debug)]
pub struct ListedCheckpoint {
    /// Its number.
    pub number: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of the files in its folder.
    pub bytes: u64,
    /// When its manifest, or the newest file of an unfinished save, was written: seconds since the start of 1970.
    /// `None`: the folder has no file, or the store does not know.
    pub written: Option<u64>,
    /// Whether it can be used.
    pub state: CheckpointState,
}

/// Whether a checkpoint can be used.
#[derive(Debug)]
pub enum CheckpointState {
    /// The manifests of its chain are sound, and their files have the listed lengths.
    Valid(Box<JobManifest>),
    /// It has no manifest: its save is not finished, or was cut short.
    Incomplete,
    /// It, or a checkpoint that it needs, cannot be used.
    Damaged(CheckpointDirError),
}

impl CheckpointDir {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(path: &Path) -> Result<CheckpointDir, CheckpointDirError> {
        match path.is_dir() {
            true => Ok(CheckpointDir::with_store(path, Arc::new(LocalStore::new(path)))),
            false => Err(CheckpointDirError::NoDirectory(path.into())),
        }
    }

    /// Opens a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn create(path: &Path) -> Result<CheckpointDir, CheckpointDirError> {
        let store = LocalStore::create(path).map_err(CheckpointDirError::io("making", path))?;
        Ok(CheckpointDir::with_store(path, Arc::new(store)))
    }

    /// The directory in a store. Messages call it `path`: a folder, or a URL.
    pub fn with_store(path: impl Into<PathBuf>, store: Arc<dyn CheckpointStore>) -> CheckpointDir {
        CheckpointDir { path: path.into(), store }
    }

    /// The store with its files.
    pub(crate) fn store(&self) -> &dyn CheckpointStore {
        &*self.store
    }

    /// The directory's folder, or its URL.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a checkpoint, as messages name it.
    pub fn folder(&self, number: u64) -> PathBuf {
        self.path.join(folder_name(number))
    }

    /// The numbers of all folders of checkpoints, in ascending order. A folder of the user that has such a name is
    /// none.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, CheckpointDirError> {
        let mut listed = self.numbered_folders()?;
        for _ in 0..LOOKS_MAX {
            let mut numbers = Vec::new();
            for &number in &listed {
                let reserved = self.store.is_reserved(&folder_name(number));
                if reserved.map_err(CheckpointDirError::io("reading", &self.folder(number)))? {
                    numbers.push(number);
                }
            }
            if numbers.len() == listed.len() {
                return Ok(numbers);
            }
            // A checkpoint may have been removed meanwhile. A newer one came before that.
            let again = self.numbered_folders()?;
            if again == listed {
                return Ok(numbers);
            }
            listed = again;
        }
        Ok(listed)
    }

    /// The numbers of all folders that are named as checkpoints are, in ascending order.
    fn numbered_folders(&self) -> Result<Vec<u64>, CheckpointDirError> {
        let names = match self.store.folders() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointDirError::NoDirectory(self.path.clone()));
            }
            other => other.map_err(CheckpointDirError::io("listing", &self.path))?,
        };
        let number = |name: &String| name.parse::<u64>().ok().filter(|number| *name == folder_name(*number));
        let mut numbers: Vec<u64> = names.iter().filter_map(number).filter(|number| *number > 0).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the manifest of a checkpoint and checks that its files have their lengths.
    pub(crate) fn load(&self, number: u64) -> Result<JobManifest, CheckpointDirError> {
        let manifest = self.read_manifest(number)?;
        check_file_lengths(&manifest, &self.files(number)?, &self.folder(number))?;
        Ok(manifest)
    }

    /// Reads the manifest of a checkpoint.
    pub(crate) fn read_manifest(&self, number: u64) -> Result<JobManifest, CheckpointDirError> {
        let folder = self.folder(number);
        let path = folder.join(MANIFEST);
        let opened = match self.store.open(&folder_name(number), MANIFEST) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointDirError::Missing(folder));
            }
            other => other.map_err(CheckpointDirError::io("opening", &path))?,
        };
        let mut bytes = Vec::new();
        let mut input = opened.input.take(CHECKPOINT_MANIFEST_BYTES_MAX + 1);
        input.read_to_end(&mut bytes).map_err(CheckpointDirError::io("reading", &path))?;
        if bytes.len() as u64 > CHECKPOINT_MANIFEST_BYTES_MAX {
            let why =
                format!("it has more than {CHECKPOINT_MANIFEST_BYTES_MAX} bytes, which no manifest has");
            return Err(CheckpointDirError::damaged(&path, why));
        }
        let manifest = JobManifest::decode(&bytes).map_err(|why| CheckpointDirError::damaged(&path, why))?;
        if manifest.number != number {
            let why = format!("it is the manifest of checkpoint {}", manifest.number);
            return Err(CheckpointDirError::damaged(&path, why));
        }
        Ok(manifest)
    }

    /// The files of a checkpoint. None: there is no such folder, because it was removed, for example.
    pub(crate) fn files(&self, number: u64) -> Result<Vec<StoredFile>, CheckpointDirError> {
        match self.store.files(&folder_name(number)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(CheckpointDirError::io("listing", &self.folder(number))),
        }
    }

    /// Checks that servers can write into the folder of a checkpoint that was begun and is not published.
    ///
    /// # Errors
    /// There is no such folder, it has a manifest, or it cannot be listed. The error says what to do.
    pub fn must_be_begun(&self, number: u64) -> Result<(), CheckpointDirError> {
        let path = self.folder(number);
        let why = match self.store.files(&folder_name(number)) {
            Ok(files) if !files.iter().any(|file| file.name == MANIFEST) => return Ok(()),
            Ok(_) => {
                "this checkpoint is complete already: the checkpoint directory of this server (--checkpoint) is not \
                 the folder into which the checkpoint is saved; name the same folder to all"
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                "this server cannot reach the folder of the checkpoint: put the checkpoint directory where all \
                 servers reach it under one path"
            }
            Err(e) => return Err(CheckpointDirError::io("listing", &path)(e)),
        };
        Err(CheckpointDirError::damaged(&path, why))
    }

    /// Makes the names of the files of a checkpoint durable.
    ///
    /// # Errors
    /// They may not be durable.
    pub fn sync(&self, number: u64) -> Result<(), CheckpointDirError> {
        let synced = self.store.sync(&folder_name(number));
        synced.map_err(CheckpointDirError::io("syncing", &self.folder(number)))
    }

    /// Opens a file that a manifest lists with this length.
    pub(crate) fn open_listed(
        &self,
        number: u64,
        name: &str,
        bytes: u64,
    ) -> Result<OpenedFile, CheckpointDirError> {
        let path = self.folder(number).join(name);
        match self.store.open(&folder_name(number), name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(self.or_pruned(number, CheckpointDirError::damaged(&path, ABSENT)))
            }
            Ok(opened) if opened.bytes != bytes => Err(wrong_length(&path, opened.bytes, bytes)),
            other => other.map_err(CheckpointDirError::io("opening", &path)),
        }
    }

    /// What is wrong with a checkpoint that was read. If its manifest is gone now, the checkpoint was pruned: that
    /// removes the manifest first, and increments before their parents. Otherwise a file is damaged.
    pub(crate) fn or_pruned(&self, number: u64, error: CheckpointDirError) -> CheckpointDirError {
        let is_gone = || matches!(self.read_manifest(number), Err(CheckpointDirError::Missing(_)));
        match error {
            CheckpointDirError::Damaged { .. } if is_gone() => {
                CheckpointDirError::Pruned(self.folder(number))
            }
            other => other,
        }
    }

    /// Every checkpoint in the directory, in the order of their numbers.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn list(&self) -> Result<Vec<ListedCheckpoint>, CheckpointDirError> {
        let mut valid: BTreeMap<u64, JobManifest> = BTreeMap::new();
        let mut all = Vec::new();
        for number in self.numbers()? {
            let path = self.folder(number);
            // The manifest comes first: files that it names are there before it is.
            let manifest = self.read_manifest(number);
            let files = self.files(number)?;
            let loaded = manifest.and_then(|manifest| {
                check_file_lengths(&manifest, &files, &path)?;
                // A parent has a smaller number, so its state is known.
                if let Some(parent) = manifest.parent {
                    self.check_parent(&manifest, valid.get(&parent).ok_or(parent))?;
                }
                Ok(manifest)
            });
            let written = |file: &StoredFile| (file.name == MANIFEST, file.written);
            let written = files.iter().map(written).max().and_then(|(_, written)| written);
            let bytes = files.iter().map(|file| file.bytes).sum();
            let state = match loaded.map_err(|error| self.or_pruned(number, error)) {
                Ok(manifest) => {
                    valid.insert(number, manifest.clone());
                    CheckpointState::Valid(Box::new(manifest))
                }
                Err(CheckpointDirError::Missing(_) | CheckpointDirError::Pruned(_)) => {
                    CheckpointState::Incomplete
                }
                Err(error) => CheckpointState::Damaged(error),
            };
            all.push(ListedCheckpoint { number, path, bytes, written, state });
        }
        Ok(all)
    }

    /// Checks that a checkpoint continues its parent. `parent`: the manifest, or the number of one that cannot be used.
    fn check_parent(
        &self,
        child: &JobManifest,
        parent: Result<&JobManifest, u64>,
    ) -> Result<(), CheckpointDirError> {
        let checked = match parent {
            Ok(parent) => child.check_follows(parent),
            Err(number) if self.files(number)?.iter().any(|file| file.name == MANIFEST) => {
                Err(format!("it is an increment of checkpoint {number}, which cannot be used"))
            }
            Err(number) => Err(format!("it is an increment of checkpoint {number}, which is not here")),
        };
        checked.map_err(|why| CheckpointDirError::damaged(&self.folder(child.number).join(MANIFEST), why))
    }

    /// The manifests that a checkpoint consists of, the oldest first: one that stands alone, then its increments.
    ///
    /// # Errors
    /// [`CheckpointDirError::Refused`], which names what is missing or damaged, and the newest checkpoint that is good.
    pub fn chain(&self, number: u64) -> Result<Vec<JobManifest>, CheckpointDirError> {
        self.chain_of(number).map_err(|reason| self.refused(number, reason))
    }

    /// The error for a checkpoint that cannot be used, with the newest one that can.
    pub(crate) fn refused(&self, number: u64, reason: CheckpointDirError) -> CheckpointDirError {
        let newest =
            |numbers: &[u64]| numbers.iter().rev().copied().find(|other| self.chain_of(*other).is_ok());
        let newest = self.look(|numbers| Ok(newest(numbers))).ok().flatten();
        CheckpointDirError::Refused { number, reason: reason.into(), directory: self.path.clone(), newest }
    }

    /// Looks for something among the numbers of all checkpoints, as [`look_among`](Self::look_among).
    fn look<T>(
        &self,
        find: impl Fn(&[u64]) -> Result<Option<T>, CheckpointDirError>,
    ) -> Result<Option<T>, CheckpointDirError> {
        self.look_among(|| self.numbers(), find)
    }

    /// Looks for something among the numbers of `list`, from the newest. A prune removes a checkpoint only behind a
    /// newer one. That one may have a number that was not listed, or its save may end after `find` has read it. So
    /// `find` gets the same numbers twice before it is believed.
    fn look_among<T>(
        &self,
        list: impl Fn() -> Result<Vec<u64>, CheckpointDirError>,
        find: impl Fn(&[u64]) -> Result<Option<T>, CheckpointDirError>,
    ) -> Result<Option<T>, CheckpointDirError> {
        let (mut numbers, mut before, mut looks) = (list()?, None, 0);
        loop {
            let found = find(&numbers);
            if matches!(found, Ok(Some(_))) {
                return found;
            }
            let now = list()?;
            looks += 1;
            if looks == CHECKPOINT_LOOKS_MAX || now == numbers && before.as_ref() == Some(&numbers) {
                return found;
            }
            before = Some(std::mem::replace(&mut numbers, now));
        }
    }

    pub(crate) fn chain_of(&self, number: u64) -> Result<Vec<JobManifest>, CheckpointDirError> {
        self.read_chain(number).map_err(|error| self.or_pruned(number, error))
    }

    fn read_chain(&self, number: u64) -> Result<Vec<JobManifest>, CheckpointDirError> {
        let mut chain = vec![self.load(number)?];
        // Numbers fall, so this ends.
        while let Some((child, parent)) = chain.last().and_then(|last| Some((last, last.parent?))) {
            let loaded = match self.load(parent) {
                Err(CheckpointDirError::Missing(_)) => Err(parent),
                other => Ok(other?),
            };
            self.check_parent(child, loaded.as_ref().map_err(|number| *number))?;
            chain.extend(loaded);
        }
        chain.reverse();
        Ok(chain)
    }

    /// The newest checkpoint whose chain of manifests is sound and whose files have the listed lengths.
    /// [`verify`](Self::verify) also reads the files. `None`: no save was finished here. A newer one that cannot be
    /// used is skipped with a warning.
    ///
    /// # Errors
    /// The system fails, or checkpoints are here and none can be used.
    pub fn newest_valid(&self) -> Result<Option<JobManifest>, CheckpointDirError> {
        Ok(self.newest_chain()?.and_then(|mut chain| chain.pop()))
    }

    /// As [`newest_valid`](Self::newest_valid), with the manifests that it consists of, the oldest first.
    ///
    /// # Errors
    /// As [`newest_valid`](Self::newest_valid).
    pub fn newest_chain(&self) -> Result<Option<Vec<JobManifest>>, CheckpointDirError> {
        self.look(|numbers| self.newest_chain_of(numbers))
    }

    fn newest_chain_of(&self, numbers: &[u64]) -> Result<Option<Vec<JobManifest>>, CheckpointDirError> {
        let mut first = None;
        for number in numbers.iter().rev().copied() {
            match self.chain_of(number) {
                Ok(chain) => return Ok(Some(chain)),
                Err(CheckpointDirError::Missing(_) | CheckpointDirError::Pruned(_)) => {}
                Err(error) if error.is_system() => return Err(error),
                Err(error) => {
                    tracing::warn!("checkpoint {number} cannot be used: {error}");
                    first.get_or_insert((number, error));
                }
            }
        }
        match first {
            None => Ok(None),
            Some((number, reason)) => {
                let (directory, newest) = (self.path.clone(), None);
                Err(CheckpointDirError::Refused { number, reason: reason.into(), directory, newest })
            }
        }
    }

    /// The newest manifest that can be read, whether or not the checkpoint can be used. It says whose directory this
    /// is.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn newest_manifest(&self) -> Result<Option<JobManifest>, CheckpointDirError> {
        self.newest_manifest_among(&|_| true)
    }

    /// [`newest_manifest`](Self::newest_manifest) among some numbers.
    pub(crate) fn newest_manifest_among(
        &self,
        is_among: &dyn Fn(u64) -> bool,
    ) -> Result<Option<JobManifest>, CheckpointDirError> {
        // A folder with a manifest is that of a checkpoint: it is not asked for its mark, which takes a request in a
        // bucket.
        let read = |numbers: &[u64]| {
            let mut numbers = numbers.iter().rev().filter(|&&number| is_among(number));
            numbers.find_map(|&number| self.read_manifest(number).ok())
        };
        self.look_among(|| self.numbered_folders(), |numbers| Ok(read(numbers)))
    }

    /// Reads a state file, all of it.
    ///
    /// # Errors
    /// The checkpoint has no such state, or its file is missing or damaged.
    pub fn read_state(&self, manifest: &JobManifest, name: &str) -> Result<Vec<u8>, CheckpointDirError> {
        let folder = self.folder(manifest.number);
        let Some(entry) = manifest.states.iter().find(|state| state.name == name) else {
            let why = format!("it lists no state {name:?}");
            return Err(CheckpointDirError::damaged(&folder.join(MANIFEST), why));
        };
        let path = folder.join(state_file(name));
        if entry.bytes > CHECKPOINT_STATE_BYTES_MAX {
            let why = format!("{} bytes are more than {CHECKPOINT_STATE_BYTES_MAX}", entry.bytes);
            return Err(CheckpointDirError::damaged(&path, why));
        }
        let opened = self.open_listed(manifest.number, &state_file(name), entry.bytes)?;
        let mut bytes = Vec::with_capacity(entry.bytes as usize);
        let mut input = opened.input.take(entry.bytes);
        input.read_to_end(&mut bytes).map_err(CheckpointDirError::io("reading", &path))?;
        if bytes.len() as u64 != entry.bytes || crc32c::crc32c(&bytes) != entry.crc {
            return Err(CheckpointDirError::damaged(&path, "its checksum is wrong"));
        }
        Ok(bytes)
    }
}

fn wrong_length(path: &Path, found: u64, saved: u64) -> CheckpointDirError {
    CheckpointDirError::damaged(path, format!("the file has {found} bytes, but {saved} were saved"))
}

/// Checks that the files of a manifest are there, with their lengths. `found`: the files in its folder.
pub(crate) fn check_file_lengths(
    manifest: &JobManifest,
    found: &[StoredFile],
    folder: &Path,
) -> Result<(), CheckpointDirError> {
    let found: HashMap<&str, u64> = found.iter().map(|file| (&file.name[..], file.bytes)).collect();
    let files = manifest.files().map(|file| (file.name.clone(), file.bytes));
    let states = manifest.states.iter().map(|state| (state_file(&state.name), state.bytes));
    for (name, bytes) in files.chain(states) {
        match found.get(&name[..]) {
            None => return Err(CheckpointDirError::damaged(&folder.join(name), ABSENT)),
            Some(found) if *found != bytes => return Err(wrong_length(&folder.join(name), *found, bytes)),
            Some(_) => {}
        }
    }
    Ok(())
}
