//! What processes of a job ask of the coordinator that a `gannet scheduler` keeps.

use crate::coordinator::{Coordinator, CoordinatorError, CoordinatorPage, CoordinatorWrite};
use rkyv::{Archive, Deserialize, Serialize};
use std::time::Duration;

/// A request. See [`Coordinator`] for each.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum CoordinatorRequestV1 {
    Get {
        key: String,
    },
    CompareAndSet {
        writes: Vec<CoordinatorWriteV1>,
    },
    Grant {
        ttl_ms: u64,
    },
    KeepAlive {
        lease: u64,
    },
    List {
        prefix: String,
        after: String,
    },
    Watch {
        prefix: String,
        since: u64,
    },
    /// Keys with the versions that they must have.
    Remove {
        keys: Vec<(String, u64)>,
    },
}

/// As [`CoordinatorWrite`].
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct CoordinatorWriteV1 {
    pub key: String,
    pub version: u64,
    pub value: Vec<u8>,
    pub lease: Option<u64>,
}

/// An answer.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum CoordinatorReplyV1 {
    /// The key's value and version.
    Entry(Option<(Vec<u8>, u64)>),
    /// The new version.
    Version(Option<u64>),
    Lease(u64),
    IsAlive(bool),
    /// Keys with their values and versions, whether there may be more, and the version of all.
    Page(Vec<(String, Vec<u8>, u64)>, bool, u64),
    /// The version, if there was a change.
    Changed(Option<u64>),
    /// Whether the keys are gone.
    Removed(bool),
}

impl CoordinatorRequestV1 {
    /// Asks a coordinator of this process.
    pub fn ask(&self, of: &dyn Coordinator) -> Result<CoordinatorReplyV1, CoordinatorError> {
        Ok(match self {
            CoordinatorRequestV1::Get { key } => {
                CoordinatorReplyV1::Entry(of.get(key)?.map(|entry| (entry.value, entry.version)))
            }
            CoordinatorRequestV1::CompareAndSet { writes } => {
                let write = |write: &CoordinatorWriteV1| {
                    let CoordinatorWriteV1 { key, version, value, lease } = write.clone();
                    CoordinatorWrite { key, version, value, lease }
                };
                let writes: Vec<CoordinatorWrite> = writes.iter().map(write).collect();
                CoordinatorReplyV1::Version(of.compare_and_set_all(&writes)?)
            }
            CoordinatorRequestV1::Grant { ttl_ms } => {
                CoordinatorReplyV1::Lease(of.grant(Duration::from_millis(*ttl_ms))?)
            }
            CoordinatorRequestV1::KeepAlive { lease } => CoordinatorReplyV1::IsAlive(of.keep_alive(*lease)?),
            CoordinatorRequestV1::List { prefix, after } => {
                let CoordinatorPage { entries, more, version } = of.list(prefix, after)?;
                let entries = entries.into_iter().map(|(key, entry)| (key, entry.value, entry.version));
                CoordinatorReplyV1::Page(entries.collect(), more, version)
            }
            CoordinatorRequestV1::Watch { prefix, since } => {
                CoordinatorReplyV1::Changed(of.watch(prefix, *since, Duration::ZERO)?)
            }
            CoordinatorRequestV1::Remove { keys } => CoordinatorReplyV1::Removed(of.remove_all(keys)?),
        })
    }
}
