//! Workers that keep step, on one thread: ended sessions, signs of workers, the worker for which a request waits, and
//! workers that the others must fence.
//!
//! A thread whose group waits for a worker asks its failure detector about it. If the worker is dead, the thread fences
//! it, and tells one of those that are here. That one fences it at all other threads of all servers, so that all go on
//! at once. If it does not, they find out by themselves.

use super::bulk::{Pusher, RequestFailure};
use super::clocks::{ClockState, Straggler};
use super::group::Group;
use super::session::Session;
use super::tables::ServerTables;
use super::thread::ShardThread;
use crate::failure_detector::{FailureDetector, Verdict};
use crate::frames::control::{self, LostV1, WaitsV2};
use crate::scheduler::member::WorkerIncarnation;
use crate::sync::SyncMode;
use gannet_transport::Net;
use std::time::Duration;

/// A dead worker, and the session whose worker is told.
pub(super) struct LossReport {
    pub(super) session: u32,
    pub(super) lost: LostV1,
}

/// The worker that pushes under this number: its rank is that number less 1.
pub(super) fn worker_of(pusher: u64, incarnation: u64) -> Option<WorkerIncarnation> {
    let rank = pusher.checked_sub(1).and_then(|rank| u32::try_from(rank).ok())?;
    Some(WorkerIncarnation { rank, incarnation })
}

impl Group {
    /// Whether the others should go on without a worker for which they wait.
    fn verdict(&self, of: &Straggler, detector: &FailureDetector, now: Duration) -> Verdict {
        let Some(worker) = worker_of(of.pusher, of.incarnation) else {
            // It has not come since the group began.
            let waited = detector.clock(now).saturating_sub(self.since);
            return if waited > self.limits.silence { Verdict::Silent(waited) } else { Verdict::Alive };
        };
        let mut present = self.clocks.present();
        let is_last = of.clock == self.clocks.lowest();
        let is_awaited =
            is_last && present.any(|(rank, _)| self.clocks.ranks[rank as usize].clock > of.clock);
        detector.verdict(worker, is_awaited, now)
    }

    /// The workers for which the group waits and that are dead, each with the time since its last sign or progress. A
    /// group gives nobody up if nobody is here to go on.
    fn dead(&self, detector: &FailureDetector, now: Duration) -> Vec<(Straggler, Duration)> {
        if self.clocks.mode == SyncMode::Asp || self.clocks.present().next().is_none() {
            return Vec::new();
        }
        let verdict = |straggler| (straggler, self.verdict(&straggler, detector, now));
        let dead = self.clocks.stragglers().map(verdict).filter(|(_, verdict)| verdict.is_dead());
        dead.map(|(straggler, verdict)| (straggler, verdict.in_words().0)).collect()
    }
}

impl ServerTables {
    /// Notes that a session has ended.
    pub(super) fn end_session(&mut self, session: u32) {
        for number in self.all.numbers() {
            let Some(group) = &mut self.all[number].group else { continue };
            let Some(rank) = group.clocks.end(session) else { continue };
            let clock = group.clocks.ranks[rank as usize].clock;
            let over = group.clocks.is_over();
            match &mut group.sums {
                // The stored pushes were not acknowledged, so a worker that returns resends them. Meanwhile others need
                // the memory. Until a worker has come back and resent its pushes, it has not made their steps: without
                // this, the first worker that came back went on without the rows of the others.
                Some(sums) if over => {
                    sums.drop_stored();
                    group.clocks.take_back(sums.begin());
                }
                Some(sums) => sums.end(rank, clock),
                None => {}
            }
            self.settle(number);
        }
    }

