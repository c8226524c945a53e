//! The file of a coordinator. It is written whole and synced before it is renamed, and its name is synced before a
//! request is answered.
//!
//! ```text
//! 0   8  "GNTCOOR1"
//! 8   4  crc32c of what follows byte 16
//! 12  4  0
//! 16     a control message: keys, leases, the last number
//! ```

use crate::coordinator::memory::{Clock, Hearing, MemoryState};
use gannet_wire::coordinator::{CoordinatorEntry, CoordinatorError};
use gannet_wire::messages::control;
use gannet_wire::whole_files;
use rkyv::{Archive, Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "COORDINATOR";
const MAGIC: [u8; 8] = *b"GNTCOOR1";
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
pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Reads the state in the file. Its leases begin when it has been read.
pub(crate) fn load(file: &Path, clock: &Clock) -> Result<MemoryState, CoordinatorError> {
    let because = |why: String| {
        let file = file.display();
        CoordinatorError(format!(
            "the file {file}: {why}; put it back as it was, or stop the servers of its jobs and remove it"
        ))
    };
    let bytes = whole_files::read(file).map_err(|error| because(error.to_string()))?;
    let Some(bytes) = bytes else { return Ok(MemoryState::new()) };
    let payload = whole_files::decode(MAGIC, &bytes, "a coordinator's file").map_err(because)?;
    let kept: KeptV1 = control::open(payload).map_err(|error| because(error.to_string()))?;
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
pub(crate) fn save(file: &Path, state: &MemoryState) -> Result<(), CoordinatorError> {
    let key = |(key, (entry, lease)): (&String, &(CoordinatorEntry, Option<u64>))| KeptKeyV1 {
        key: key.clone(),
        value: entry.value.clone(),
        version: entry.version,
        lease: *lease,
    };
    let keys = state.keys.iter().map(key).collect();
    let leases = state.leases.iter().map(|(lease, (ttl, _))| (*lease, ttl.as_millis() as u64)).collect();
    let payload = control::seal(&KeptV1 { keys, leases, last: state.last });
    let because = |error| CoordinatorError(format!("the file {}: {error}; free some space", file.display()));
    whole_files::replace(file, &whole_files::encode(MAGIC, &payload)).map_err(because)
}
