//! Which workers are alive. A server thread has one failure detector: the sessions of the thread tell it when they last
//! heard of their workers. The scheduler, the registry of runs and the groups of workers that keep step ask it. So
//! those of one thread never disagree about a worker. Two threads may: each hears other sessions. Plain state: the time
//! is a parameter.
//!
//! A worker is dead in two cases:
//! - nothing was heard of it for `--worker-timeout`, over any session;
//! - others wait for it, and it has made no progress for [`PROGRESS_TIMEOUTS`] of these, although it sends heartbeats.
//!   One of its threads hangs.
//!
//! Times are those of a clock that stands still while nobody can be heard: the thread itself is stopped, or its server
//! holds all answers back because its lease has ended. A worker that waits for an answer sends no other sign.

use crate::limits::{
    DETECTOR_MEMORY, DETECTOR_TIDIED, DETECTOR_WORKERS, PROGRESS_TIME_MIN, PROGRESS_TIMEOUTS,
};
use gannet_wire::limits::{OWN_SLEEP, TICK, WORKER_TIMEOUT};
use gannet_wire::messages::member::{Activity, WorkerIncarnation};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a worker may be silent, and how long it may make no progress while others wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    pub silence: Duration,
    pub progress: Duration,
}

impl WorkerLimits {
    /// The limits that `--worker-timeout` sets.
    pub fn of(worker_timeout: Duration) -> WorkerLimits {
        let progress = (worker_timeout * PROGRESS_TIMEOUTS).max(PROGRESS_TIME_MIN);
        WorkerLimits { silence: worker_timeout, progress }
    }
}

/// What the detector says of a worker. The times are how long it has been so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is alive, as far as anybody can know.
    Alive,
    /// Nothing was heard of it for longer than its limit.
    Silent(Duration),
    /// It is heard of, but others wait for it, and it has made no progress for longer than its limit.
    Stuck(Duration),
}

impl Verdict {
    /// Whether the others should go on without the worker.
    pub fn is_dead(self) -> bool {
        self != Verdict::Alive
    }

    /// How long it has been so, and why that counts, for the log.
    pub fn in_words(self) -> (Duration, &'static str) {
        match self {
            Verdict::Alive => (Duration::ZERO, "it is alive"),
            Verdict::Silent(time) => (time, "it has been silent"),
            Verdict::Stuck(time) => (time, "it is alive but makes no progress, and others wait for it"),
        }
    }
}

/// The signs of one incarnation of a worker, on the detector's clock.
#[derive(Debug, Clone, Copy)]
struct WorkerSigns {
    limits: WorkerLimits,
    heard: Duration,
    /// What it last reported of its work, and since when its progress has not changed.
    work: Activity,
    moved: Duration,
}

#[derive(Debug, Default)]
struct DetectorState {
    workers: BTreeMap<WorkerIncarnation, WorkerSigns>,
    /// When the thread last said that it runs.
    woke: Option<Duration>,
    /// Its server holds all answers back, as it last said.
    holds_back: bool,
    /// For how long the thread was stopped in all, or held answers back, and when it last went on.
    stopped: Duration,
    stopped_until: Duration,
    /// When it last forgot workers of long ago.
    tidied: Duration,
}

impl DetectorState {
    /// The detector's clock at a time of the system's clock, from the last stop of the thread on.
    fn clock(&self, at: Duration) -> Duration {
        at.max(self.stopped_until).saturating_sub(self.stopped)
    }

    /// The time since the thread last said that it runs does not count.
    fn stand_still(&mut self, now: Duration) {
        self.stopped += now.saturating_sub(self.woke.replace(now).unwrap_or(now));
        self.stopped_until = now;
    }
}

/// See the module. A clone is another handle of the same detector.
#[derive(Debug, Clone, Default)]
pub struct FailureDetector {
    state: Arc<Mutex<DetectorState>>,
}

