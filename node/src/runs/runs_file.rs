//! The file of the registry. It is written whole and synced before it is renamed, and its name is synced before a
//! request is answered.
//!
//! ```text
//! 0   8  "GNTRUNS1"
//! 8   4  crc32c of what follows byte 16
//! 12  4  0
//! 16     a control message: the runs by name
//! ```

use super::registry::RunRecord;
use crate::frames::control;
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "RUNS";
const MAGIC: [u8; 8] = *b"GNTRUNS1";

/// Why the registry of runs cannot be read or written.
///
/// ```
/// use gannet_node::{Registry, RunsError};
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("RUNS"), "this is no registry of runs")?;
/// let opened = Registry::of_one_process(folder.path());
/// assert!(matches!(opened, Err(RunsError::Torn { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// The system reported an error.
    #[error("the registry of runs {}: {source}; free some space, or check the folder's permissions", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged, or is no registry.
    #[error(
        "the registry of runs {}: {why}; put back the file as it was, or move it away together with the tables' \
         folders beside it: without it nobody knows which rows are of a run that is finished",
        path.display()
    )]
    Torn {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Archive, Serialize, Deserialize)]
struct RunsV1 {
    runs: BTreeMap<String, RunRecord>,
}

/// The registry's file in a folder.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Reads the runs in the file.
pub(super) fn load(file: &Path) -> Result<BTreeMap<String, RunRecord>, RunsError> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(RunsError::Io { path: file.into(), source }),
    };
    decode(&bytes).map_err(|why| RunsError::Torn { path: file.into(), why })
}

/// The bytes of a registry's file. A checkpoint has the same bytes as its state `runs`.
pub(super) fn encode(runs: &BTreeMap<String, RunRecord>) -> Vec<u8> {
    let payload = control::seal(&RunsV1 { runs: runs.clone() });
    let mut bytes = vec![0; 16];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// The runs in these bytes.
///
/// # Errors
/// They are no registry, or a torn one: in words.
pub(super) fn decode(bytes: &[u8]) -> Result<BTreeMap<String, RunRecord>, String> {
    let Some((head, payload)) = bytes.split_first_chunk::<16>() else {
        return Err("it is too short".into());
    };
    if head[..8] != MAGIC {
        let why = match head[..7] == MAGIC[..7] {
            true => "another version of gannet wrote it",
            false => "it does not begin as a registry does",
        };
        return Err(why.into());
    }
    if head[8..12] != crc32c::crc32c(payload).to_le_bytes() || head[12..] != [0; 4] {
        return Err("its checksum is wrong".into());
    }
    control::open::<RunsV1>(payload).map(|archive| archive.runs).map_err(|error| error.to_string())
}

/// Writes the runs.
pub(super) fn save(file: &Path, runs: &BTreeMap<String, RunRecord>) -> Result<(), RunsError> {
    let encoded = encode(runs);
    let new = file.with_extension("new");
    let written = || -> io::Result<()> {
        let mut bytes = File::create(&new)?;
        bytes.write_all(&encoded)?;
        bytes.sync_all()?;
        fs::rename(&new, file)?;
        match file.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    written().map_err(|source| RunsError::Io { path: file.into(), source })
}
