//! Workers that keep step, on one thread: ended sessions, signs of workers, the worker for which a request waits, and
//! whether a worker is dead.
//!
//! One thread decides that for all: thread 0 of the server with the registry of runs. A worker whose request waits, at
//! any thread of any server, asks it about the one for which it waits (frame 75). If that one is dead, the deciding
//! thread fences it, and whoever has asked fences it at all threads. If that worker dies meanwhile, others still ask.

#[cfg(test)]
#[path = "awaited_tests.rs"]
mod tests;

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use crate::peers::pusher::{Pusher, worker_of};
use crate::requests::steps::joins::{fence_worker, must_name_a_worker};
use crate::requests::steps::pushes::settle;
use crate::server_tables::ServerTables;
use crate::steps::clocks::{ClockState, Straggler};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::{AwaitFrame, AwaitedFrame};
use gannet_wire::messages::awaited::{AwaitV1, AwaitedV1, DeadMemberV1};
use gannet_wire::messages::control;
use gannet_wire::messages::control::WaitsV2;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Notes that a session has ended.
pub(crate) fn end_session(tables: &mut ServerTables, session: u32) {
    for number in tables.all.numbers() {
        let Some(group) = &mut tables.all[number].group else { continue };
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
        settle(tables, number);
    }
}

/// Notes the last sign of a session's worker. A session that keeps step is heard while its requests wait, and so it
/// counts only while it speaks for its worker: one that is left over from a lost link may wait for long.
pub(crate) fn hear(tables: &ServerTables, pusher: &Pusher, when: Duration) {
    let Some(worker) = worker_of(pusher.pusher, pusher.incarnation) else { return };
    let here = ClockState::Here(pusher.session);
    let speaks = |&(table, rank): &(u32, u32)| {
        let group = tables.all.get(table as usize).and_then(|table| table.group.as_ref());
        group.and_then(|group| group.clocks.ranks.get(rank as usize)).is_some_and(|rank| rank.state == here)
    };
    match pusher.ranks.iter().any(speaks) {
        // The thread that trains sends over the sessions that keep step.
        true => {
            tables.detector.hear(worker, when);
            tables.detector.hear_training(worker, when);
        }
        false if pusher.ranks.is_empty() => drop(tables.detector.hear(worker, when)),
        false => {}
    }
}

/// Says whether a worker for which another one waits, at whatever thread, is dead. A dead one is fenced here.
pub(crate) fn answer_await(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    AwaitFrame::decode(&frame.head)?;
    let of = match control::open::<AwaitV1>(frame.payload) {
        Ok(of) => of,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    if tables.thread() != 0 {
        return refuse(Refusal::Unknown, "thread 0 of a server decides which workers are dead");
    }
    // The answer must reach the worker.
    transmit.reserve(0).ok_or(Full)?;
    tables.detector.wake(now);
    let dead = dead_member(tables, &of, now)?;
    send_answer(frame, AwaitedFrame {}, &control::seal(&AwaitedV1 { dead }), transmit)
}

/// The worker that is asked for, if it is dead. It is fenced here, unless its group needs every worker (`strict`):
/// then whoever waits for it ends.
fn dead_member(
    tables: &mut ServerTables,
    of: &AwaitV1,
    now: Duration,
) -> Result<Option<DeadMemberV1>, RequestFailure> {
    must_name_a_worker("a question about a worker", of.pusher, of.incarnation)?;
    let named = |number: &usize| tables.all[*number].schema.name == of.table;
    let Some(number) = tables.all.numbers().into_iter().find(named) else { return Ok(None) };
    let Some(group) = &mut tables.all[number].group else { return Ok(None) };
    let (strict, (verdict, straggler)) = (group.strict, group.verdict(of, &tables.detector, now));
    let Straggler { rank, clock, incarnation, pusher } = straggler;
    if !verdict.is_dead() {
        return Ok(None);
    }
    let here = group.clocks.ranks.get(rank as usize).map_or(0, |member| member.incarnation);
    let signs = worker_of(pusher, incarnation).and_then(|worker| tables.detector.signs(worker, now));
    // One of which nothing was heard here is known only by the word of whoever asks, who fences it. A wild number
    // must not lock out a worker that has yet to come.
    let fenced = if signs.is_some() { incarnation } else { here.min(incarnation) };
    if !strict {
        fence_worker(tables, number as u32, rank, pusher, fenced, now)?;
    }
    let silent_ms = verdict.in_words().0.as_millis() as u64;
    Ok(Some(DeadMemberV1 { rank, clock, pusher, incarnation, silent_ms }))
}

/// Whether a request of this worker over a table can wait for others. It waits for itself if all steps before its
/// own are in the rows: it has not sent the end of its step.
pub(crate) fn waits_for_others(tables: &ServerTables, number: u32, pusher: &Pusher) -> bool {
    let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
    let Some((group, rank)) = group.zip(pusher.rank(number)) else { return true };
    group.clocks.ranks.get(rank as usize).is_none_or(|rank| rank.clock > group.lowest())
}

/// The payload of a waits frame: it names the worker for which a request of this one over the table waits. Of the
/// table's workers it may be the asker itself, whose end of the step is behind a request over another table. Then
/// the frame names the worker for which it waits over that one.
pub(crate) fn waits_message(tables: &ServerTables, number: u32, of: &Pusher) -> Option<Vec<u8>> {
    let others = of.ranks.iter().map(|(table, _)| *table).filter(|table| *table != number);
    let all: Vec<WaitsV2> =
        [number].into_iter().chain(others).filter_map(|at| workers_behind(tables, at)).collect();
    let is_other = |waits: &&WaitsV2| of.rank(waits.table) != Some(waits.rank);
    let waits = all.iter().find(is_other).or_else(|| all.first().filter(|waits| waits.table == number))?;
    Some(control::seal_as(2, waits))
}

/// The worker that is furthest behind over a table.
fn workers_behind(tables: &ServerTables, table: u32) -> Option<WaitsV2> {
    let clocks = &tables.all.get(table as usize)?.group.as_ref()?.clocks;
    let Straggler { rank, clock, incarnation, pusher } = clocks.behind()?;
    let here = matches!(clocks.ranks[rank as usize].state, ClockState::Here(_));
    Some(WaitsV2 { table, rank, clock, pusher, incarnation, here })
}
