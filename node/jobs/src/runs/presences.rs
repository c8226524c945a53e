//! What the registry has heard of the members of runs: their heartbeats, over which session they spoke last, and what
//! that says of them.

use crate::limits::HELD_MAX;
use crate::runs::registry::{Presence, Registry, RunAdmission, RunRecord, worker_limits};
use gannet_wire::messages::member::{WorkerIncarnation, WorkerState};
use gannet_wire::messages::runs::{RunBeatV2, RunMember};
use std::time::Duration;

impl Registry {
    /// Notes what a member reports with a heartbeat.
    pub(crate) fn note_beat(
        &mut self,
        name: &str,
        incarnation: WorkerIncarnation,
        session: u32,
        beat: RunBeatV2,
        now: Duration,
    ) {
        let RunBeatV2 { batches, timeout_ms, work, progress } = beat;
        self.hear(name, incarnation, session, Some(timeout_ms), now);
        self.detector.note(incarnation, work, now);
        if let Some(presence) = self.presences.get_mut(&(name.to_owned(), incarnation.rank)) {
            presence.in_job = progress.is_some();
            if std::mem::replace(&mut presence.batches, batches) != batches {
                self.detector.hear_training(incarnation, now);
            }
        }
        let is_live = |run: &RunRecord| {
            run.members.get(&incarnation.rank).is_some_and(|member| member.state == WorkerState::Live)
        };
        if let Some(mut progress) = progress.filter(|_| self.runs.get(name).is_some_and(is_live)) {
            progress.acked.truncate(HELD_MAX);
            self.acked.insert((name.to_owned(), incarnation), progress.acked);
        }
    }

    /// A worker has spoken over this session, and has perhaps said for how many milliseconds it may be silent.
    pub fn hear(
        &mut self,
        name: &str,
        worker: WorkerIncarnation,
        session: u32,
        timeout_ms: Option<u64>,
        now: Duration,
    ) {
        if timeout_ms.is_some() || !self.detector.hear(worker, now) {
            self.detector.begin(worker, worker_limits(timeout_ms.unwrap_or(0)), now);
        }
        // The workers of a run have one limit. One that has not come back since a restart cannot say it.
        if let Some(timeout_ms) = timeout_ms {
            let is_awaited = |(of, presence): &(&(String, u32), &Presence)| {
                of.0 == name && presence.session.is_none() && !presence.gone
            };
            let awaited = self.presences.iter().filter(is_awaited);
            awaited.for_each(|(_, presence)| self.detector.limit(presence.worker, worker_limits(timeout_ms)));
        }
        let of = (name.to_owned(), worker.rank);
        let before = self.presences.get(&of).filter(|presence| presence.worker == worker);
        let (batches, in_job) = before.map_or((0, false), |presence| (presence.batches, presence.in_job));
        let presence = Presence { worker, session: Some(session), gone: false, batches, in_job };
        self.presences.insert(of, presence);
        self.heard.insert(name.to_owned(), self.detector.clock(now));
    }

    /// The others wait for the members of a run that are not done. Their progress counts from now on.
    pub(crate) fn excuse_all(&self, name: &str, now: Duration) {
        let of_run = self.presences.iter().filter(|((of, _), _)| of == name);
        of_run.for_each(|(_, presence)| self.detector.excuse(presence.worker, now));
    }

    pub fn is_live(&self, name: &str, rank: u32, now: Duration) -> bool {
        let presence = self.presences.get(&(name.to_owned(), rank));
        presence.is_some_and(|presence| {
            !presence.gone && !self.detector.verdict(presence.worker, false, now).is_dead()
        })
    }

    pub fn members(&self, name: &str, now: Duration) -> Vec<RunMember> {
        let Some(run) = self.runs.get(name) else { return Vec::new() };
        let member = |(&rank, member): (&u32, &RunAdmission)| {
            let incarnation = WorkerIncarnation { rank, incarnation: member.incarnation };
            let (presence, done) = (self.presences.get(&(name.to_owned(), rank)), member.done);
            let batches = presence.map_or(0, |presence| presence.batches);
            let is_awaited = !done && run.members.values().any(|other| other.done);
            let is_dead = member.state == WorkerState::Dead;
            let lost = is_dead || self.detector.verdict(incarnation, is_awaited, now).is_dead();
            let live = !is_dead && self.is_live(name, rank, now);
            RunMember { incarnation, done, live, lost, batches }
        };
        run.members.iter().map(member).collect()
    }

    /// Notes that a session has ended.
    pub fn closed(&mut self, session: u32) {
        let of_it = |presence: &&mut Presence| presence.session == Some(session);
        for presence in self.presences.values_mut().filter(of_it) {
            (presence.session, presence.gone) = (None, true);
        }
    }

    /// Nothing is known any more of the members of a run.
    pub(crate) fn forget_signs(&mut self, name: &str) {
        self.presences.retain(|(of, _), _| of != name);
        self.acked.retain(|(of, _), _| of != name);
    }
}
