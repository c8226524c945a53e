//! The workers that keep step over a table, on one thread: joins, ticks and leaves, pulls that wait, and (BSP) the
//! pushes that are stored until their step is applied. clocks.rs and step_sums.rs decide without touching a shard.
//! tables/table.rs applies their decisions to the shards.

use crate::peers::pusher::worker_of;
use crate::steps::clocks::{Clocks, Straggler};
use crate::steps::step_sums::StepSums;
use gannet_jobs::failure_detector::{FailureDetector, Verdict, WorkerLimits};
use gannet_wire::messages::awaited::AwaitV1;
use gannet_wire::messages::member::WorkerIncarnation;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) struct Group {
    pub(crate) clocks: Clocks,
    /// The pushes of the steps that are not applied (BSP only).
    pub(crate) sums: Option<StepSums>,
    /// The lowest clock that the images have.
    pub(crate) published_clock: u64,
    /// How long the group waits for a worker that sends nothing, or makes no progress.
    pub(crate) limits: WorkerLimits,
    /// It does not go on without a dead worker.
    pub(crate) strict: bool,
    /// When the group began, on the clock of the failure detector.
    pub(crate) since: Duration,
    /// For each worker that others wait for and of which nothing was heard here: the incarnation that they asked for,
    /// and when they first did, on that clock.
    pub(crate) asked: BTreeMap<u32, (u64, Duration)>,
}

impl Group {
    /// The clock of the rows: all steps below it are in the rows, of all workers that count.
    pub(crate) fn lowest(&self) -> u64 {
        self.sums.as_ref().map_or_else(|| self.clocks.lowest(), StepSums::at)
    }

    /// Whether a pull at this clock can be answered now.
    pub(crate) fn may_pull(&self, clock: u64) -> bool {
        match &self.sums {
            Some(sums) => sums.at() >= clock,
            None => self.clocks.may_pull(clock),
        }
    }
}

impl Group {
    /// Whether the others should go on without a worker for which somebody waits, and who that worker is: the one that
    /// is asked for, or the one that has joined here.
    pub(crate) fn verdict(
        &mut self,
        of: &AwaitV1,
        detector: &FailureDetector,
        now: Duration,
    ) -> (Verdict, Straggler) {
        let rank = of.rank;
        let nobody = (Verdict::Alive, Straggler { rank, clock: 0, incarnation: 0, pusher: 0 });
        let Some(&member) = self.clocks.ranks.get(rank as usize) else { return nobody };
        // A worker that keeps step pushes under its rank + 1. Another pusher is that of no worker of this rank.
        let own = if member.pusher == 0 { u64::from(rank) + 1 } else { member.pusher };
        if of.pusher != 0 && of.pusher != own {
            return nobody;
        }
        // Who needs every worker does not end for one that another process has replaced.
        let is_replaced = self.strict && of.incarnation < member.incarnation;
        let is_of_here = of.pusher == 0 || is_replaced;
        let known =
            if is_of_here { (member.pusher, member.incarnation) } else { (of.pusher, of.incarnation) };
        let straggler = Straggler { rank, clock: member.clock, incarnation: known.1, pusher: known.0 };
        let is_watched = |worker: &WorkerIncarnation| detector.signs(*worker, now).is_some();
        let Some(worker) = worker_of(known.0, known.1).filter(is_watched) else {
            // It has not come here since the group began. One that has joined elsewhere may be on its way: it has its
            // full time from the first question on.
            let clock = detector.clock(now);
            let since = if known.0 == 0 { self.since } else { self.first_asked(rank, known.1, clock) };
            let waited = clock.saturating_sub(since);
            let is_dead = waited > self.limits.silence && !self.is_heard(rank, detector, now);
            return (if is_dead { Verdict::Silent(waited) } else { Verdict::Alive }, straggler);
        };
        // It is fenced here. Whoever was told may have died before it had fenced it everywhere.
        if self.clocks.is_fenced(rank, known.1) {
            return (Verdict::Silent(detector.silence(worker, now)), straggler);
        }
        (detector.verdict(worker, true, now), straggler)
    }

    /// Whether the incarnation of a worker that has joined here is heard. A fence on a newer one, of which nothing was
    /// heard, would end it, too: a restarted worker is given up only when its earlier incarnation is silent.
    fn is_heard(&self, rank: u32, detector: &FailureDetector, now: Duration) -> bool {
        let Some(member) = self.clocks.ranks.get(rank as usize) else { return false };
        let here = worker_of(member.pusher, member.incarnation);
        let here = here.filter(|_| !self.clocks.is_fenced(rank, member.incarnation));
        here.and_then(|here| detector.signs(here, now))
            .is_some_and(|(silent, limits)| silent <= limits.silence)
    }

    /// When others first asked for this incarnation of a worker, of which nothing was heard here, or for a newer one.
    fn first_asked(&mut self, rank: u32, incarnation: u64, clock: Duration) -> Duration {
        let asked = self.asked.entry(rank).or_insert((incarnation, clock));
        if asked.0 < incarnation {
            *asked = (incarnation, clock);
        }
        asked.1
    }
}
