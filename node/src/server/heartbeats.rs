//! Heartbeats of the workers that keep step, on one thread: ended sessions, signs of workers, workers that are given
//! up, and the worker for which a request waits.

use super::bulk::Pusher;
use super::clocks::{ClockState, Straggler};
use super::tables::ServerTables;
use crate::frames::control::{self, WaitsV1};
use std::time::Duration;

impl ServerTables {
    /// Notes that a session has ended.
    pub(super) fn end_session(&mut self, session: u32, now: Duration) {
        for number in 0..self.all.len() {
            let Some(group) = &mut self.all[number].group else { continue };
            let Some(rank) = group.clocks.end(session, now) else { continue };
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

    /// Notes the last sign of a session's worker.
    pub(super) fn hear(&mut self, pusher: &Pusher, when: Duration) {
        for &(table, _) in &pusher.ranks {
            if let Some(group) = self.all.get_mut(table as usize).and_then(|table| table.group.as_mut()) {
                group.clocks.hear(pusher.session, when);
            }
        }
    }

    /// Excuses the workers' silence for the time that this thread was stopped.
    pub(super) fn forgive(&mut self, slept: Duration, now: Duration) {
        let groups = self.all.iter_mut().filter_map(|table| table.group.as_mut());
        groups.for_each(|group| group.clocks.forgive(slept, now));
    }

    /// Gives up workers that were silent for too long.
    pub(super) fn give_up(&mut self, now: Duration) {
        for number in 0..self.all.len() {
            let Some(group) = &mut self.all[number].group else { continue };
            let given_up = group.clocks.give_up(now);
            for Straggler { rank, clock, silent, .. } in &given_up {
                let seconds = silent.as_secs();
                tracing::warn!(
                    rank,
                    clock,
                    seconds,
                    "no sign of a worker (--worker-timeout): the others go on without it"
                );
            }
            if !given_up.is_empty() {
                self.settle(number);
            }
        }
    }

    /// The payload of a waits frame: it names the worker for which a request over this table waits.
    pub(super) fn waits(&self, number: u32, now: Duration) -> Option<Vec<u8>> {
        let clocks = &self.all.get(number as usize)?.group.as_ref()?.clocks;
        let Straggler { rank, clock, incarnation, pusher, silent } = clocks.behind(now)?;
        let here = matches!(clocks.ranks[rank as usize].state, ClockState::Here(_));
        let decider = clocks.decider(now).unwrap_or(u32::MAX);
        let silent_ms = silent.as_millis() as u64;
        let waits = WaitsV1 { table: number, rank, clock, pusher, incarnation, here, silent_ms, decider };
        Some(control::seal(&waits))
    }
}
