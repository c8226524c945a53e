//! The file of a coordinator: keys, leases, the last number. It is synced before a request is answered.

use crate::coordinator::memory::{Clock, Hearing, MemoryState};
use gannet_wire::coordinator::{CoordinatorEntry, CoordinatorError};
use gannet_wire::state_file::StateFile;
use rkyv::{Archive, Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEPT_FILE: StateFile<KeptV1> =
    StateFile::new(b"GNTCOOR1", "a coordinator's file", "stop the servers of its jobs and remove it");

/// Numbers that are left out when a file is read: the ends of leases had numbers that are not in the file.
const NUMBERS_LEFT_OUT: u64 = 1 << 32;

#[derive(Archive, Serialize, Deserialize)]
struct KeptV1 {
    keys: Vec<KeptKeyV1>,
    /// Each lease and its time in milliseconds.
    leases: Vec<(u64, u64)>,
    last: u64,
}

#[derive(Archive, Serialize, Deserialize)]
struct KeptKeyV1 {
    key: String,
    value: Vec<u8>,
    version: u64,
    lease: Option<u64>,
}

/// The coordinator's file in a folder.
pub(crate) fn kept_path(folder: &Path) -> PathBuf {
    folder.join("COORDINATOR")
}

/// Reads the state in the file. Its leases begin when it has been read.
pub(crate) fn load_kept(file: &Path, clock: &Clock) -> Result<MemoryState, CoordinatorError> {
    let kept = KEPT_FILE.load(file).map_err(|error| CoordinatorError(error.to_string()))?;
    let Some(kept) = kept else { return Ok(MemoryState::new()) };
    let now = clock();
    let ttl = |(lease, millis): (u64, u64)| {
        let ttl = Duration::from_millis(millis);
        (lease, (ttl, now + ttl))
    };
    let key = |key: KeptKeyV1| {
        let entry = CoordinatorEntry { value: key.value, version: key.version };
        (key.key, (entry, key.lease))
    };
    let leases = kept.leases.into_iter().map(ttl).collect();
    let (keys, last) = (kept.keys.into_iter().map(key).collect(), kept.last.saturating_add(NUMBERS_LEFT_OUT));
    Ok(MemoryState { keys, leases, last, ended: last, hearing: Hearing::OpenSince(now) })
}

/// Writes the state.
pub(crate) fn save_kept(file: &Path, state: &MemoryState) -> Result<(), CoordinatorError> {
    let key = |(key, (entry, lease)): (&String, &(CoordinatorEntry, Option<u64>))| KeptKeyV1 {
        key: key.clone(),
        value: entry.value.clone(),
        version: entry.version,
        lease: *lease,
    };
    let keys = state.keys.iter().map(key).collect();
    let leases = state.leases.iter().map(|(lease, (ttl, _))| (*lease, ttl.as_millis() as u64)).collect();
    let saved = KEPT_FILE.save(file, &KeptV1 { keys, leases, last: state.last });
    saved.map_err(|error| CoordinatorError(error.to_string()))
}
