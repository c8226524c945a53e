//! The coordinator of a single process.

use crate::coordinator::kept::{kept_path, load_kept, save_kept};
use crate::limits::{
    COORDINATOR_BYTES_MAX, COORDINATOR_LEASES_MAX, COORDINATOR_PAGE_BYTES, COORDINATOR_PAGE_KEYS,
    LEASE_TIMES, UNHEARD_PART,
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
    pub(crate) hearing: Hearing,
}

/// Whether the thread over which others ask the coordinator hears them. A thread that waits for a slow disk hears
/// nobody, nor does one that the system has stopped.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum Hearing {
    /// Nobody says so: callers ask the coordinator themselves.
    #[default]
    Always,
    /// The coordinator has been opened at this time. Its server may take long to start.
    OpenSince(Duration),
    /// It waits for requests until this time, unless it was stopped.
    WaitsUntil(Duration),
    /// It has handled requests since this time.
    WorksSince(Duration),
}

impl Hearing {
    /// For how long the thread has heard nobody until `now`.
    fn unheard(self, now: Duration) -> Duration {
        match self {
            Hearing::Always | Hearing::OpenSince(_) => Duration::ZERO,
            Hearing::WaitsUntil(since) | Hearing::WorksSince(since) => now.saturating_sub(since),
        }
    }
}

/// By how much a time without requests makes a lease of the time `ttl` longer. A small part of the lease counts each
/// time, so that a thread that is always busy ends leases, too.
fn excused(unheard: Duration, ttl: Duration) -> Duration {
    unheard.saturating_sub(ttl / UNHEARD_PART)
}

impl MemoryState {
    /// Without keys. The numbers begin at a random one: a server must not take the lease of another for its own, if
    /// the process was started again without what it knew.
    pub(crate) fn new() -> MemoryState {
        let last = random::draw_number().unwrap_or(0) >> 2;
        MemoryState { last, ended: last, ..MemoryState::default() }
    }

    /// When a lease ends that is renewed now. What the thread has not heard until now makes it no longer.
    fn end_of(&self, ttl: Duration, now: Duration) -> Duration {
        now + ttl - excused(self.hearing.unheard(now), ttl)
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
        let file = kept_path(folder);
        let state = Mutex::new(load_kept(&file, &clock)?);
        Ok(MemoryCoordinator { state, clock, file: Some(file) })
    }

    /// Whether a coordinator keeps its keys in this folder.
    pub fn is_in(folder: &Path) -> bool {
        kept_path(folder).exists()
    }

    /// The thread hears from now on, or does not: the time in which it did not makes all leases longer.
    fn hear(&self, hearing: impl FnOnce(Duration) -> Hearing) {
        let now = (self.clock)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let unheard = match state.hearing {
            Hearing::OpenSince(since) => now.saturating_sub(since),
            hearing => hearing.unheard(now),
        };
        state.leases.values_mut().for_each(|(ttl, end)| *end += excused(unheard, *ttl));
        state.hearing = hearing(now);
    }

    /// Keeps the change of a state, or takes it back.
    fn keep(&self, state: &mut MemoryState, before: MemoryState) -> Result<(), CoordinatorError> {
        let Some(file) = &self.file else { return Ok(()) };
        save_kept(file, state).inspect_err(|_| *state = before)
    }

    /// The state, without leases that have ended and their keys.
    fn now(&self) -> (MutexGuard<'_, MemoryState>, Duration) {
        let now = (self.clock)();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let MemoryState { keys, leases, last, ended, hearing } = &mut *guard;
        let unheard = hearing.unheard(now);
        leases.retain(|_, (ttl, end)| *end + excused(unheard, *ttl) > now);
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
        // The file has it as soon as a key is written with it. Without a key nobody misses it.
        state.last += 1;
        let (lease, end) = (state.last, state.end_of(ttl, now));
        state.leases.insert(lease, (ttl, end));
        Ok(lease)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        let (mut state, now) = self.now();
        let Some(ttl) = state.leases.get(&lease).map(|(ttl, _)| *ttl) else { return Ok(false) };
        let end = state.end_of(ttl, now);
        state.leases.insert(lease, (ttl, end));
        Ok(true)
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

    fn begin_wait(&self, limit: Duration) {
        self.hear(|now| Hearing::WaitsUntil(now + limit));
    }

    fn end_wait(&self) {
        self.hear(Hearing::WorksSince);
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
#[path = "memory_tests.rs"]
mod tests;
