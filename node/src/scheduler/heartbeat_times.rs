//! When each live worker last sent something, and when it last made progress. It is not saved: a scheduler that
//! restarts gives every worker its full time. Plain state: the time comes as a parameter.

use super::member::{Activity, WorkerIncarnation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub struct HeartbeatTimes {
    at: BTreeMap<u32, Duration>,
    /// What each worker last reported of its work, and since when its progress has not changed.
    work: BTreeMap<u32, (Activity, Duration)>,
    /// Workers whose link to the scheduler is gone.
    unlinked: BTreeSet<WorkerIncarnation>,
}

impl HeartbeatTimes {
    /// Counts all these incarnations as heard at `now`. None has a link yet, so one that died meanwhile can be
    /// replaced.
    pub fn of(incarnations: impl Iterator<Item = WorkerIncarnation>, now: Duration) -> HeartbeatTimes {
        let unlinked: BTreeSet<WorkerIncarnation> = incarnations.collect();
        let at = unlinked.iter().map(|incarnation| (incarnation.rank, now)).collect();
        let work =
            unlinked.iter().map(|incarnation| (incarnation.rank, (Activity::default(), now))).collect();
        HeartbeatTimes { at, work, unlinked }
    }

    /// A worker's link is gone: another process may take its index at once.
    pub fn unlink(&mut self, incarnation: WorkerIncarnation) {
        self.unlinked.insert(incarnation);
    }

    /// The scheduler itself was stopped for a while, and could hear no worker.
    pub fn forgive(&mut self, slept: Duration, now: Duration) {
        self.at.values_mut().for_each(|at| *at = now.min(*at + slept));
        self.work.values_mut().for_each(|(_, since)| *since = now.min(*since + slept));
    }

    /// An incarnation of a worker begins.
    pub(super) fn begin(&mut self, incarnation: WorkerIncarnation, now: Duration) {
        self.hear(incarnation, now);
        self.work.insert(incarnation.rank, (Activity::default(), now));
    }

    pub(super) fn hear(&mut self, incarnation: WorkerIncarnation, now: Duration) {
        self.at.insert(incarnation.rank, now);
        self.unlinked.remove(&incarnation);
    }

    /// Notes what a worker reports of its work.
    pub(super) fn note(&mut self, incarnation: WorkerIncarnation, work: Activity, now: Duration) {
        let (before, since) = self.work.entry(incarnation.rank).or_insert((work, now));
        if before.progress != work.progress {
            *since = now;
        }
        *before = work;
    }

    /// Others wait for nothing from this worker: its progress counts from now on.
    pub(super) fn excuse(&mut self, rank: u32, now: Duration) {
        self.work.entry(rank).or_default().1 = now;
    }

    /// What a worker last reported of its work.
    pub fn work(&self, rank: u32) -> Activity {
        self.work.get(&rank).map_or_else(Activity::default, |(work, _)| *work)
    }

    /// For how long a worker has sent nothing.
    pub(super) fn silent(&self, rank: u32, now: Duration) -> Duration {
        now.saturating_sub(self.at.get(&rank).copied().unwrap_or(now))
    }

    /// For how long a worker has made no progress.
    pub(super) fn still(&self, rank: u32, now: Duration) -> Duration {
        now.saturating_sub(self.work.get(&rank).map_or(now, |(_, since)| *since))
    }

    pub(super) fn is_there(&self, incarnation: WorkerIncarnation, now: Duration, timeout: Duration) -> bool {
        let last = self.at.get(&incarnation.rank).copied().unwrap_or_default();
        !self.unlinked.contains(&incarnation) && now.saturating_sub(last) <= timeout
    }
}
