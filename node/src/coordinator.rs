//! The coordinator: a small store of keys that all processes of a job agree on, whatever else fails. It says who owns
//! what. It is no part of the path of pushes and pulls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A key's value, and how often it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorEntry {
    /// The value.
    pub value: Vec<u8>,
    /// A number that every write of any key raises. It is never 0.
    pub version: u64,
}

/// Why a coordinator gave no answer. A write may have happened nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator gave no answer: {0}")]
pub struct CoordinatorError(pub String);

/// What a coordinator does. A call waits for its answer, within a limit.
///
/// ```
/// use gannet_node::{Coordinator, MemoryCoordinator};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
/// let first = coordinator.compare_and_set("owner", 0, b"a", None)?;
/// assert!(first.is_some());
/// // Another process thinks that there is no owner, and learns that there is one.
/// assert_eq!(coordinator.compare_and_set("owner", 0, b"b", None)?, None);
/// assert_eq!(coordinator.get("owner")?.unwrap().value, b"a");
/// # Ok::<(), gannet_node::CoordinatorError>(())
/// ```
pub trait Coordinator: Send + Sync {
    /// The value of a key. `None`: nobody has written it, or its lease has ended.
    ///
    /// # Errors
    /// There was no answer.
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError>;

    /// Writes a key if it still has this version; 0: if it does not exist. With a lease the key exists as long as the
    /// lease. Returns the new version; `None`: the key has another version, or the lease has ended.
    ///
    /// # Errors
    /// There was no answer. The key may be written.
    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError>;

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
}

/// A coordinator in this process: for jobs on one machine, and for tests. What it knows ends with the process.
pub struct MemoryCoordinator {
    state: Mutex<MemoryState>,
    clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

#[derive(Default)]
struct MemoryState {
    keys: BTreeMap<String, (CoordinatorEntry, Option<u64>)>,
    /// Time of each lease, and when it ends.
    leases: BTreeMap<u64, (Duration, Duration)>,
    last: u64,
}

impl MemoryCoordinator {
    /// A coordinator without keys. `clock` never goes back.
    pub fn new(clock: Arc<dyn Fn() -> Duration + Send + Sync>) -> MemoryCoordinator {
        MemoryCoordinator { state: Mutex::default(), clock }
    }

    /// The state, without leases that have ended and their keys.
    fn now(&self) -> (MutexGuard<'_, MemoryState>, Duration) {
        let now = (self.clock)();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let MemoryState { keys, leases, .. } = &mut *guard;
        leases.retain(|_, (_, end)| *end > now);
        keys.retain(|_, (_, lease)| lease.is_none_or(|lease| leases.contains_key(&lease)));
        (guard, now)
    }
}

impl Coordinator for MemoryCoordinator {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        Ok(self.now().0.keys.get(key).map(|(entry, _)| entry.clone()))
    }

    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        let (mut state, _) = self.now();
        let has = state.keys.get(key).map_or(0, |(entry, _)| entry.version);
        if has != version || lease.is_some_and(|lease| !state.leases.contains_key(&lease)) {
            return Ok(None);
        }
        state.last += 1;
        let entry = CoordinatorEntry { value: value.to_vec(), version: state.last };
        state.keys.insert(key.to_owned(), (entry, lease));
        Ok(Some(state.last))
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        let (mut state, now) = self.now();
        state.last += 1;
        let lease = state.last;
        state.leases.insert(lease, (ttl, now + ttl));
        Ok(lease)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        let (mut state, now) = self.now();
        Ok(state.leases.get_mut(&lease).map(|(ttl, end)| *end = now + *ttl).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_key_ends_with_its_lease() {
        let time = Arc::new(AtomicU64::new(0));
        let clock = time.clone();
        let coordinator = MemoryCoordinator::new(Arc::new(move || Duration::from_secs(clock.load(Relaxed))));
        let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
        let version = coordinator.compare_and_set("owner", 0, b"a", Some(lease)).unwrap().unwrap();
        time.store(2, Relaxed);
        assert_eq!(coordinator.keep_alive(lease), Ok(true));
        time.store(4, Relaxed);
        assert_eq!(coordinator.get("owner").unwrap().map(|entry| entry.version), Some(version));
        time.store(5, Relaxed);
        assert_eq!((coordinator.get("owner"), coordinator.keep_alive(lease)), (Ok(None), Ok(false)));
        assert_eq!(coordinator.compare_and_set("owner", version, b"b", None), Ok(None));
        assert_eq!(
            coordinator.compare_and_set("owner", 0, b"b", Some(lease)),
            Ok(None),
            "its lease has ended"
        );
        assert!(coordinator.compare_and_set("owner", 0, b"b", None).unwrap().unwrap() > version);
    }
}
