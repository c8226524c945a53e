//! The coordinator of a single process.

use crate::coordinator::kept;
use crate::limits::{
    COORDINATOR_BYTES_MAX, COORDINATOR_LEASES_MAX, COORDINATOR_PAGE_BYTES, COORDINATOR_PAGE_KEYS, LEASE_TIMES,
};
use gannet_wire::coordinator::{
    Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite,
};
use gannet_wire::limits::{COORDINATOR_KEYS_MAX, COORDINATOR_WRITES_MAX};
use gannet_wire::random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many runs an error names.
const RUNS_NAMED: usize = 3;

/// A clock that never goes back.
pub(crate) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A coordinator in this process: in a `gannet scheduler`, for jobs on one machine, and for tests. It is a single
/// process, so nothing replaces it. What it knows ends with the process, or is kept in a folder.
pub struct MemoryCoordinator {
    state: Mutex<MemoryState>,
    clock: Clock,
    file: Option<PathBuf>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct MemoryState {
    pub(crate) keys: BTreeMap<String, (CoordinatorEntry, Option<u64>)>,
    /// Time of each lease, and when it ends.
    pub(crate) leases: BTreeMap<u64, (Duration, Duration)>,
    pub(crate) last: u64,
    /// The number of the last change by which a key ended with its lease. It is not kept.
    pub(crate) ended: u64,
}

impl MemoryState {
    /// Without keys. The numbers begin at a random one: a server must not take the lease of another for its own, if
    /// the process was started again without what it knew.
    pub(crate) fn new() -> MemoryState {
        let last = random::draw_number().unwrap_or(0) >> 2;
        MemoryState { last, ended: last, ..MemoryState::default() }
    }

    /// The keys that begin with `prefix` and come behind `after`.
    fn keys_of<'a>(
        &'a self,
        prefix: &'a str,
        after: &str,
    ) -> impl Iterator<Item = (&'a String, &'a (CoordinatorEntry, Option<u64>))> {
        let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let of = self.keys.range::<str, _>((begin, Bound::Unbounded));
        of.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Why no more keys are possible, and what to do. It names runs of which no server has a lease.
    fn is_full(&self) -> String {
        let run = |key: &String| key.split_once('/').map(|(run, _)| run.to_owned());
        let has_owner = |run: &String| self.keys_of(&format!("{run}/owner/"), "").next().is_some();
        let runs: BTreeSet<String> = self.keys.keys().filter_map(run).filter(|run| !has_owner(run)).collect();
        let first: Vec<&str> = runs.iter().take(RUNS_NAMED).map(String::as_str).collect();
        let of = match (first.is_empty(), runs.len() > RUNS_NAMED) {
            (true, _) => "of runs whose servers live: end some of them".to_owned(),
            (false, more) => {
                let more = if more { ", ..." } else { "" };
                format!("also of runs without servers ({}{more})", first.join(", "))
            }
        };
        format!(
            "it has {COORDINATOR_KEYS_MAX} keys, the limit, {of}; `gannet forget --coordinator HOST:PORT --run NAME` removes \
             those of a run that nobody needs"
        )
    }
}

impl MemoryCoordinator {
    /// A coordinator without keys. `clock` never goes back.
    pub fn new(clock: Arc<dyn Fn() -> Duration + Send + Sync>) -> MemoryCoordinator {
        MemoryCoordinator { state: Mutex::new(MemoryState::new()), clock, file: None }
    }

    /// A coordinator that keeps its keys in this folder, and finds them there. A lease that was alive when the process
    /// ended is alive for another of its times.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(folder: &Path, clock: Clock) -> Result<MemoryCoordinator, CoordinatorError> {
        let file = kept::file(folder);
        let state = Mutex::new(kept::load(&file, clock())?);
        Ok(MemoryCoordinator { state, clock, file: Some(file) })
    }

    /// Whether a coordinator keeps its keys in this folder.
    pub fn is_in(folder: &Path) -> bool {
        kept::file(folder).exists()
    }

    /// Keeps the change of a state, or takes it back.
    fn keep(&self, state: &mut MemoryState, before: MemoryState) -> Result<(), CoordinatorError> {
        let Some(file) = &self.file else { return Ok(()) };
        kept::save(file, state).inspect_err(|_| *state = before)
    }

    /// The state, without leases that have ended and their keys.
    fn now(&self) -> (MutexGuard<'_, MemoryState>, Duration) {
        let now = (self.clock)();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let MemoryState { keys, leases, last, ended } = &mut *guard;
        leases.retain(|_, (_, end)| *end > now);
        let before = keys.len();
        keys.retain(|_, (_, lease)| lease.is_none_or(|lease| leases.contains_key(&lease)));
        if keys.len() < before {
            *last += 1;
            *ended = *last;
        }
        (guard, now)
    }
}

