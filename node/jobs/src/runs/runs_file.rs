//! The file of the registry: the runs by name. It is synced before a request is answered. A checkpoint has the same
//! bytes as its state `runs`.

use crate::runs::registry::RunRecord;
use gannet_wire::state_file::StateFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Its name in a data folder.
pub const RUNS_FILE_NAME: &str = "RUNS";

/// The file, with the runs by name.
///
/// ```
/// use gannet_jobs::Registry;
/// use gannet_wire::StateFileError;
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("RUNS"), "this is no registry of runs")?;
/// let opened = Registry::of_one_process(folder.path());
/// assert!(matches!(opened, Err(StateFileError::Torn { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const RUNS_FILE: StateFile<BTreeMap<String, RunRecord>> = StateFile::new(
    b"GNTRUNS3",
    "the registry of runs",
    "move it away together with the tables' folders beside it: without it nobody knows which rows are of a run that is \
     finished",
);

/// The registry's file in a folder.
pub(crate) fn runs_path(folder: &Path) -> PathBuf {
    folder.join(RUNS_FILE_NAME)
}
