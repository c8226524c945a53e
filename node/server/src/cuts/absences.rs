//! Which pushers have no session on this thread, and for how long. The coordinator of a checkpoint asks when a push is
//! not complete on all its shards: its pusher may be gone. See the module `cuts` for the protocol.

use crate::requests::group_requests::fence_worker;
use crate::cuts::protocol::covered_tables;
use crate::limits::{
    ABSENCES_MAX, CLIENT_FORGOTTEN_AFTER, CLIENTS_FORGOTTEN_AT_ONCE, CUT_PUSHES_MAX, INCARNATION_NAMED_MAX,
    PUSHERS_KEPT,
};
use crate::requests::bulk::{Pusher, RequestFailure, refuse};
use crate::tables::server_tables::ServerTables;
use crate::thread::heartbeats::worker_of;
use gannet_core::{CLIENTS, DATA_PUSHERS, is_client};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::messages::cuts::{CutPusherV1, TornPushV1};
use gannet_wire::refusal::Refusal;
use std::collections::HashMap;
use std::time::Duration;

/// A pusher and its incarnation.
type Start = (u64, u64);

/// The sessions of pushers on one thread. Times are those of the failure detector's clock: it stands still while the
/// thread is stopped.
#[derive(Default)]
pub(crate) struct Absences {
    /// How many sessions each pusher has.
    here: HashMap<Start, u32>,
    /// When the last session of a pusher ended.
    left: HashMap<Start, Duration>,
    /// Since when `left` is complete. `None`: the thread has just begun, or has just taken shards over.
    since: Option<Duration>,
    /// Torn pushes about which a coordinator asked: sequence number, applied rows, and since when they are the same.
    torn: HashMap<(String, Start), (u64, u64, Duration)>,
}

impl Absences {
    pub(crate) fn begin(&mut self, of: &Pusher) {
        if of.incarnation != NO_INCARNATION {
            *self.here.entry((of.pusher, of.incarnation)).or_default() += 1;
        }
    }

    pub(crate) fn end(&mut self, of: &Pusher, clock: Duration) {
        let start = (of.pusher, of.incarnation);
        let Some(sessions) = self.here.get_mut(&start) else { return };
        *sessions -= 1;
        if *sessions > 0 {
            return;
        }
        self.here.remove(&start);
        self.left.insert(start, clock);
        // Who left earlier than the first half is not remembered: it counts as gone since the last of those.
        if self.left.len() > ABSENCES_MAX {
            let mut times: Vec<Duration> = self.left.values().copied().collect();
            times.sort_unstable();
            let since = times[times.len() / 2];
            self.left.retain(|_, left| *left > since);
            self.since = self.since.max(Some(since));
        }
    }

    /// Shards have come here. Their pushers had their sessions elsewhere.
    pub(crate) fn forget(&mut self) {
        (self.left, self.torn, self.since) = (HashMap::new(), HashMap::new(), None);
    }

    /// The thread runs.
    pub(crate) fn wake(&mut self, clock: Duration) -> Duration {
        *self.since.get_or_insert(clock)
    }

    /// For how long this start of a pusher has had no session here. `None`: it has one.
    fn absence(&mut self, start: Start, clock: Duration) -> Option<Duration> {
        let since = self.wake(clock);
        let left = self.left.get(&start).copied().unwrap_or(since);
        (!self.here.contains_key(&start)).then(|| clock.saturating_sub(left))
    }

    /// For how long coordinators have found this push as it is.
    fn standstill(&mut self, push: &TornPushV1, clock: Duration) -> Duration {
        if self.torn.len() > CUT_PUSHES_MAX {
            self.torn.clear();
        }
        let known = self.torn.entry((push.table.clone(), (push.pusher, push.incarnation)));
        let known = known.or_insert((push.seq, push.done, clock));
        if (known.0, known.1) != (push.seq, push.done) {
            *known = (push.seq, push.done, clock);
        }
        clock.saturating_sub(known.2)
    }
}