impl FailureDetector {
    fn state(&self) -> MutexGuard<'_, DetectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, worker: WorkerIncarnation, limits: WorkerLimits, now: Duration) {
        let mut state = self.state();
        let at = state.clock(now);
        let signs = WorkerSigns { limits, heard: at, work: Activity::default(), moved: at };
        state.workers.insert(worker, signs);
    }

    /// Gives a worker its full time from `now` on, though nothing was heard of it: its server has been restarted. A
    /// worker that is watched keeps its limits: who watches it knows them better.
    pub fn expect(&self, worker: WorkerIncarnation, limits: WorkerLimits, now: Duration) {
        let known = self.state().workers.get(&worker).map(|signs| signs.limits);
        self.watch(worker, known.unwrap_or(limits), now);
    }

    /// An incarnation of a worker begins. One that is known already was heard.
    pub fn begin(&self, worker: WorkerIncarnation, limits: WorkerLimits, now: Duration) {
        if !self.hear(worker, now) {
            self.watch(worker, limits, now);
        } else if let Some(signs) = self.state().workers.get_mut(&worker) {
            signs.limits = limits;
        }
    }

    /// From now on a worker that is watched has these limits.
    pub fn limit(&self, worker: WorkerIncarnation, limits: WorkerLimits) {
        if let Some(signs) = self.state().workers.get_mut(&worker) {
            signs.limits = limits;
        }
    }

    /// Something was heard of a worker at this time. Returns `false` if nobody has asked about this worker: it is not
    /// watched.
    pub fn hear(&self, worker: WorkerIncarnation, when: Duration) -> bool {
        let mut state = self.state();
        let at = state.clock(when);
        // A sign from before the thread was stopped counted then.
        let is_old = when < state.stopped_until;
        let Some(signs) = state.workers.get_mut(&worker) else { return false };
        if !is_old {
            signs.heard = signs.heard.max(at);
        }
        true
    }

    /// The thread that trains has sent something at this time, so it does not hang.
    pub fn hear_training(&self, worker: WorkerIncarnation, when: Duration) {
        let mut state = self.state();
        let (at, is_old) = (state.clock(when), when < state.stopped_until);
        if let Some(signs) = state.workers.get_mut(&worker).filter(|_| !is_old) {
            signs.moved = signs.moved.max(at);
        }
    }

    /// Notes what a worker reports of its work.
    pub fn note(&self, worker: WorkerIncarnation, work: Activity, now: Duration) {
        let mut state = self.state();
        let at = state.clock(now);
        let Some(signs) = state.workers.get_mut(&worker) else { return };
        if signs.work.progress != work.progress {
            signs.moved = at;
        }
        signs.work = work;
    }

    /// Others wait for nothing from this worker: its progress counts from now on.
    pub(crate) fn excuse(&self, worker: WorkerIncarnation, now: Duration) {
        let mut state = self.state();
        let at = state.clock(now);
        if let Some(signs) = state.workers.get_mut(&worker) {
            signs.moved = at;
        }
    }

    /// Whether a worker is alive. `is_awaited`: others wait for it. A worker that is not watched is alive.
    pub fn verdict(&self, worker: WorkerIncarnation, is_awaited: bool, now: Duration) -> Verdict {
        let state = self.state();
        let at = state.clock(now);
        let Some(signs) = state.workers.get(&worker) else { return Verdict::Alive };
        let (silent, still) = (at.saturating_sub(signs.heard), at.saturating_sub(signs.moved));
        match is_awaited && still > signs.limits.progress {
            _ if silent > signs.limits.silence => Verdict::Silent(silent),
            true => Verdict::Stuck(still),
            false => Verdict::Alive,
        }
    }

    /// For how long nothing was heard of a worker. It counts from now on if the worker is not watched.
    pub fn silence(&self, worker: WorkerIncarnation, now: Duration) -> Duration {
        let (mut state, limits) = (self.state(), WorkerLimits::of(WORKER_TIMEOUT));
        let at = state.clock(now);
        let unknown = WorkerSigns { limits, heard: at, work: Activity::default(), moved: at };
        at.saturating_sub(state.workers.entry(worker).or_insert(unknown).heard)
    }

    /// For how long nothing was heard of a worker, and its limits; `None` if it is not watched.
    pub fn signs(&self, worker: WorkerIncarnation, now: Duration) -> Option<(Duration, WorkerLimits)> {
        let state = self.state();
        let signs = state.workers.get(&worker)?;
        Some((state.clock(now).saturating_sub(signs.heard), signs.limits))
    }

    /// The detector's clock, for waits that begin before a worker has come.
    pub fn clock(&self, now: Duration) -> Duration {
        self.state().clock(now)
    }

    /// Whether the server of the thread holds all its answers back, from the last call of [`wake`](Self::wake) on.
    pub fn hold_back(&self, holds_back: bool, now: Duration) {
        let before = std::mem::replace(&mut self.state().holds_back, holds_back);
        if before && !holds_back {
            // Some of the time since the last call is of the wait. All of it does not count.
            self.state().stand_still(now);
        }
    }

    /// The thread runs. Called once a second, and by requests. If it was stopped, or held answers back, that time does
    /// not count. Forgets workers of which nothing was heard for longer than any limit.
    pub fn wake(&self, now: Duration) {
        let mut state = self.state();
        let slept = now.saturating_sub(state.woke.unwrap_or(now));
        let least = state.workers.values().map(|signs| signs.limits.silence).min().unwrap_or(OWN_SLEEP);
        let was_stopped = slept > TICK * 3 / 2 && slept > OWN_SLEEP.min(least * 3 / 4);
        match was_stopped || state.holds_back {
            true => state.stand_still(now),
            false => state.woke = Some(now),
        }
        if state.workers.len() > DETECTOR_WORKERS && now.saturating_sub(state.tidied) > DETECTOR_TIDIED {
            let at = state.clock(now);
            state.workers.retain(|_, signs| at.saturating_sub(signs.heard) < DETECTOR_MEMORY);
            state.tidied = now;
        }
    }
}

#[cfg(test)]
#[path = "failure_detector_tests.rs"]
mod tests;