impl Coordinator for MemoryCoordinator {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        Ok(self.now().0.keys.get(key).map(|(entry, _)| entry.clone()))
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        check_writes(writes)?;
        let (mut state, _) = self.now();
        let version = |key: &String| state.keys.get(key).map_or(0, |(entry, _)| entry.version);
        let is_alive = |lease: Option<u64>| lease.is_none_or(|lease| state.leases.contains_key(&lease));
        if writes.iter().any(|write| version(&write.key) != write.version || !is_alive(write.lease)) {
            return Ok(None);
        }
        let new = writes.iter().filter(|write| write.version == 0).count();
        if state.keys.len() + new > COORDINATOR_KEYS_MAX {
            return Err(CoordinatorError(state.is_full()));
        }
        let before = state.clone();
        state.last += 1;
        let version = state.last;
        for CoordinatorWrite { key, value, lease, .. } in writes {
            let entry = CoordinatorEntry { value: value.clone(), version };
            state.keys.insert(key.clone(), (entry, *lease));
        }
        self.keep(&mut state, before)?;
        Ok(Some(version))
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        check_count(keys.len())?;
        let (mut state, _) = self.now();
        let has = |(key, version): &(String, u64)| {
            state.keys.get(key).map_or(0, |(entry, _)| entry.version) == *version
        };
        if !keys.iter().all(has) {
            return Ok(false);
        }
        let before = state.clone();
        state.last += 1;
        state.ended = state.last;
        for (key, _) in keys {
            state.keys.remove(key);
        }
        self.keep(&mut state, before)?;
        Ok(true)
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        if ttl < LEASE_TIMES.0 || ttl > LEASE_TIMES.1 {
            let (least, most) = (LEASE_TIMES.0.as_secs_f64(), LEASE_TIMES.1.as_secs_f64());
            let text = format!("a lease of {} s: it must be from {least} to {most} s", ttl.as_secs_f64());
            return Err(CoordinatorError(text));
        }
        let (mut state, now) = self.now();
        if state.leases.len() >= COORDINATOR_LEASES_MAX {
            return Err(CoordinatorError(format!("it has {COORDINATOR_LEASES_MAX} leases, the limit")));
        }
        let before = state.clone();
        state.last += 1;
        let lease = state.last;
        state.leases.insert(lease, (ttl, now + ttl));
        self.keep(&mut state, before)?;
        Ok(lease)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        let (mut state, now) = self.now();
        Ok(state.leases.get_mut(&lease).map(|(ttl, end)| *end = now + *ttl).is_some())
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        let (state, _) = self.now();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, (entry, _)) in state.keys_of(prefix, after) {
            if entries.len() >= COORDINATOR_PAGE_KEYS || bytes >= COORDINATOR_PAGE_BYTES {
                return Ok(CoordinatorPage { entries, more: true, version: state.last });
            }
            bytes += key.len() + entry.value.len();
            entries.push((key.clone(), entry.clone()));
        }
        Ok(CoordinatorPage { entries, more: false, version: state.last })
    }

    fn watch(&self, prefix: &str, since: u64, _limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        let (state, _) = self.now();
        // A number from the future is that of a coordinator that was here before and kept nothing.
        let has_changed = state.ended > since
            || since > state.last
            || state.keys_of(prefix, "").any(|(_, (entry, _))| entry.version > since);
        Ok(has_changed.then_some(state.last))
    }
}

fn check_count(writes: usize) -> Result<(), CoordinatorError> {
    if writes > COORDINATOR_WRITES_MAX {
        let text = format!("{writes} writes at once: {COORDINATOR_WRITES_MAX} are possible");
        return Err(CoordinatorError(text));
    }
    Ok(())
}

