//! The file of the registry. It is written whole and synced before it is renamed, and its name is synced before a
//! request is answered.
//!
//! ```text
//! 0   8  "GNTRUNS3"
//! 8   4  crc32c of what follows byte 16
//! 12  4  0
//! 16     a control message: the runs by name
//! ```
//! A file of version 2 is read, too. It knows no dead workers.

use crate::runs::registry::{RunAdmission, RunEnd, RunRecord};
use gannet_wire::messages::control;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{RunIntent, RunSetting};
use gannet_wire::whole_files;
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "RUNS";
const MAGIC: [u8; 8] = *b"GNTRUNS3";
const MAGIC_V2: [u8; 8] = *b"GNTRUNS2";

/// A setting of older versions, whose scheduler was chosen by its address. It is forgotten: a server may come back at
/// another address. The number of the job still tells the scheduler that has the job's state from any other.
const SCHEDULER_BY_ADDRESS: &str = "--scheduler (by default the server whose address comes first as text)";

/// Why the registry of runs cannot be read or written.
///
/// ```
/// use gannet_jobs::{Registry, RunsError};
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
struct RunsV3 {
    runs: BTreeMap<String, RunRecord>,
}

/// The runs of a file of version 2. Frozen.
#[derive(Archive, Serialize, Deserialize)]
struct RunsV2 {
    runs: BTreeMap<String, RunV2>,
}

#[derive(Archive, Serialize, Deserialize)]
struct RunV2 {
    generation: u32,
    rows_since: u32,
    begun: RunIntent,
    by: WorkerIncarnation,
    settings: Vec<RunSetting>,
    tables: Vec<String>,
    to_drop: Vec<String>,
    notes: String,
    birth: u64,
    members: BTreeMap<u32, AdmissionV2>,
    finished: Option<RunEnd>,
    job: u64,
}

#[derive(Archive, Serialize, Deserialize)]
struct AdmissionV2 {
    incarnation: u64,
    done: bool,
}

impl From<RunV2> for RunRecord {
    fn from(run: RunV2) -> RunRecord {
        let RunV2 { generation, rows_since, begun, by, settings, tables, to_drop, notes, birth, .. } = run;
        let RunV2 { members, finished, job, .. } = run;
        let admission = |(rank, of): (u32, AdmissionV2)| (rank, RunAdmission::new(of.incarnation, of.done));
        let (members, unfenced) = (members.into_iter().map(admission).collect(), BTreeSet::new());
        RunRecord {
            generation,
            rows_since,
            begun,
            by,
            settings,
            tables,
            to_drop,
            notes,
            birth,
            members,
            finished,
            job,
            unfenced,
        }
    }
}

/// The registry's file in a folder.
pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Reads the runs in the file.
pub(crate) fn load(file: &Path) -> Result<BTreeMap<String, RunRecord>, RunsError> {
    let bytes = whole_files::read(file).map_err(|source| RunsError::Io { path: file.into(), source })?;
    let Some(bytes) = bytes else { return Ok(BTreeMap::new()) };
    decode(&bytes).map_err(|why| RunsError::Torn { path: file.into(), why })
}

/// The bytes of a registry's file. A checkpoint has the same bytes as its state `runs`.
pub(crate) fn encode(runs: &BTreeMap<String, RunRecord>) -> Vec<u8> {
    whole_files::encode(MAGIC, &control::seal_as(3, &RunsV3 { runs: runs.clone() }))
}

/// The runs in these bytes.
///
/// # Errors
/// They are no registry, or a torn one: in words.
pub(crate) fn decode(bytes: &[u8]) -> Result<BTreeMap<String, RunRecord>, String> {
    let mut runs: BTreeMap<String, RunRecord> = if bytes.starts_with(&MAGIC_V2) {
        let payload = whole_files::decode(MAGIC_V2, bytes, "a registry")?;
        let archive = control::open_as::<RunsV2>(2, payload).map_err(|error| error.to_string())?;
        archive.runs.into_iter().map(|(name, run)| (name, run.into())).collect()
    } else {
        let payload = whole_files::decode(MAGIC, bytes, "a registry")?;
        control::open_as::<RunsV3>(3, payload).map_err(|error| error.to_string())?.runs
    };
    runs.values_mut().for_each(|run| run.settings.retain(|setting| setting.flag != SCHEDULER_BY_ADDRESS));
    Ok(runs)
}

/// Writes the runs.
pub(crate) fn save(file: &Path, runs: &BTreeMap<String, RunRecord>) -> Result<(), RunsError> {
    whole_files::replace(file, &encode(runs)).map_err(|source| RunsError::Io { path: file.into(), source })
}
