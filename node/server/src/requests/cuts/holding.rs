//! How a thread holds pushes back for a cut, lets them in again, and forgets the cut.

use crate::cuts::state::ThreadCut;
use crate::limits::{CUT_PUSHES_MAX, FOLLOWER_FREEZE_MAX, FOLLOWERS_MAX};
use crate::peers::outcome::{RequestFailure, refuse};
use crate::requests::cuts::slices::end_cuts_of;
use crate::requests::cuts::tables::{cut_pushes, cut_steps, cut_tables};
use crate::requests::steps::pushes::settle;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use gannet_wire::limits::CUT_FREEZE_MAX;
use gannet_wire::messages::cuts::{CutActionV1, CutReplyV1, CutTableV1, PushLimitV1};
use gannet_wire::refusal::Refusal;
use std::collections::HashMap;
use std::time::Duration;

/// Begins a cut: holds back every push that no shard here has begun.
pub(crate) fn freeze_tables(
    tables: &mut ServerTables,
    begun: ThreadCut,
    ms: u32,
    now: Duration,
) -> Result<CutReplyV1, RequestFailure> {
    let cuts = &tables.checkpoints.cuts;
    // A checkpoint that is written lets followers cut, and followers that read let a checkpoint begin.
    let is_like = |cut: &&ThreadCut| cut.for_follower == begun.for_follower;
    let like: Vec<&ThreadCut> = cuts.released.iter().filter(is_like).collect();
    let is_over = |cut: &ThreadCut| cut.session == begun.session || !cut.is_busy(now);
    let busy = like.iter().filter(|cut| !is_over(cut)).count();
    let holds = cuts.cut.as_ref().is_some_and(|cut| !is_over(cut));
    if holds || (busy > 0 && !begun.for_follower) {
        let text = format!("thread {} already takes a cut: try again later", tables.thread());
        return refuse(Refusal::Cut, text);
    }
    if busy >= FOLLOWERS_MAX {
        let text = format!(
            "thread {} has {FOLLOWERS_MAX} followers that read now, the limit: try again later, or let a follower \
             follow another one",
            tables.thread()
        );
        return refuse(Refusal::Cut, text);
    }
    let over = like.into_iter().filter(|cut| is_over(cut)).chain(&cuts.cut);
    let over: Vec<u64> = over.map(|cut| cut.number).collect();
    over.into_iter().for_each(|number| end_cut(tables, number, now));
    let most = if begun.for_follower { FOLLOWER_FREEZE_MAX } else { CUT_FREEZE_MAX };
    let until = Some(now + Duration::from_millis(u64::from(ms)).min(most));
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
pub(crate) fn frozen(tables: &ServerTables) -> Result<CutReplyV1, RequestFailure> {
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

/// Lets all pushes and steps in.
pub(crate) fn release_pushes(tables: &mut ServerTables, number: u64, now: Duration) {
    let counters = &tables.counters.threads[tables.home.thread as usize].cuts;
    // While the layout of servers changes, a thread may be asked twice.
    if tables.checkpoints.cuts.cut.as_ref().is_none_or(|held| held.number != number) {
        return;
    }
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
pub(crate) fn must_still_hold(
    tables: &ServerTables,
    cut: u64,
    action: &CutActionV1,
) -> Result<(), RequestFailure> {
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
                 connection was lost, or pushes were held back for too long: begin again",
                tables.thread()
            ),
        ),
    }
}
