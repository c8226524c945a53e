//! What a coordinator does: it says who owns what, and all processes of a job agree on that.

use crate::limits::{COORDINATOR_KEYS_MAX, COORDINATOR_TIMEOUT};
use std::time::Duration;

/// A key's value, and how often it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorEntry {
    /// The value.
    pub value: Vec<u8>,
    /// A number that every write of any key raises. It is never 0.
    pub version: u64,
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorWrite {
    /// The key.
    pub key: String,
    /// The version that the key must still have. 0: it must not exist.
    pub version: u64,
    /// The new value.
    pub value: Vec<u8>,
    /// With a lease the key exists as long as the lease.
    pub lease: Option<u64>,
}

/// A page of keys, as [`Coordinator::list`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorPage {
    /// Keys in ascending order, each with what it has.
    pub entries: Vec<(String, CoordinatorEntry)>,
    /// There may be more keys behind the last.
    pub more: bool,
    /// The number of the coordinator's last change when it answered. [`Coordinator::watch`] goes on from there.
    pub version: u64,
}

/// Why a coordinator gave no answer. A write may have happened nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator gave no answer: {0}")]
pub struct CoordinatorError(pub String);

/// What a coordinator does. A call waits for its answer, within a limit.
///
/// ```
/// use gannet_wire::Coordinator;
/// use gannet_jobs::MemoryCoordinator;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
/// let first = coordinator.compare_and_set("owner", 0, b"a", None)?;
/// assert!(first.is_some());
/// // Another process thinks that there is no owner, and learns that there is one.
/// assert_eq!(coordinator.compare_and_set("owner", 0, b"b", None)?, None);
/// assert_eq!(coordinator.get("owner")?.unwrap().value, b"a");
/// # Ok::<(), gannet_wire::CoordinatorError>(())
/// ```
pub trait Coordinator: Send + Sync {
    /// The value of a key. `None`: nobody has written it, or its lease has ended.
    ///
    /// # Errors
    /// There was no answer.
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError>;

    /// Writes these keys, at most 64, if each still has its version. Nobody sees some of the writes without the others.
    /// Returns the new version, which all of them have. `None`: a key has another version, or a lease has ended, and
    /// nothing is written.
    ///
    /// # Errors
    /// There was no answer. The keys may be written, or be written later.
    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError>;

    /// Writes a key if it still has this version; 0: if it does not exist. With a lease the key exists as long as the
    /// lease. Returns the new version; `None`: the key has another version, or the lease has ended.
    ///
    /// # Errors
    /// There was no answer. The key may be written, or be written later.
    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        let (key, value) = (key.to_owned(), value.to_vec());
        self.compare_and_set_all(&[CoordinatorWrite { key, version, value, lease }])
    }

    /// Removes these keys, each with the version that it must still have, at most 64. Nobody sees some of them gone
    /// without the others. `false`: a key has another version, and all of them stay.
    ///
    /// # Errors
    /// There was no answer. The keys may be gone, or go later.
    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError>;

    /// Begins a lease, which ends when nobody has kept it alive for `ttl`. Returns its number.
    ///
    /// # Errors
    /// There was no answer.
    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError>;

    /// Keeps a lease alive for another of its times. `false`: it has ended.
    ///
    /// # Errors
    /// There was no answer. The lease may be alive.
    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError>;

    /// The keys that begin with `prefix` and come behind the key `after`, in ascending order. A page has at most 64
    /// keys, and ends behind 64 KiB of keys and values. `after` is empty for the first page, and the last key of the
    /// page before for the next one.
    ///
    /// # Errors
    /// There was no answer.
    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError>;

    /// Returns a version if a key that begins with `prefix` was written, or has ended, since the version `since`: that
    /// of a page, or of an earlier answer. `None`: nothing is known to have changed.
    ///
    /// A coordinator may wait for a change, at most for `limit`. Or it answers at once: a `gannet scheduler` does, and
    /// a `MemoryCoordinator`, because they must not wait for one caller while others ask. So a caller that wants to
    /// wait pauses between two calls. An answer may also report a change that there was not. A caller that relies on
    /// news reads the keys now and then without it: a coordinator that was started again does not know what changed
    /// before.
    ///
    /// # Errors
    /// There was no answer.
    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError>;

    /// The thread over which others ask this coordinator begins to wait for requests, for at most `limit`. A
    /// coordinator in the same process learns so for how long nobody could be heard, and ends no lease by that time.
    /// Others ignore it.
    fn begin_wait(&self, _limit: Duration) {}

    /// The wait is over, and the thread handles requests.
    fn end_wait(&self) {}
}

/// For how long a client tries to connect to a coordinator. The first attempt may take [`COORDINATOR_TIMEOUT`]. After a
/// connection was lost the attempts are short at first: behind a cut, a long one would take the rest of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectLimit(Duration);

impl ConnectLimit {
    /// Of a client that has never been connected.
    pub const FIRST: ConnectLimit = ConnectLimit(COORDINATOR_TIMEOUT);

    /// The limit of the next attempt.
    pub fn get(self) -> Duration {
        self.0
    }

    /// After an attempt that succeeded or failed.
    pub fn after(self, succeeded: bool) -> ConnectLimit {
        match succeeded {
            true => ConnectLimit(COORDINATOR_TIMEOUT / 8),
            false => ConnectLimit((self.0 * 2).min(COORDINATOR_TIMEOUT)),
        }
    }
}

/// All keys that begin with `prefix`, and the version of the first page.
pub fn list_all(
    coordinator: &dyn Coordinator,
    prefix: &str,
) -> Result<(Vec<(String, CoordinatorEntry)>, u64), CoordinatorError> {
    let CoordinatorPage { mut entries, mut more, version } = coordinator.list(prefix, "")?;
    while more && entries.len() < COORDINATOR_KEYS_MAX {
        let after = entries.last().map_or("", |(key, _)| key).to_owned();
        let page = coordinator.list(prefix, &after)?;
        more = page.more && !page.entries.is_empty();
        entries.extend(page.entries);
    }
    Ok((entries, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attempt that began in a cut of half a lease took a second, and the owner lost its place.
    #[test]
    fn attempts_behind_a_lost_connection_are_short_at_first() {
        let millis = |limit: ConnectLimit| limit.get().as_millis();
        let mut limit = ConnectLimit::FIRST;
        assert_eq!((millis(limit), millis(limit.after(false))), (1000, 1000));
        limit = limit.after(true);
        for wanted in [125, 250, 500, 1000, 1000] {
            assert_eq!(millis(limit), wanted);
            limit = limit.after(false);
        }
        assert_eq!(millis(limit.after(true)), 125);
    }
}
