//! Pushers that are gone while a checkpoint is taken, and clients that are gone at any time.

use crate::cuts::absences::Absences;
use crate::limits::{CLIENT_FORGOTTEN_AFTER, CLIENTS_FORGOTTEN_AT_ONCE, INCARNATION_NAMED_MAX, PUSHERS_KEPT};
use crate::peers::outcome::{RequestFailure, refuse};
use crate::peers::pusher::worker_of;
use crate::requests::cuts::protocol::covered_tables;
use crate::requests::steps::joins::fence_worker;
use crate::server_tables::ServerTables;
use gannet_core::{CLIENTS, DATA_PUSHERS, is_client};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::messages::cuts::{CutPusherV1, TornPushV1};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

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
    let stuck = tables.checkpoints.cuts.absences.standstill(push, clock) > limits.progress;
    match tables.checkpoints.cuts.absences.absence(start, clock) {
        Some(absent) => absent > limits.silence && silent > limits.silence,
        // A worker that waits for space on a disk has an unfinished part. It goes on when there is space.
        None => stuck && !push.unfinished,
    }
}

/// Ends torn pushes: fences their pushers in every table of the cut. So no shard applies any more of them.
pub(crate) fn give_up(
    tables: &mut ServerTables,
    pushers: &[CutPusherV1],
    now: Duration,
) -> Result<(), RequestFailure> {
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
            fence_worker(tables, number, rank.unwrap_or(u32::MAX), pusher, incarnation, now)?;
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
    if tables.checkpoints.cuts.cut.is_some() {
        return;
    }
    let clock = tables.detector.clock(now);
    let since = tables.checkpoints.cuts.absences.wake(clock);
    let Absences { here, left, .. } = &tables.checkpoints.cuts.absences;
    let is_gone = |client: u64| {
        let start = (CLIENTS + client, client);
        let absent = clock.saturating_sub(left.get(&start).copied().unwrap_or(since));
        !here.contains_key(&start) && absent >= CLIENT_FORGOTTEN_AFTER
    };
    let present: Vec<u64> =
        here.keys().filter(|(pusher, start)| is_client(*pusher, *start)).map(|(_, start)| *start).collect();
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
