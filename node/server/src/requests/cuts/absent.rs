//! Pushers that are gone while a checkpoint is taken, and clients that are gone at any time.

use crate::limits::{
    CLIENT_FORGOTTEN_AFTER, CLIENT_FORGOTTEN_ON_REQUEST_AFTER, CLIENTS_FORGOTTEN_AT_ONCE,
    INCARNATION_NAMED_MAX, PUSHERS_KEPT,
};
use crate::peers::outcome::{BulkReply, RequestFailure, refuse};
use crate::peers::pusher::{Pusher, worker_of};
use crate::requests::cuts::holding::covered_tables;
use crate::requests::steps::joins::fence_worker;
use crate::server_tables::ServerTables;
use gannet_core::{Cursor, DATA_PUSHERS, Shards, is_client};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_transport::Frame;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{ClientsForgottenFrame, ForgetClientsFrame};
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::messages::cuts::{CutPusherV1, PushLimitV1, TornPushV1};
use gannet_wire::refusal::Refusal;
use gannet_wire::share_pushers::worker_of_share;
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
    let start = tables.checkpoints.cuts.absences.start_before_fence((push.pusher, push.incarnation));
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

/// Notes pushes of fixed shares as ended: what is left of them is dropped. Refuses a push whose worker has a session
/// here and is not fenced: that worker would take its resend of the push for applied.
pub(crate) fn end_pushes(tables: &mut ServerTables, pushes: &[PushLimitV1]) -> Result<(), RequestFailure> {
    for PushLimitV1 { table, pusher, incarnation, seq } in pushes {
        let Some(worker) = worker_of_share(*pusher).filter(|_| *incarnation < INCARNATION_NAMED_MAX) else {
            let text =
                format!("pusher {pusher:#x} is not that of a fixed share: its push {seq} is not ended");
            return refuse(Refusal::Name, text);
        };
        let here: Vec<u64> = tables.checkpoints.cuts.absences.starts_here(worker).collect();
        for number in covered_tables(tables) {
            let Some(own) = tables.all.get_mut(number as usize).filter(|own| own.schema.name == *table)
            else {
                continue;
            };
            let Some(shards) = &mut own.shards else { continue };
            if here.iter().any(|start| shards.check_pusher(worker, *start).is_ok()) {
                let who = gannet_core::pusher_in_words(worker);
                let text =
                    format!("{who} is here: it may complete push {seq} of its share to table {table:?}");
                return refuse(Refusal::Mismatch, text);
            }
            let cursor = Cursor { pusher: *pusher, incarnation: *incarnation, seq: *seq, closed: false };
            let ended = shards.set_cursor(&cursor);
            ended.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
        }
    }
    Ok(())
}

/// Forgets clients that are gone, in tables that remember too many pushers. Called once a second. While a cut is
/// taken, all pushers stay as they are.
pub(crate) fn forget_clients(tables: &mut ServerTables, now: Duration) {
    if tables.checkpoints.cuts.is_taken() {
        return;
    }
    forget_clients_of(tables, CLIENT_FORGOTTEN_AFTER, PUSHERS_KEPT, now);
}

/// Forgets clients that have been gone for a minute, in all tables of this thread: `gannet forget --clients`.
pub(crate) fn answer_forget_clients(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    now: Duration,
) -> Result<BulkReply, RequestFailure> {
    ForgetClientsFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    if tables.checkpoints.cuts.is_taken() {
        return refuse(
            Refusal::Mismatch,
            "a checkpoint is being written: no pusher is forgotten before its end",
        );
    }
    let clients = forget_clients_of(tables, CLIENT_FORGOTTEN_ON_REQUEST_AFTER, 0, now) as u32;
    let shards = tables.all.iter().filter_map(|table| table.shards.as_ref());
    let pushers = shards.map(Shards::pushers_known).max().unwrap_or(0) as u32;
    Ok(BulkReply::Now(ClientsForgottenFrame { clients, pushers }.encode(frame.head.id)))
}

/// Forgets clients that have been gone for `least`, in tables that remember more than `kept` pushers. Returns how many
/// it has forgotten in the table that had the most.
fn forget_clients_of(tables: &mut ServerTables, least: Duration, kept: usize, now: Duration) -> usize {
    let clock = tables.detector.clock(now);
    tables.checkpoints.cuts.absences.wake(clock);
    let absences = &tables.checkpoints.cuts.absences;
    let is_gone = |client: u64| absences.is_client_gone(client, least, clock);
    let of_clients = absences.here.keys().filter(|(pusher, start)| is_client(*pusher, *start));
    let present: Vec<u64> = of_clients.map(|(_, start)| *start).collect();
    let mut most = 0;
    for table in tables.all.iter_mut() {
        let Some(shards) = table.shards.as_mut().filter(|shards| shards.has_more_pushers(kept)) else {
            continue;
        };
        let table = &table.schema.name;
        match shards.forget_clients(is_gone, &present, CLIENTS_FORGOTTEN_AT_ONCE) {
            Ok(0) => {}
            Ok(clients) => {
                most = most.max(clients);
                tracing::info!(table, clients, "clients that are gone were forgotten");
            }
            Err(error) => tracing::warn!(table, %error, "no place for further pushers could be made"),
        }
    }
    most
}