/// Of the pushers of these torn pushes: those that may be given up, as far as this thread knows.
pub(crate) fn gone(tables: &mut ServerTables, torn: &[TornPushV1], now: Duration) -> Vec<CutPusherV1> {
    tables.detector.wake(now);
    let is_gone = |push: &&TornPushV1| is_gone(tables, push, now);
    let pusher = |push: &TornPushV1| CutPusherV1 { pusher: push.pusher, incarnation: push.incarnation };
    torn.iter().filter(is_gone).map(pusher).collect()
}

fn is_gone(tables: &mut ServerTables, push: &TornPushV1, now: Duration) -> bool {
    let clock = tables.detector.clock(now);
    let start = (push.pusher, push.incarnation);
    let signs = worker_of(start.0, start.1).and_then(|worker| tables.detector.signs(worker, now));
    let (silent, limits) = signs.unwrap_or((Duration::MAX, WorkerLimits::of(WORKER_TIMEOUT)));
    let stuck = tables.cuts.absences.standstill(push, clock) > limits.progress;
    match tables.cuts.absences.absence(start, clock) {
        Some(absent) => absent > limits.silence && silent > limits.silence,
        // A worker that waits for space on a disk has an unfinished part. It goes on when there is space.
        None => stuck && !push.unfinished,
    }
}

/// Ends torn pushes: fences their pushers in every table of the cut. So no shard applies any more of them.
pub(crate) fn give_up(tables: &mut ServerTables, pushers: &[CutPusherV1], now: Duration) -> Result<(), RequestFailure> {
    for &CutPusherV1 { pusher, incarnation } in pushers {
        if pusher >= DATA_PUSHERS || incarnation >= INCARNATION_NAMED_MAX {
            let who = gannet_core::pusher_in_words(pusher);
            let text = format!("{who}, incarnation {incarnation}, is no worker: a cut cannot give it up");
            return refuse(Refusal::Name, text);
        }
        for number in covered_tables(tables) {
            let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
            let is_it = |rank: &u32| {
                let member = group.and_then(|group| group.clocks.ranks.get(*rank as usize));
                member.is_some_and(|member| member.pusher == pusher)
            };
            let rank = worker_of(pusher, incarnation).map(|worker| worker.rank).filter(is_it);
            fence_worker(tables, number, rank.unwrap_or(u32::MAX), (pusher, incarnation), now)?;
        }
        if tables.thread() == 0 {
            let who = gannet_core::pusher_in_words(pusher);
            tracing::warn!(
                incarnation,
                "{who} is gone in the middle of a push: it is fenced, and its last push stays incomplete"
            );
        }
    }
    Ok(())
}

/// Forgets clients that are gone, in tables that remember too many pushers. Called once a second. While a cut is
/// taken, all pushers stay as they are.
pub(crate) fn forget_clients(tables: &mut ServerTables, now: Duration) {
    if tables.cuts.cut.is_some() {
        return;
    }
    let clock = tables.detector.clock(now);
    let since = tables.cuts.absences.wake(clock);
    let Absences { here, left, .. } = &tables.cuts.absences;
    let is_gone = |client: u64| {
        let start = (CLIENTS + client, client);
        let absent = clock.saturating_sub(left.get(&start).copied().unwrap_or(since));
        !here.contains_key(&start) && absent >= CLIENT_FORGOTTEN_AFTER
    };
    let present: Vec<u64> = here
        .keys()
        .filter(|(pusher, start)| is_client(*pusher, *start))
        .map(|(_, start)| *start)
        .collect();
    for table in tables.all.iter_mut() {
        let Some(shards) = table.shards.as_mut().filter(|shards| shards.has_more_pushers(PUSHERS_KEPT))
        else {
            continue;
        };
        let table = &table.schema.name;
        match shards.forget_clients(is_gone, &present, CLIENTS_FORGOTTEN_AT_ONCE) {
            Ok(0) => {}
            Ok(clients) => tracing::info!(table, clients, "clients that are gone were forgotten"),
            Err(error) => tracing::warn!(table, %error, "no place for further pushers could be made"),
        }
    }
}

#[cfg(test)]
#[path = "torn_pushes_tests.rs"]
mod tests;
