//! The requests of workers that keep step over a table: to join, to end a step, to leave, and to fence another worker.

use crate::limits::{CLOCK_MAX, INCARNATION_NAMED_MAX};
use crate::peers::outcome::{BulkReply, RequestFailure, RequestOutcome, refuse, send_answer};
use crate::peers::pusher::{Pusher, worker_of};
use crate::requests::steps::pushes::{numbered, settle};
use crate::server_tables::ServerTables;
use crate::steps::clocks::Joiner;
use crate::steps::group::Group;
use crate::steps::step_budget::{StepBudget, StepBudgetShare};
use crate::tables::table::ServerTable;
use gannet_core::DATA_PUSHERS;
use gannet_transport::{Frame, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::{
    FenceFrame, FencedFrame, JoinFrame, JoinedFrame, LeaveFrame, LeftFrame, TickFrame, TickedFrame,
};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{JoinV1, JoinedV1};
use gannet_wire::refusal::{REPLACED, Refusal};
use gannet_wire::share_pushers::AGGREGATE;
use gannet_wire::sync::SyncConfig;
use std::sync::Arc;
use std::time::Duration;

/// Refuses what names no start of a worker. Steps and data have pusher numbers too, and no worker has such a high
/// incarnation. A fence on one of those would end the table's steps for good.
pub(crate) fn must_name_a_worker(what: &str, pusher: u64, incarnation: u64) -> RequestOutcome {
    if pusher < DATA_PUSHERS && incarnation < INCARNATION_NAMED_MAX {
        return Ok(());
    }
    let who = gannet_core::pusher_in_words(pusher);
    let text = format!("{what} needs an incarnation of a worker, but got {who}, incarnation {incarnation}");
    refuse(Refusal::Name, text)
}

pub(crate) fn answer_join(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &mut Pusher,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let JoinFrame { table: number } = JoinFrame::decode(&frame.head)?;
    let request = match control::open::<JoinV1>(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    pusher.must_have_incarnation()?;
    if pusher.pusher == AGGREGATE {
        return refuse(Refusal::Malformed, "pusher 2^64 - 2 is reserved for synchronous steps");
    }
    let Pusher { pusher: who, incarnation, session, .. } = *pusher;
    let joiner = Joiner { rank: request.rank, pusher: who, incarnation, session };
    let budget = tables.waits.budget.clone();
    let is_bsp = SyncConfig::of(&request).is_ok_and(|member| member.mode.is_bsp());
    if let Some(budget) = budget.as_ref().filter(|_| is_bsp) {
        let reserved = budget.set_aside(tables.store());
        reserved.map_err(|why| RequestFailure::Refused(Refusal::Limit, why))?;
    }
    let thread = tables.thread();
    let new_share = |budget: &Arc<StepBudget>| StepBudgetShare::new(budget.clone(), thread);
    let (detector, since) = (tables.detector.clone(), tables.detector.clock(now));
    let share = || budget.as_ref().map_or_else(StepBudgetShare::default, new_share);
    let table = numbered(tables, number)?;
    let displaced = table.group.as_ref().and_then(|group| group.clocks.other_session(&joiner));
    let clock = table.join(joiner, &request, share, since)?;
    if let (Some(worker), Some(group)) = (worker_of(who, incarnation), &table.group) {
        detector.begin(worker, group.limits, now);
    }
    // The join of a lost link may come after that of the next link. If the server only refused what comes over the
    // other link, a worker that is alive would take itself for replaced.
    tables.waits.displaced.extend(displaced);
    pusher.enter(number, request.rank);
    settle(tables, number as usize);
    send_answer(frame, JoinedFrame {}, &control::seal(&JoinedV1 { clock }), transmit)
}

/// The group of a table, and the rank for which this session speaks there.
pub(crate) fn member<'a>(
    tables: &'a mut ServerTables,
    number: u32,
    pusher: &Pusher,
) -> Result<(&'a mut Group, u32), RequestFailure> {
    let rank = pusher.rank(number);
    let ServerTable { group, .. } = numbered(tables, number)?;
    let (Some(group), Some(rank)) = (group, rank) else {
        return refuse(
            Refusal::Unknown,
            "this session has not joined the workers that keep step over the table",
        );
    };
    match group.clocks.speaks(rank, pusher.session, pusher.incarnation) {
        true => Ok((group, rank)),
        false => refuse(Refusal::Fenced, format!("worker {rank}: {REPLACED}")),
    }
}

/// A worker has finished a step.
pub(crate) fn tick(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
) -> Result<BulkReply, RequestFailure> {
    let TickFrame { table: number, clock, skip } = TickFrame::decode(&frame.head)?;
    // The step has a push that was refused, and that the worker resends over its next link. With this clock others
    // would take their rows for complete, and a synchronous step would be applied without the push.
    if pusher.blocked {
        return refuse(Refusal::Blocked, "an earlier push of this session was refused");
    }
    let (group, rank) = member(tables, number, pusher)?;
    let from = group.clocks.ranks[rank as usize].clock;
    if clock > CLOCK_MAX {
        return refuse(Refusal::Malformed, format!("clock {clock} is above the limit, {CLOCK_MAX}"));
    }
    if let Some(sums) = &mut group.sums
        && clock > from
    {
        sums.tick(rank, from, clock, skip);
    }
    group.clocks.tick(rank, clock);
    let left = group.clocks.left();
    settle(tables, number as usize);
    Ok(BulkReply::Now(TickedFrame { table: number, clock, left }.encode(frame.head.id)))
}

/// A worker is done and leaves its group.
pub(crate) fn leave(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
) -> Result<BulkReply, RequestFailure> {
    let LeaveFrame { table: number } = LeaveFrame::decode(&frame.head)?;
    let (group, rank) = member(tables, number, pusher)?;
    group.clocks.leave(rank);
    tracing::info!(rank, clock = group.clocks.ranks[rank as usize].clock, "a worker is done");
    settle(tables, number as usize);
    Ok(BulkReply::Now(LeftFrame { table: number }.encode(frame.head.id)))
}

/// Fences a worker. The others go on without it, and the server refuses all its later pushes, over any session.
pub(crate) fn fence(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    now: Duration,
) -> Result<BulkReply, RequestFailure> {
    let FenceFrame { table: number, index: rank, pusher, incarnation } = FenceFrame::decode(&frame.head)?;
    must_name_a_worker("a fence", pusher, incarnation)?;
    fence_worker(tables, number, rank, pusher, incarnation, now)?;
    Ok(BulkReply::Now(FencedFrame { table: number, index: rank }.encode(frame.head.id)))
}

/// Fences a worker on this thread, whoever found out that it is dead. Incarnation 0: it has not come.
pub(crate) fn fence_worker(
    tables: &mut ServerTables,
    number: u32,
    rank: u32,
    pusher: u64,
    incarnation: u64,
    now: Duration,
) -> RequestOutcome {
    let table = numbered(tables, number)?;
    if let Some(shards) = table.shards.as_mut().filter(|_| incarnation > 0) {
        let fenced = shards.fence_pusher(pusher, incarnation);
        fenced.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
    }
    let gone = table.group.as_mut().is_some_and(|group| group.clocks.fence(rank, pusher, incarnation));
    // Every thread of the server fences it. Only thread 0 logs that.
    if gone
        && tables.thread() == 0
        && let Some(kept_back) = tables.log_limiter.allow(now)
    {
        tracing::warn!(rank, incarnation, kept_back, "the others go on without a worker");
    }
    if incarnation > 0 {
        tables.waits.fenced.push((number, pusher, incarnation));
    }
    settle(tables, number as usize);
    Ok(())
}