/// Refuses too many writes, a key that is written twice, and keys and values that are too long.
fn check_writes(writes: &[CoordinatorWrite]) -> Result<(), CoordinatorError> {
    check_count(writes.len())?;
    let is_again = |at: usize| writes[..at].iter().any(|write| write.key == writes[at].key);
    if let Some(at) = (0..writes.len()).find(|at| is_again(*at)) {
        return Err(CoordinatorError(format!("key {:?} is written twice at once", writes[at].key)));
    }
    match writes.iter().map(|write| write.key.len() + write.value.len()).max().unwrap_or(0) {
        0..=COORDINATOR_BYTES_MAX => Ok(()),
        bytes => {
            let text = format!("a key and a value of {bytes} bytes: {COORDINATOR_BYTES_MAX} are possible");
            Err(CoordinatorError(text))
        }
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

    fn write(key: &str, version: u64, value: &[u8]) -> CoordinatorWrite {
        CoordinatorWrite { key: key.into(), version, value: value.into(), lease: None }
    }

    #[test]
    fn keys_are_written_together_or_not_at_all() {
        let time = Arc::new(AtomicU64::new(0));
        let clock = time.clone();
        let coordinator = MemoryCoordinator::new(Arc::new(move || Duration::from_secs(clock.load(Relaxed))));
        let first = coordinator.compare_and_set("a", 0, b"1", None).unwrap().unwrap();
        let both =
            |of_a, of_b| coordinator.compare_and_set_all(&[write("a", of_a, b"2"), write("b", of_b, b"3")]);
        let known = |key| coordinator.get(key).unwrap().map(|entry| (entry.value, entry.version));
        assert_eq!((both(0, 0), both(first, first)), (Ok(None), Ok(None)));
        assert_eq!((known("a"), known("b")), (Some((b"1".to_vec(), first)), None));
        let version = both(first, 0).unwrap().expect("both have these versions");
        assert!(version > first);
        assert_eq!(
            (known("a"), known("b")),
            (Some((b"2".to_vec(), version)), Some((b"3".to_vec(), version)))
        );
        // One of them with a lease that has ended.
        let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
        time.store(3, Relaxed);
        let late = CoordinatorWrite { lease: Some(lease), ..write("b", version, b"5") };
        assert_eq!(coordinator.compare_and_set_all(&[write("a", version, b"4"), late]), Ok(None));
        assert_eq!(known("a"), Some((b"2".to_vec(), version)));
        let twice = coordinator.compare_and_set_all(&[write("c", 0, b""), write("c", 0, b"")]).unwrap_err();
        assert!(twice.0.contains("\"c\" is written twice"), "{twice}");
        let many: Vec<_> =
            (0..=COORDINATOR_WRITES_MAX).map(|key| write(&format!("d/{key}"), 0, b"")).collect();
        assert!(coordinator.compare_and_set_all(&many).unwrap_err().0.contains("65 writes at once: 64 are"));
        assert!(coordinator.compare_and_set_all(&many[1..]).unwrap().is_some());
    }

    #[test]
    fn keys_survive_the_process_and_leases_last_for_another_of_their_times() {
        let folder = tempfile::tempdir().unwrap();
        let time = Arc::new(AtomicU64::new(50));
        let clock = time.clone();
        let clock: Clock = Arc::new(move || Duration::from_secs(clock.load(Relaxed)));
        let first = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
        let lease = first.grant(Duration::from_secs(3)).unwrap();
        let place = first.compare_and_set("place", 0, b"a", None).unwrap().unwrap();
        let owner = first.compare_and_set("owner", 0, b"b", Some(lease)).unwrap().unwrap();
        drop(first);
        // The clock of another process begins anew.
        time.store(1, Relaxed);
        let second = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
        assert_eq!(second.get("place").unwrap().map(|entry| entry.version), Some(place));
        assert_eq!(second.compare_and_set("place", 0, b"c", None), Ok(None));
        time.store(3, Relaxed);
        assert_eq!(second.keep_alive(lease), Ok(true));
        time.store(5, Relaxed);
        assert_eq!(second.get("owner").unwrap().map(|entry| entry.version), Some(owner));
        time.store(6, Relaxed);
        assert_eq!(second.get("owner"), Ok(None));
        assert!(second.grant(Duration::from_secs(3)).unwrap() > owner, "a number is never given twice");
    }

    #[test]
    fn a_write_that_cannot_be_kept_did_not_happen() {
        let folder = tempfile::tempdir().unwrap();
        let coordinator = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
        std::fs::create_dir(folder.path().join("COORDINATOR.new")).unwrap();
        assert!(coordinator.compare_and_set("place", 0, b"a", None).unwrap_err().0.contains("COORDINATOR"));
        assert_eq!(coordinator.get("place"), Ok(None));
        std::fs::remove_dir(folder.path().join("COORDINATOR.new")).unwrap();
        assert!(coordinator.compare_and_set("place", 0, b"a", None).unwrap().is_some());
        std::fs::write(folder.path().join("COORDINATOR"), b"GNTCOOR1 but torn").unwrap();
        let torn = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).err().unwrap();
        assert!(torn.0.contains("COORDINATOR") && torn.0.contains("checksum"), "{torn}");
    }

    #[test]
    fn pages_have_all_keys_of_a_prefix_in_order() {
        let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
        let count = 2 * COORDINATOR_PAGE_KEYS + 3;
        let keys: Vec<String> = (0..count).map(|key| format!("job/{key:04}")).collect();
        keys.iter().for_each(|key| {
            coordinator.compare_and_set(key, 0, key.as_bytes(), None).unwrap();
        });
        for other in ["jo", "job", "job0", "jobs/0001"] {
            coordinator.compare_and_set(other, 0, b"", None).unwrap();
        }
        let first = coordinator.list("job/", "").unwrap();
        assert_eq!((first.entries.len(), first.more), (COORDINATOR_PAGE_KEYS, true));
        let (all, version) = gannet_wire::coordinator::list_all(&coordinator, "job/").unwrap();
        assert_eq!(all.iter().map(|(key, _)| key).collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
        assert!(all.iter().all(|(key, entry)| entry.value == key.as_bytes() && entry.version <= version));
        // Long values end a page before it is full.
        let long = vec![0; COORDINATOR_BYTES_MAX - 10];
        (0..9).for_each(|key| {
            coordinator.compare_and_set(&format!("long/{key}"), 0, &long, None).unwrap();
        });
        let page = coordinator.list("long/", "").unwrap();
        assert!(page.more && page.entries.len() == 5, "{} keys", page.entries.len());
        assert_eq!(gannet_wire::coordinator::list_all(&coordinator, "long/").unwrap().0.len(), 9);
    }

    #[test]
    fn a_watch_sees_writes_and_ends_of_leases() {
        let folder = tempfile::tempdir().unwrap();
        let time = Arc::new(AtomicU64::new(0));
        let clock = time.clone();
        let clock: Clock = Arc::new(move || Duration::from_secs(clock.load(Relaxed)));
        let coordinator = MemoryCoordinator::open(folder.path(), clock.clone()).unwrap();
        let watch = |since| coordinator.watch("a/", since, Duration::from_secs(9)).unwrap();
        let begun = coordinator.list("a/", "").unwrap().version;
        assert_eq!(watch(begun), None);
        coordinator.compare_and_set("b/1", 0, b"", None).unwrap();
        assert_eq!(watch(begun), None, "the key of another prefix");
        let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
        let written = coordinator.compare_and_set("a/1", 0, b"", Some(lease)).unwrap();
        assert_eq!((watch(begun), watch(written.unwrap())), (written, None));
        time.store(3, Relaxed);
        let ended = watch(written.unwrap()).expect("the lease has ended");
        assert_eq!(watch(ended), None);
        drop(coordinator);
        // The number of the end was not kept, and is not given again.
        let again = MemoryCoordinator::open(folder.path(), clock).unwrap();
        let later = again.compare_and_set("a/2", 0, b"", None).unwrap().unwrap();
        assert_eq!(again.watch("a/", ended, Duration::ZERO), Ok(Some(later)));
        let new = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
        assert!(new.watch("a/", later, Duration::ZERO).unwrap().is_some(), "another coordinator");
    }

    #[test]
    fn limits_are_named() {
        let coordinator = MemoryCoordinator::new(Arc::new(|| Duration::ZERO));
        let long = coordinator.compare_and_set("k", 0, &[0; COORDINATOR_BYTES_MAX], None).unwrap_err();
        assert!(long.0.contains("16385 bytes"), "{long}");
        assert!(coordinator.grant(Duration::from_millis(1)).unwrap_err().0.contains("0.001 s"));
        for key in 0..COORDINATOR_KEYS_MAX {
            coordinator.compare_and_set(&key.to_string(), 0, b"", None).unwrap();
        }
        assert!(coordinator.compare_and_set("more", 0, b"", None).unwrap_err().0.contains("4096 keys"));
    }

    #[test]
    fn keys_are_removed_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let coordinator = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
        let versions = ["a", "b"].map(|key| coordinator.compare_and_set(key, 0, b"", None).unwrap().unwrap());
        let all = |of_a, of_b| coordinator.remove_all(&[("a".into(), of_a), ("b".into(), of_b)]);
        assert_eq!((all(versions[0], 0), all(versions[1], versions[1])), (Ok(false), Ok(false)));
        assert!(coordinator.get("a").unwrap().is_some() && coordinator.get("b").unwrap().is_some());
        let since = coordinator.list("a", "").unwrap().version;
        assert_eq!(all(versions[0], versions[1]), Ok(true));
        assert!(coordinator.watch("a", since, Duration::ZERO).unwrap().is_some());
        drop(coordinator);
        let again = MemoryCoordinator::open(folder.path(), Arc::new(|| Duration::ZERO)).unwrap();
        assert_eq!((again.get("a"), again.get("b")), (Ok(None), Ok(None)));
        assert!(again.remove_all(&vec![("a".into(), 0); 65]).unwrap_err().0.contains("65 writes at once"));
    }
}
