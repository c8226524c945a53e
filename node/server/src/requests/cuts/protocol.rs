//! Cuts on one server thread: it holds pushes back and marks the cut. The file `slices.rs` then writes the rows
//! between requests. The documentation of gannet-worker's module
//! `checkpoint` has the protocol.

use crate::cuts::state::{ThreadCut, Writing};
use crate::cuts::writer::{CutFileId, CutWriter, WriterState};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::peers::pusher::{Pusher, is_data};
use crate::places::states::{RunStates, states_of_run};
use crate::requests::cuts::absent::{end_pushes, give_up, gone};
use crate::requests::cuts::follower::mark_for_follower;
use crate::requests::cuts::holding::{
    end_cut, freeze_tables, frozen, must_be_current, must_hold_all, must_still_hold, release_pushes,
};
use crate::requests::cuts::tables::{cut_pushes, positions_of_bases, steps_of_cut};
use crate::requests::steps::pushes::settle;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use gannet_core::{CutReader, MarkedShard, Position, RowFileHead, RowFileKind};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::cuts::{CutFrame, CutIsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::limits::CUT_MESSAGE_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::cuts::{
    CutActionV1, CutReplyV1, CutRequestV1, CutShardV1, CutStepV1, MarkV1, PushLimitV1,
};
use gannet_wire::refusal::Refusal;
use std::collections::HashMap;
use std::time::Duration;

/// Answers a step of a cut.
pub(crate) fn answer_cut(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    of: RunStates<'_>,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    CutFrame::decode(&frame.head)?;
    let CutRequestV1 { cut, run, action } = match control::open(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    // Space for the reply comes first: a part is taken once.
    transmit.reserve(CUT_MESSAGE_BYTES_MAX).ok_or(Full)?;
    if !matches!(action, CutActionV1::Freeze { .. } | CutActionV1::FreezeForFollower { .. }) {
        must_be_current(tables, cut, pusher.session, now)?;
    }
    let (run, action) = match (action, tables.checkpoints.cuts.get_mut(cut)) {
        (CutActionV1::Part { bytes, left }, Some(current)) => match current.parts.add(&bytes, left)? {
            Some(whole) if whole.cut == cut => (whole.run, whole.action),
            Some(_) => return refuse(Refusal::Malformed, "the parts are of a step of another cut"),
            None => return send_cut_reply(frame, &control::seal(&CutReplyV1::Done), transmit),
        },
        (CutActionV1::More, Some(current)) => {
            return send_cut_reply(frame, &control::seal(&current.parts.next()), transmit);
        }
        (action, _) => (run, action),
    };
    must_still_hold(tables, cut, &action)?;
    let reply = take_step(tables, (cut, run), action, pusher.session, of, now)?;
    let reply = control::seal(&reply);
    match tables.checkpoints.cuts.get_mut(cut) {
        Some(cut) if reply.len() > CUT_MESSAGE_BYTES_MAX => {
            let part = cut.parts.begin(reply);
            send_cut_reply(frame, &control::seal(&part), transmit)
        }
        _ => send_cut_reply(frame, &reply, transmit),
    }
}

/// Takes a step of a cut, and returns the reply.
fn take_step(
    tables: &mut ServerTables,
    (cut, run): (u64, String),
    action: CutActionV1,
    session: u32,
    of: RunStates<'_>,
    now: Duration,
) -> Result<CutReplyV1, RequestFailure> {
    let begin = |for_follower| ThreadCut {
        number: cut,
        run: run.clone(),
        session,
        for_follower,
        ..ThreadCut::default()
    };
    Ok(match action {
        CutActionV1::Freeze { ms } => freeze_tables(tables, begin(false), ms, now)?,
        CutActionV1::FreezeForFollower { ms } => freeze_tables(tables, begin(true), ms, now)?,
        CutActionV1::Admit { pushes, steps, closes, over } => {
            close_over(tables, &over)?;
            let is_over = |limit: &&PushLimitV1| {
                of.0.is_some_and(|scheduler| scheduler.is_done(&run, limit.pusher, limit.incarnation))
            };
            let known = pushes.iter().filter(|limit| is_data(limit.pusher)).filter(is_over);
            let known = known.map(|limit| limit.pusher).collect();
            admit_pushes(tables, &pushes, &steps, closes, known)?
        }
        CutActionV1::Mark(mark) => mark_cut(tables, &mark, states_of_run(&run, of))?,
        CutActionV1::MarkForFollower(mark) => mark_for_follower(tables, &mark, states_of_run(&run, of), now)?,
        CutActionV1::Release => {
            release_pushes(tables, cut, now);
            CutReplyV1::Done
        }
        CutActionV1::Poll => writing_progress(tables),
        CutActionV1::End => {
            end_cut(tables, cut, now);
            CutReplyV1::Done
        }
        CutActionV1::Torn { pushes } => CutReplyV1::Gone { pushers: gone(tables, &pushes, now) },
        CutActionV1::GiveUp { pushers, ended } => {
            give_up(tables, &pushers, now)?;
            end_pushes(tables, &ended)?;
            CutReplyV1::Done
        }
        CutActionV1::Part { .. } | CutActionV1::More => {
            return refuse(Refusal::Malformed, "a part of a step that is no part of one");
        }
    })
}

/// Closes data that is done in all tables of the cut. All pushes of it were acknowledged before it was reported as
/// done, so nothing of it is lost.
fn close_over(tables: &mut ServerTables, over: &[u64]) -> Result<(), RequestFailure> {
    let Some(cut) = &tables.checkpoints.cuts.cut else { return Ok(()) };
    for table in tables.all.iter_mut().filter(|table| cut.covers(table)) {
        let Some(shards) = &mut table.shards else { continue };
        for push in shards.push_progress() {
            if over.contains(&push.pusher) && is_data(push.pusher) && !push.closed {
                let closed = shards.close_pusher(push.pusher, push.incarnation);
                closed.map_err(|e| RequestFailure::Refused(Refusal::of_push(&e), e.to_string()))?;
            }
        }
    }
    Ok(())
}

fn admit_pushes(
    tables: &mut ServerTables,
    pushes: &[PushLimitV1],
    steps: &[CutStepV1],
    closes: Vec<u64>,
    known_over: Vec<u64>,
) -> Result<CutReplyV1, RequestFailure> {
    must_hold_all(tables)?;
    // A server that has several places has a part of the table for each.
    let parts = |name: &str| -> Vec<u32> {
        let is_it = |(_, table): &(usize, &ServerTable)| table.schema.name == name;
        tables.all.numbered().filter(is_it).map(|(number, _)| number as u32).collect()
    };
    let limits: Vec<_> =
        pushes.iter().flat_map(|p| parts(&p.table).into_iter().map(move |part| (part, p))).collect();
    let steps: Vec<_> =
        steps.iter().flat_map(|s| parts(&s.table).into_iter().map(move |part| (part, s.step))).collect();
    let Some(cut) = &mut tables.checkpoints.cuts.cut else { return frozen(tables) };
    if cut.until.is_none() {
        return refuse(Refusal::Malformed, "the cut does not hold pushes back");
    }
    for (table, limit) in limits {
        let admitted = cut.admitted.entry((table, limit.pusher)).or_default();
        *admitted = (*admitted).max((limit.incarnation, limit.seq));
    }
    cut.closes.extend(closes);
    for &(table, step) in &steps {
        let limit = cut.steps.entry(table).or_default();
        *limit = step.max(*limit);
    }
    let mut reply = frozen(tables);
    if let Ok(CutReplyV1::Frozen { over, .. }) = &mut reply {
        *over = known_over;
    }
    if let Some(cut) = &mut tables.checkpoints.cuts.cut {
        cut.held.clear();
        cut.closing.clear();
    }
    steps.iter().for_each(|&(table, _)| settle(tables, table as usize));
    tables.waits.group_changed = true;
    reply
}

/// Marks the cut of all shards here, and begins to write it.
fn mark_cut(
    tables: &mut ServerTables,
    mark: &MarkV1,
    states: Vec<(String, Vec<u8>)>,
) -> Result<CutReplyV1, RequestFailure> {
    let places: HashMap<&str, u32> = mark.tables.iter().map(String::as_str).zip(0..).collect();
    must_hold_all(tables)?;
    let pushes = cut_pushes(&tables.all, |number| places.get(&*tables.all[number].schema.name).copied());
    let steps = steps_of_cut(tables);
    let Some(directory) = tables.checkpoints.directory.clone() else {
        let text = "this server has no checkpoint directory: start it with --checkpoint DIR";
        return refuse(Refusal::Mismatch, text);
    };
    let mut writer =
        CutWriter::start(tables.checkpoints.executor.clone(), directory, mark.number, mark.level);
    let (mut shards, mut left) = (Vec::new(), Vec::new());
    for (number, table) in tables.all.numbered_mut() {
        let place = places.get(&*table.schema.name).copied();
        let (Some(own), Some(place)) = (table.shards.as_mut(), place) else { continue };
        let (floats, of, uid) = (own.schema().floats() as u32, own.schema().shards, own.identity().uid);
        for marked in own.mark_cut(CutReader::Checkpoint, &positions_of_bases(&mark.bases, place)) {
            let MarkedShard { position: Position { shard, birth, epoch, command, .. }, from, .. } = marked;
            let kind = if from == 0 { RowFileKind::Full } else { RowFileKind::Increment };
            let head =
                RowFileHead { number: mark.number, uid, table: place, shard, shards: of, floats, kind };
            writer.begin(head, marked.deletions, marked.sketch);
            left.push((CutFileId { table: number as u32, place, shard }, floats));
            shards.push(CutShardV1 { table: place, shard, birth, epoch, from, to: command });
        }
    }
    writer.begun();
    if let Some(cut) = &mut tables.checkpoints.cuts.cut {
        cut.writing = Some(Writing { writer, left, waiting: None });
    }
    Ok(CutReplyV1::Marked { shards, pushes, states, steps })
}

fn writing_progress(tables: &mut ServerTables) -> CutReplyV1 {
    let Some(writing) = tables.checkpoints.cuts.writing() else {
        return CutReplyV1::Failed { why: "the cut is not marked".into() };
    };
    writing.writer.look();
    match writing.writer.state() {
        &WriterState::Writing { rows, bytes } => CutReplyV1::Writing { rows, bytes },
        WriterState::Written(files) => CutReplyV1::Written { files: files.clone() },
        WriterState::Failed(why) => CutReplyV1::Failed { why: why.clone() },
    }
}

/// Answers a step of a cut.
fn send_cut_reply(frame: &Frame<'_>, reply: &[u8], transmit: &mut Transmit) -> RequestOutcome {
    Ok(transmit.send_copy(CutIsFrame {}.encode(frame.head.id), reply)?)
}
