//! A coordinator forgets a job that has no servers any more.

use crate::membership::registry::members_of;
use gannet_wire::coordinator::{Coordinator, CoordinatorError, list_all};
use gannet_wire::limits::COORDINATOR_WRITES_MAX;

/// What became of what a coordinator knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacesForgotten {
    /// It knows nothing of the job.
    Unknown,
    /// Servers of the job have been heard of within their leases, so nothing was removed. Their addresses, as far as
    /// they have registered.
    Live(Vec<String>),
    /// So many keys were removed.
    Removed(u64),
}

/// Makes a coordinator forget a job of which no server lives: which server had which place, and how often the job went
/// back. Rows in data folders of its servers stay there, and nobody knows any more whether they are the newest: a
/// server with such a folder ends by name.
///
/// # Errors
/// The coordinator gave no answer. Some of the keys may be removed. The call can be made again.
pub fn forget_places(coordinator: &dyn Coordinator, job: &str) -> Result<PlacesForgotten, CoordinatorError> {
    let (keys, _) = list_all(coordinator, &format!("{job}/"))?;
    if keys.is_empty() {
        return Ok(PlacesForgotten::Unknown);
    }
    let live = || -> Result<PlacesForgotten, CoordinatorError> {
        Ok(PlacesForgotten::Live(members_of(coordinator, job)?.into_keys().collect()))
    };
    let is_live = |key: &str| ["owner/", "server/"].iter().any(|of| key[job.len() + 1..].starts_with(of));
    if keys.iter().any(|(key, _)| is_live(key)) {
        return live();
    }
    let keys: Vec<(String, u64)> = keys.into_iter().map(|(key, entry)| (key, entry.version)).collect();
    for some in keys.chunks(COORDINATOR_WRITES_MAX) {
        // A server of the job has begun meanwhile.
        if !coordinator.remove_all(some)? {
            return live();
        }
    }
    Ok(PlacesForgotten::Removed(keys.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_jobs::coordinator::memory::MemoryCoordinator;
    use gannet_wire::limits::COORDINATOR_KEYS_MAX;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_full_coordinator_did_not_say_what_to_do() {
        let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
        for run in 0..COORDINATOR_KEYS_MAX / 2 {
            for key in ["generation", "place/0"] {
                coordinator.compare_and_set(&format!("run-{run:04}/{key}"), 0, b"", None).unwrap();
            }
        }
        let full = coordinator.compare_and_set("new/generation", 0, b"", None).unwrap_err().0;
        assert!(full.contains("runs without servers (run-0000, run-0001, run-0002, ...)"), "{full}");
        assert!(full.contains("gannet forget --coordinator HOST:PORT --run NAME"), "{full}");
        assert_eq!(forget_places(&coordinator, "run-0001"), Ok(PlacesForgotten::Removed(2)));
        assert!(coordinator.compare_and_set("new/generation", 0, b"", None).unwrap().is_some());
    }
}
