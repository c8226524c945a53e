//! Where a model comes from, and how to see that there is a new one.

use super::follow::Following;
use super::served::ServedModel;
use gannet::storage::CheckpointDir;
use gannet::train::saved::{JobCheckpoint, SavedModelError, load_job_model, load_model};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where a model comes from.
#[derive(Clone)]
pub enum ModelOrigin {
    /// The folder that `gannet train --out` writes.
    Folder(PathBuf),
    /// The checkpoints of a job, in a folder or a bucket.
    Checkpoints {
        /// What messages call it.
        place: String,
        /// The directory.
        directory: CheckpointDir,
        /// The number of the checkpoint. `None`: the newest one, and each newer one.
        number: Option<u64>,
    },
    /// The first one until the second has a model: a job learns further from the first.
    Learned(Box<ModelOrigin>, Box<ModelOrigin>),
    /// The servers of a training, which are followed. Who watches the models takes it.
    Servers(Arc<Mutex<Following>>),
}

impl fmt::Display for ModelOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelOrigin::Folder(folder) => write!(f, "{}", folder.display()),
            ModelOrigin::Learned(first, then) => write!(f, "{first}, then {then}"),
            ModelOrigin::Servers(servers) => write!(f, "{}", locked(servers).place()),
            ModelOrigin::Checkpoints { place, number: None, .. } => write!(f, "{place}"),
            ModelOrigin::Checkpoints { place, number: Some(number), .. } => write!(f, "{place}@{number}"),
        }
    }
}

/// What changes when a source has another model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The manifest of a folder, which a save replaces last: its inode, bytes, and time.
    Manifest(u64, u64, (i64, i64)),
    /// What tells the newest checkpoint apart. Another job may begin again with its number.
    Checkpoint(u64),
}

impl ModelOrigin {
    /// How often to look for a new model. A bucket takes a request for each look.
    pub fn look_every(&self) -> Duration {
        match self {
            ModelOrigin::Folder(_) => crate::limits::LOOK_EVERY,
            // Its checkpoints are on this machine.
            ModelOrigin::Learned(first, _) => first.look_every(),
            ModelOrigin::Servers(_) => crate::limits::FOLLOW_EVERY,
            ModelOrigin::Checkpoints { .. } => crate::limits::LIST_EVERY,
        }
    }

    /// The mark of what is there now. `None`: there is no model.
    pub fn mark(&self) -> Option<Mark> {
        match self {
            ModelOrigin::Learned(first, then) => then.mark().or_else(|| first.mark()),
            ModelOrigin::Folder(folder) => {
                let found = std::fs::metadata(folder.join("MANIFEST")).ok()?;
                Some(Mark::Manifest(found.ino(), found.len(), (found.mtime(), found.mtime_nsec())))
            }
            ModelOrigin::Checkpoints { directory, number, .. } => {
                let job = JobCheckpoint::open(directory.clone(), *number).ok()??;
                Some(Mark::Checkpoint(job.digest()))
            }
            ModelOrigin::Servers(_) => None,
        }
    }

    /// Loads the model that is there now.
    ///
    /// # Errors
    /// There is none, or a file of it is damaged.
    pub fn load(&self) -> Result<ServedModel, SavedModelError> {
        match self {
            ModelOrigin::Learned(first, then) => {
                if then.mark().is_some() {
                    then.load()
                } else {
                    first.load()
                }
            }
            ModelOrigin::Folder(folder) => {
                let saved_at = std::fs::metadata(folder.join("MANIFEST")).and_then(|found| found.modified());
                let saved = load_model(folder)?;
                let version = format!("{:016x}", saved.digest);
                ServedModel::new(saved, version, saved_at.unwrap_or_else(|_| SystemTime::now()))
            }
            ModelOrigin::Checkpoints { place, directory, number } => {
                let in_words = |error: &dyn fmt::Display| SavedModelError::Job(error.to_string());
                let opened = JobCheckpoint::open(directory.clone(), *number).map_err(|e| in_words(&e))?;
                let Some(job) = opened else {
                    return Err(in_words(&format!(
                        "{place}: no checkpoint here is complete: name another place, or wait for the next save"
                    )));
                };
                let saved_at = written(directory, &job.folder());
                let saved = load_job_model(&job)?;
                // The number is for people. Another job may begin again with it.
                let version = format!("{}-{:08x}", job.manifest().number, saved.digest >> 32);
                ServedModel::new(saved, version, saved_at)
            }
            ModelOrigin::Servers(servers) => locked(servers).first(),
        }
    }

    /// Whether the model follows a training, so that its version changes several times a second.
    pub fn follows(&self) -> bool {
        matches!(self, ModelOrigin::Servers(_))
    }
}

/// What follows servers.
pub fn locked(servers: &Mutex<Following>) -> MutexGuard<'_, Following> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a checkpoint was written. A bucket that does not say it: now.
fn written(directory: &CheckpointDir, folder: &Path) -> SystemTime {
    let listed = directory.list().unwrap_or_default();
    let written = listed.iter().find(|of| of.path == folder).and_then(|of| of.written);
    written.map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
}
