//! The lock of the folder that `--out` names: one training at a time saves its model there.
//!
//! The lock is on the folder itself, so there is no file that a kill could leave. The system releases it when this
//! process ends, however it ends. Processes that this one starts do not get the descriptor.

use crate::failure::{Failure, SYSTEM};
use gannet::storage::own_files;
use rustix::fs::{Access, access};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The folders that this process has locked. They stay open, and so locked, until it ends.
static HELD: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());

/// The folder in that of a model in which its former one is.
pub const PREVIOUS: &str = "previous";

/// Locks a folder, which is made if it does not exist, until this process ends.
///
/// # Errors
/// Another training has locked it, or the folder cannot be made or written.
pub fn hold(folder: &Path) -> Result<(), Failure> {
    // A training that saves in the folder above keeps its former model here.
    if let Some(above) = folder.parent().filter(|_| folder.ends_with(PREVIOUS)) {
        hold(if above.as_os_str().is_empty() { Path::new(".") } else { above })?;
    }
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if held.iter().any(|(own, _)| own == folder) {
        return Ok(());
    }
    let failed = |what: &str, error: std::io::Error| {
        let folder = folder.display();
        let text =
            format!("--out {folder}: {what} {folder}: {error}; name a folder that can be written and read");
        Failure::new(SYSTEM, text)
    };
    std::fs::create_dir_all(folder).map_err(|error| failed("making", error))?;
    let opened = File::open(folder).map_err(|error| failed("opening", error))?;
    access(folder, Access::WRITE_OK).map_err(|error| failed("no file can be made in", error.into()))?;
    match own_files::lock_exclusive(&opened) {
        Ok(true) => {}
        Ok(false) => {
            return Err(Failure::input(format!(
                "--out {}: another training that runs now saves its model in this folder: wait until it has ended, or \
                 name another folder",
                folder.display()
            )));
        }
        // NFS, for example, locks no folders.
        Err(error) => tracing::debug!(%error, folder = %folder.display(), "this folder cannot be locked"),
    }
    held.push((folder.to_path_buf(), opened));
    Ok(())
}

/// Releases all folders that this process has locked.
pub fn release() {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
