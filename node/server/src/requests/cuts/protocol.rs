//! Cuts on one server thread: it holds pushes back and marks the cut. The file `slices.rs` then writes the rows
//! between requests. The documentation of gannet-worker's module
//! `checkpoint` has the protocol.

use crate::cuts::state::{ThreadCut, Writing};
use crate::cuts::writer::{CutFileId, CutWriter, WriterState};
use crate::limits::{CUT_PUSHES_MAX, FOLLOWERS_MAX};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::peers::pusher::{Pusher, is_data};
use crate::places::states::{RunStates, states_of_run};
use crate::requests::cuts::absent::{end_pushes, give_up, gone};
use crate::requests::cuts::follower::mark_for_follower;
use crate::requests::cuts::slices::end_cuts_of;
use crate::requests::cuts::tables::{cut_pushes, cut_steps, cut_tables, positions_of_bases};
use crate::requests::steps::pushes::settle;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use gannet_core::{CutReader, MarkedShard, Position, RowFileHead, RowFileKind};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::cuts::{CutFrame, CutIsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::limits::{CUT_FREEZE_MAX, CUT_MESSAGE_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::cuts::{
    CutActionV1, CutReplyV1, CutRequestV1, CutShardV1, CutStepV1, CutTableV1, MarkV1, PushLimitV1,
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
    let begin = |for_follower| ThreadCut {
        number: cut,
        run: run.clone(),
        session: pusher.session,
        for_follower,
        ..ThreadCut::default()
    };
    let reply = match action {
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
        CutActionV1::MarkForFollower(mark) => mark_for_follower(tables, &mark, states_of_run(&run, of))?,
        CutActionV1::Release => {
            release_pushes(tables, now);
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
    };
    let reply = control::seal(&reply);
    match tables.checkpoints.cuts.get_mut(cut) {
        Some(cut) if reply.len() > CUT_MESSAGE_BYTES_MAX => {
            let part = cut.parts.begin(reply);
            send_cut_reply(frame, &control::seal(&part), transmit)
        }
        _ => send_cut_reply(frame, &reply, transmit),
    }
}

/// The tables with shards here that are part of the cut.
pub(crate) fn covered_tables(tables: &ServerTables) -> Vec<u32> {
    let covered = tables.all.numbered().filter(|(_, table)| tables.checkpoints.cuts.covers(table));
    covered.map(|(number, _)| number as u32).collect()
}

/// Refuses to go on if a table of the cut was opened since its pushes are held back.
pub(crate) fn must_hold_all(tables: &ServerTables) -> Result<(), RequestFailure> {
    let held = |number: usize| tables.checkpoints.cuts.is_held(number as u32);
    let new = |(number, table): (usize, &ServerTable)| tables.checkpoints.cuts.covers(table) && !held(number);
    match tables.all.numbered().find(|&of| new(of)) {
        None => Ok(()),
        Some((_, table)) => refuse(
            Refusal::Cut,
            format!("table {:?} was opened since the cut began: begin again", table.schema.name),
        ),
    }
}

/// Refuses a step that needs a cut which is not released yet.
fn must_still_hold(tables: &ServerTables, cut: u64, action: &CutActionV1) -> Result<(), RequestFailure> {
    let needs = matches!(
        action,
        CutActionV1::Admit { .. }
            | CutActionV1::Mark(_)
            | CutActionV1::MarkForFollower(_)
            | CutActionV1::Torn { .. }
            | CutActionV1::GiveUp { .. }
    );
    let holds = tables.checkpoints.cuts.cut.as_ref().is_some_and(|held| held.number == cut);
    match needs && !holds {
        false => Ok(()),
        true => refuse(Refusal::Malformed, "the cut does not hold pushes back"),
    }
}

pub(crate) fn must_be_current(
    tables: &mut ServerTables,
    cut: u64,
    session: u32,
    now: Duration,
) -> Result<(), RequestFailure> {
    match tables.checkpoints.cuts.get_mut(cut) {
        Some(current) if current.session == session => {
            current.asked = now;
            Ok(())
        }
        _ => refuse(
            Refusal::Cut,
            format!(
                "thread {} has no cut {cut:016x} any more: the server was started again, the coordinator's \
                 connection was lost, or pushes were held back for too long; begin the checkpoint again",
                tables.thread()
            ),
        ),
    }
}

/// Begins a cut: holds back every push that no shard here has begun.
fn freeze_tables(
    tables: &mut ServerTables,
    begun: ThreadCut,
    ms: u32,
    now: Duration,
) -> Result<CutReplyV1, RequestFailure> {
    let cuts = &tables.checkpoints.cuts;
    // A checkpoint that is written lets a follower cut, and a follower that reads lets a checkpoint begin.
    let is_like = |cut: &&ThreadCut| cut.for_follower == begun.for_follower;
    let others: Vec<&ThreadCut> = cuts.released.iter().filter(is_like).chain(&cuts.cut).collect();
    let is_busy = |cut: &&&ThreadCut| cut.session != begun.session && cut.is_busy(now);
    let busy: Vec<&&ThreadCut> = others.iter().filter(is_busy).collect();
    let held = cuts.cut.as_ref().filter(|cut| cut.session != begun.session && cut.is_busy(now));
    if let Some(cut) = held.or_else(|| busy.first().map(|cut| **cut).filter(|_| !begun.for_follower)) {
        let text =
            format!("thread {} already writes cut {:016x}: try again later", tables.thread(), cut.number);
        return refuse(Refusal::Cut, text);
    }
    if begun.for_follower && busy.len() >= FOLLOWERS_MAX {
        let text = format!(
            "thread {} has {FOLLOWERS_MAX} followers that read now, the limit: try again later, or let a follower \
             follow another one",
            tables.thread()
        );
        return refuse(Refusal::Cut, text);
    }
    let is_over = |cut: &&ThreadCut| cut.session == begun.session || !cut.is_busy(now);
    let over: Vec<u64> = others.into_iter().filter(is_over).map(|cut| cut.number).collect();
    over.into_iter().for_each(|number| end_cut(tables, number, now));
    let until = Some(now + Duration::from_millis(u64::from(ms)).min(CUT_FREEZE_MAX));
    tables.checkpoints.cuts.cut = Some(ThreadCut { until, since: now, asked: now, ..begun });
    admit_begun(tables);
    frozen(tables)
}

/// Lets in the pushes that a shard here has begun, and the steps that are applied.
fn admit_begun(tables: &mut ServerTables) {
    let Some(cut) = &mut tables.checkpoints.cuts.cut else { return };
    for (number, table) in tables.all.numbered() {
        let number = number as u32;
        let Some(shards) = table.shards.as_ref().filter(|_| cut.covers(table)) else { continue };
        cut.tables.insert(number);
        for push in shards.push_progress() {
            let admitted = cut.admitted.entry((number, push.pusher)).or_default();
            *admitted = (*admitted).max((push.incarnation, push.seq));
        }
        if let Some((at, _)) = cut_steps(table) {
            cut.steps.insert(number, at);
        }
    }
}

/// What this thread has while it holds pushes back.
fn frozen(tables: &ServerTables) -> Result<CutReplyV1, RequestFailure> {
    let covered =
        |table: &&ServerTable| tables.checkpoints.cuts.cut.as_ref().is_some_and(|cut| cut.covers(table));
    let named = || tables.all.iter().filter(covered);
    let parts: Vec<CutTableV1> = named().flat_map(cut_tables).collect();
    let mut places = HashMap::new();
    for (table, place) in parts.iter().zip(0..) {
        // A table whose shards are in different steps is there twice.
        places.entry(&*table.name).or_insert(place);
    }
    let place = |number: usize| places.get(&*tables.all[number].schema.name).copied();
    let pushes = cut_pushes(&tables.all, place);
    if pushes.len() > CUT_PUSHES_MAX {
        let text = format!(
            "thread {} knows {} pushers, and a cut can have {CUT_PUSHES_MAX}: let earlier runs finish, or drop \
             their tables",
            tables.thread(),
            pushes.len()
        );
        return refuse(Refusal::Limit, text);
    }
    let held = tables.checkpoints.cuts.cut.iter().flat_map(|cut| &cut.held);
    let limit = |(&(table, pusher), &(incarnation, seq)): (&(u32, u64), &(u64, u64))| {
        // A table may have been dropped meanwhile.
        let table = tables.all.get(table as usize)?.schema.name.clone();
        Some(PushLimitV1 { table, pusher, incarnation, seq })
    };
    let held = held.filter_map(limit).collect();
    let closing = tables.checkpoints.cuts.cut.iter().flat_map(|cut| &cut.closing).copied().collect();
    Ok(CutReplyV1::Frozen { tables: parts, pushes, held, closing, over: Vec::new() })
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

/// The step of each table of the cut; 0: it is not in synchronous steps.
pub(crate) fn steps_of_cut(tables: &ServerTables) -> Vec<CutStepV1> {
    let covered = tables.all.iter().filter(|table| tables.checkpoints.cuts.covers(table));
    let steps = covered.flat_map(cut_tables);
    steps.map(|table| CutStepV1 { table: table.name, step: table.step.unwrap_or(0) }).collect()
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

/// Lets all pushes and steps in.
fn release_pushes(tables: &mut ServerTables, now: Duration) {
    let counters = &tables.counters.threads[tables.home.thread as usize].cuts;
    if let Some(cut) = &mut tables.checkpoints.cuts.cut {
        if cut.until.is_some() {
            counters.held.observe(now.saturating_sub(cut.since), 1);
        }
        (cut.until, cut.admitted, cut.held) = (None, HashMap::new(), HashMap::new());
    }
    let released = tables.checkpoints.cuts.cut.take();
    tables.checkpoints.cuts.released.extend(released);
    tables.all.numbers().into_iter().for_each(|number| settle(tables, number));
    tables.waits.group_changed = true;
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

/// Forgets a cut, whatever its state is.
pub(crate) fn end_cut(tables: &mut ServerTables, number: u64, now: Duration) {
    let Some(cut) = tables.checkpoints.cuts.take(number) else { return };
    let counters = &tables.counters.threads[tables.home.thread as usize].cuts;
    if cut.until.is_some() {
        counters.held.observe(now.saturating_sub(cut.since), 1);
    }
    if !cut.for_follower {
        let outcome = if cut.is_written() { &counters.written } else { &counters.given_up };
        outcome.add(1);
        counters.saved_bytes.set(0);
    }
    end_cuts_of(&mut tables.all, cut.reader());
    tables.all.numbers().into_iter().for_each(|number| settle(tables, number));
    tables.waits.group_changed = true;
}

/// The session of a coordinator or of a follower has ended.
pub(crate) fn end_cut_of(tables: &mut ServerTables, session: u32, now: Duration) {
    for number in tables.checkpoints.cuts.of_session(session) {
        let is_lost = |cut: &mut ThreadCut| !cut.for_follower && !cut.is_written();
        if tables.checkpoints.cuts.get_mut(number).is_some_and(is_lost) {
            tracing::warn!(thread = tables.thread(), "a checkpoint was given up: its coordinator has gone");
        }
        end_cut(tables, number, now);
    }
}

/// Gives up a cut that has held pushes back for too long.
pub(crate) fn expire_cut(tables: &mut ServerTables, now: Duration) {
    let expired = |cut: &&ThreadCut| cut.until.is_some_and(|until| now >= until);
    if let Some(cut) = tables.checkpoints.cuts.cut.as_ref().filter(expired) {
        let (number, what) = (cut.number, if cut.for_follower { "follower's cut" } else { "checkpoint" });
        tracing::warn!(thread = tables.thread(), "a {what} was given up: it held pushes back for too long");
        end_cut(tables, number, now);
    }
}

/// When pushes that are held back must be let in.
pub(crate) fn cut_expires(tables: &ServerTables) -> Duration {
    tables.checkpoints.cuts.cut.as_ref().and_then(|cut| cut.until).unwrap_or(Duration::MAX)
}

/// Answers a step of a cut.
fn send_cut_reply(frame: &Frame<'_>, reply: &[u8], transmit: &mut Transmit) -> RequestOutcome {
    Ok(transmit.send_copy(CutIsFrame {}.encode(frame.head.id), reply)?)
}
