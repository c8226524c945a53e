//! A checkpoint directory: which checkpoints it has, and which of them can be used.

use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::checkpoint::row_file_reader::open_listed;
use crate::image::durability;
use crate::limits::{CHECKPOINT_MANIFEST_BYTES_MAX, CHECKPOINT_STATE_BYTES_MAX};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub(crate) const MANIFEST: &str = "MANIFEST";
/// Digits of a checkpoint's folder, with zeros in front.
const DIGITS: usize = 10;

/// A checkpoint directory: a folder with a numbered folder for each checkpoint.
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
    path: PathBuf,
}

/// A checkpoint of a directory.
#[derive(Debug)]
pub struct ListedCheckpoint {
    /// Its number.
    pub number: u64,
    /// Its folder.
    pub path: PathBuf,
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
    /// Opens an existing directory.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(path: &Path) -> Result<CheckpointDir, CheckpointDirError> {
        match path.is_dir() {
            true => Ok(CheckpointDir { path: path.into() }),
            false => Err(CheckpointDirError::NoDirectory(path.into())),
        }
    }

    /// Opens a directory, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn create(path: &Path) -> Result<CheckpointDir, CheckpointDirError> {
        durability::make_folder(path).map_err(CheckpointDirError::io("making", path))?;
        Ok(CheckpointDir { path: path.into() })
    }

    /// The directory's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a checkpoint.
    pub fn folder(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}"))
    }

    /// The numbers of all folders of checkpoints, in ascending order.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, CheckpointDirError> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(CheckpointDirError::io("listing", &self.path))? {
            let entry = entry.map_err(CheckpointDirError::io("listing", &self.path))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
            let ours = number.filter(|number| name.to_str() == Some(&format!("{number:0DIGITS$}")));
            let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            numbers.extend(ours.filter(|number| folder && *number > 0));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the manifest of a checkpoint and checks that its files have their lengths.
    pub(crate) fn load(&self, number: u64) -> Result<JobManifest, CheckpointDirError> {
        let folder = self.folder(number);
        let path = folder.join(MANIFEST);
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointDirError::Missing(folder));
            }
            other => other.map_err(CheckpointDirError::io("opening", &path))?,
        };
        let mut bytes = Vec::new();
        file.take(CHECKPOINT_MANIFEST_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(CheckpointDirError::io("reading", &path))?;
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
        self.check_lengths(&manifest)?;
        Ok(manifest)
    }

    /// Checks that the files of a manifest are there, with their lengths.
    pub(crate) fn check_lengths(&self, manifest: &JobManifest) -> Result<(), CheckpointDirError> {
        let folder = self.folder(manifest.number);
        for file in manifest.files() {
            open_listed(&folder.join(&file.name), file.bytes)?;
        }
        for state in &manifest.states {
            open_listed(&folder.join(format!("{}.state", state.name)), state.bytes)?;
        }
        Ok(())
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
            let loaded = self.load(number).and_then(|manifest| {
                // A parent has a smaller number, so its state is known.
                if let Some(parent) = manifest.parent {
                    self.check_parent(&manifest, valid.get(&parent).ok_or(parent))?;
                }
                Ok(manifest)
            });
            let state = match loaded {
                Ok(manifest) => {
                    valid.insert(number, manifest.clone());
                    CheckpointState::Valid(Box::new(manifest))
                }
                Err(CheckpointDirError::Missing(_)) => CheckpointState::Incomplete,
                Err(error) => CheckpointState::Damaged(error),
            };
            all.push(ListedCheckpoint { number, path, state });
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
            Err(number) if self.folder(number).join(MANIFEST).exists() => {
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
    fn refused(&self, number: u64, reason: CheckpointDirError) -> CheckpointDirError {
        let numbers = self.numbers().unwrap_or_default();
        let newest = numbers.into_iter().rev().find(|other| self.chain_of(*other).is_ok());
        CheckpointDirError::Refused { number, reason: reason.into(), directory: self.path.clone(), newest }
    }

    pub(crate) fn chain_of(&self, number: u64) -> Result<Vec<JobManifest>, CheckpointDirError> {
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
        let mut first = None;
        for number in self.numbers()?.into_iter().rev() {
            match self.chain_of(number) {
                Ok(mut chain) => return Ok(chain.pop()),
                Err(CheckpointDirError::Missing(_)) => {}
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
        let path = folder.join(format!("{name}.state"));
        if entry.bytes > CHECKPOINT_STATE_BYTES_MAX {
            let why = format!("{} bytes are more than {CHECKPOINT_STATE_BYTES_MAX}", entry.bytes);
            return Err(CheckpointDirError::damaged(&path, why));
        }
        let file = open_listed(&path, entry.bytes)?;
        let mut bytes = Vec::with_capacity(entry.bytes as usize);
        file.take(entry.bytes).read_to_end(&mut bytes).map_err(CheckpointDirError::io("reading", &path))?;
        if bytes.len() as u64 != entry.bytes || crc32c::crc32c(&bytes) != entry.crc {
            return Err(CheckpointDirError::damaged(&path, "its checksum is wrong"));
        }
        Ok(bytes)
    }
}