    /// Notes the last sign of a session's worker. A session that keeps step is heard while its requests wait, and so it
    /// counts only while it speaks for its worker: one that is left over from a lost link may wait for long.
    pub(super) fn hear(&self, pusher: &Pusher, when: Duration) {
        let Some(worker) = worker_of(pusher.pusher, pusher.incarnation) else { return };
        let here = ClockState::Here(pusher.session);
        let speaks = |&(table, rank): &(u32, u32)| {
            let group = self.all.get(table as usize).and_then(|table| table.group.as_ref());
            group
                .and_then(|group| group.clocks.ranks.get(rank as usize))
                .is_some_and(|rank| rank.state == here)
        };
        match pusher.ranks.iter().any(speaks) {
            // The thread that trains sends over the sessions that keep step.
            true => {
                self.detector.hear(worker, when);
                self.detector.hear_training(worker, when);
            }
            false if pusher.ranks.is_empty() => drop(self.detector.hear(worker, when)),
            false => {}
        }
    }

    /// Fences the dead workers for which groups wait. Returns whom to tell: one worker, which fences the dead one at
    /// all other threads. In a group that needs every worker (`strict`) nobody is fenced, and all are told, and end.
    fn give_up_dead_workers(&mut self, now: Duration) -> Vec<LossReport> {
        let mut reports = Vec::new();
        for number in self.all.numbers() {
            let Some(group) = self.all.get(number).and_then(|table| table.group.as_ref()) else {
                continue;
            };
            let (strict, dead) = (group.strict, group.dead(&self.detector, now));
            for (Straggler { rank, clock, incarnation, pusher }, time) in dead {
                let present = self.all[number].group.iter().flat_map(|group| group.clocks.present());
                let told: Vec<u32> =
                    present.take(if strict { usize::MAX } else { 1 }).map(|(_, session)| session).collect();
                let fenced = if strict {
                    Ok(())
                } else {
                    self.fence_worker(number as u32, rank, (pusher, incarnation), now)
                };
                if let Err(failure) = fenced {
                    // It is tried again: the disk may have space then.
                    if let (RequestFailure::Refused(_, why), Some(kept_back)) =
                        (failure, self.log_limiter.allow(now))
                    {
                        tracing::warn!(rank, incarnation, why, kept_back, "a dead worker cannot be fenced");
                    }
                    continue;
                }
                let silent_ms = time.as_millis() as u64;
                let lost = LostV1 { table: number as u32, rank, clock, pusher, incarnation, silent_ms };
                reports.extend(told.into_iter().map(|session| LossReport { session, lost }));
            }
        }
        reports
    }

    /// Whether a request of this worker over a table can wait for others. It waits for itself if all steps before its
    /// own are in the rows: it has not sent the end of its step.
    pub(super) fn waits_for_others(&self, number: u32, pusher: &Pusher) -> bool {
        let group = self.all.get(number as usize).and_then(|table| table.group.as_ref());
        let Some((group, rank)) = group.zip(pusher.rank(number)) else { return true };
        group.clocks.ranks.get(rank as usize).is_none_or(|rank| rank.clock > group.lowest())
    }

    /// The payload of a waits frame: it names the worker for which a request over this table waits.
    pub(super) fn waits(&self, number: u32) -> Option<Vec<u8>> {
        let clocks = &self.all.get(number as usize)?.group.as_ref()?.clocks;
        let Straggler { rank, clock, incarnation, pusher } = clocks.behind()?;
        let here = matches!(clocks.ranks[rank as usize].state, ClockState::Here(_));
        Some(control::seal_as(2, &WaitsV2 { table: number, rank, clock, pusher, incarnation, here }))
    }
}

impl<N: Net> ShardThread<N> {
    /// Fences dead workers, and tells others, if a request waits here. If none does, slow workers keep their places.
    pub(super) fn give_up_dead_workers(&mut self, now: Duration) {
        // A request over one table may wait behind one over another.
        if !self.sessions.iter().flatten().any(Session::is_waiting) {
            return;
        }
        for LossReport { session: number, lost } in self.tables.give_up_dead_workers(now) {
            let of_it = |session: &Option<Session<N::Stream>>| {
                session.as_ref().is_some_and(|session| session.pusher().session == number)
            };
            let Some(token) = self.sessions.iter().position(of_it) else { continue };
            if self.sessions[token].as_mut().is_some_and(|session| session.report_loss(&lost)) {
                self.enqueue(token);
            }
        }
    }
}
