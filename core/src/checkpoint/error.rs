//! Why a checkpoint of a job cannot be written or read.

use crate::checkpoint::names::folder_name;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why a checkpoint of a job cannot be written or read.
///
/// ```
/// use gannet_core::{CheckpointDir, CheckpointDirError};
///
/// # let folder = tempfile::tempdir()?;
/// let opened = CheckpointDir::open(&folder.path().join("nothing"));
/// assert!(matches!(opened, Err(CheckpointDirError::NoDirectory(_))));
/// let empty = CheckpointDir::open(folder.path())?;
/// assert!(matches!(empty.chain(3), Err(CheckpointDirError::Refused { number: 3, newest: None, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointDirError {
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
    /// There is no such folder.
    #[error("{}: there is no such folder: give the folder that --checkpoint named", .0.display())]
    NoDirectory(PathBuf),
    /// The folder has no checkpoint of this number, or one whose save was cut short.
    #[error("{}: there is no whole checkpoint here (no MANIFEST file)", .0.display())]
    Missing(PathBuf),
    /// The checkpoint was removed while it was read.
    #[error(
        "{}: this checkpoint was removed while it was read (by gannet checkpoint prune, or by the job that keeps only its \
         newest): use a newer one", .0.display()
    )]
    Pruned(PathBuf),
    /// A file is damaged, is not what the manifest says, or is not of this version.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The checkpoint belongs to another run.
    #[error(
        "{}: this checkpoint is of the run {saved:?}, not of the run {asked:?}: give each run a checkpoint directory of \
         its own (--checkpoint), or name the run of this one (--run)",
        path.display()
    )]
    OtherRun {
        /// The manifest.
        path: PathBuf,
        /// The run that saved it.
        saved: String,
        /// The run that would restore it, or save beside it.
        asked: String,
    },
    /// The checkpoint belongs to another job, whose run has the same name.
    #[error(
        "{}: this checkpoint is of another job, whose run is called {run:?} too: give each job a checkpoint directory of \
         its own (--checkpoint), or a run of its own name (--run)",
        path.display()
    )]
    OtherJob {
        /// The manifest, or its folder.
        path: PathBuf,
        /// The name of both runs.
        run: String,
    },
    /// The newest checkpoint has other tables than those that would be saved beside it, and they were not restored from
    /// a checkpoint of the directory. Neither job has a run that would tell them apart.
    #[error(
        "{}: this checkpoint is of another job: it has {saved}, and the servers have {asked}: give each job a checkpoint \
         directory of its own (--checkpoint), or start the servers from this one (--restore)",
        path.display()
    )]
    OtherTables {
        /// The folder of the checkpoint.
        path: PathBuf,
        /// A table of the checkpoint, with its id.
        saved: String,
        /// A table of the servers, with its id.
        asked: String,
    },
    /// A checkpoint cannot be used. The error says which other one can.
    #[error("checkpoint {number} cannot be used: {reason}; {}", offer(*number, reason, .newest.as_ref(), directory))]
    Refused {
        /// The requested checkpoint.
        number: u64,
        /// Why it cannot be used.
        reason: Box<CheckpointDirError>,
        /// The checkpoint directory.
        directory: PathBuf,
        /// The newest checkpoint there that can be used.
        newest: Option<u64>,
    },
}

fn offer(bad: u64, reason: &CheckpointDirError, newest: Option<&u64>, directory: &Path) -> String {
    let (folder, directory) = (directory.join(folder_name(bad)), directory.display());
    let Some(number) = newest else { return format!("{directory} has no other good checkpoint") };
    let named =
        format!("the newest good checkpoint in {directory} is {number}: name it ({directory}@{number})");
    match reason {
        CheckpointDirError::Pruned(_) => named,
        _ => format!("{named}, or move {} away", folder.display()),
    }
}

impl CheckpointDirError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointDirError {
        let path = path.to_path_buf();
        move |source| CheckpointDirError::Io { what, path, source }
    }

    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> CheckpointDirError {
        CheckpointDirError::Damaged { path: path.into(), why: why.into() }
    }

    /// Whether the process, or the system, has no more descriptors.
    pub fn is_out_of_descriptors(&self) -> bool {
        let codes = [Errno::MFILE, Errno::NFILE].map(|code| Some(code.raw_os_error()));
        matches!(self, CheckpointDirError::Io { source, .. } if codes.contains(&source.raw_os_error()))
    }

    /// Whether the checkpoint was removed while it was read. It was not the newest one.
    pub fn is_pruned(&self) -> bool {
        match self {
            CheckpointDirError::Pruned(_) => true,
            CheckpointDirError::Refused { reason, .. } => reason.is_pruned(),
            _ => false,
        }
    }

    /// Whether there is no such checkpoint: it was pruned, or its save is not finished.
    pub fn is_gone(&self) -> bool {
        match self {
            CheckpointDirError::Pruned(_) | CheckpointDirError::Missing(_) => true,
            CheckpointDirError::Refused { reason, .. } => reason.is_gone(),
            _ => false,
        }
    }

    /// Whether this process may not use the named file or folder, so that another try fails in the same way.
    pub fn is_forbidden(&self) -> bool {
        let codes = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOTDIR];
        let codes = codes.map(|code| Some(code.raw_os_error()));
        matches!(self, CheckpointDirError::Io { source, .. } if codes.contains(&source.raw_os_error()))
    }

    /// Whether the system failed, so that the files may be good all the same.
    pub fn is_system(&self) -> bool {
        match self {
            CheckpointDirError::Io { .. } => true,
            CheckpointDirError::Refused { reason, .. } => reason.is_system(),
            _ => false,
        }
    }
}
