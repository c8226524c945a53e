//! Pushes and pulls of workers that keep step: what waits for a step, and what becomes of it.

use crate::peers::outcome::{BulkReply, RequestFailure, refuse};
use crate::peers::pusher::Pusher;
use crate::requests::steps::joins;
use crate::server_tables::ServerTables;
use crate::steps::group::Group;
use crate::steps::step::{IncomingPush, StepAdmission};
use crate::steps::step_sums::KeepOutcome;
use crate::tables::table::ServerTable;
use gannet_core::{Applied, NO_CLOCK, PushName, ReadAt, is_refused};
use gannet_wire::refusal::Refusal;

pub(crate) fn numbered(tables: &mut ServerTables, number: u32) -> Result<&mut ServerTable, RequestFailure> {
    match tables.all.get(number as usize) {
        Some(_) => Ok(&mut tables.all[number as usize]),
        None => tables.all.refuse_number(number),
    }
}

/// Advances a table's group after a change.
pub(crate) fn settle(tables: &mut ServerTables, number: usize) {
    let limit = tables.checkpoints.cuts.step_limit(number as u32);
    if let Some(table) = tables.all.get_mut(number) {
        tables.waits.group_changed |= table.advance(limit);
    }
}

/// The clock of the slowest worker, of those that keep step over a table.
pub(crate) fn lowest_step(tables: &ServerTables, table: u32) -> Option<u64> {
    let lowest = tables.all.get(table as usize)?.group.as_ref()?.lowest();
    (lowest != NO_CLOCK).then_some(lowest)
}

/// The lowest clock of the group, if a pull at this clock can be answered now.
pub(crate) fn admit_pull(
    tables: &mut ServerTables,
    number: u32,
    clock: u64,
    pusher: &Pusher,
) -> Result<u64, RequestFailure> {
    let (group, rank) = joins::member(tables, number, pusher)?;
    let (own_clock, mode) = (group.clocks.ranks[rank as usize].clock, group.clocks.mode);
    if clock.saturating_sub(own_clock) > mode.ahead_max() {
        let text = format!("a pull at clock {clock} of a worker at clock {own_clock} would wait for itself");
        return refuse(Refusal::Malformed, text);
    }
    if group.may_pull(clock) { Ok(group.lowest()) } else { Err(RequestFailure::Parked(number)) }
}

/// Stores a push until its step is applied. Used when the table's workers train synchronously and the session's
/// worker is one of them.
pub(crate) fn store_push(
    tables: &mut ServerTables,
    number: u32,
    push: &IncomingPush<'_>,
    since: Option<ReadAt>,
    pusher: &Pusher,
) -> Result<BulkReply, RequestFailure> {
    let table = numbered(tables, number)?;
    table.check_push(push.write, push.keys)?;
    // No row dies while a step has pushes, so what holds now holds when the step is applied.
    let marked = table
        .shards
        .as_ref()
        .zip(since)
        .and_then(|(shards, since)| shards.refuse_changes(since, push.keys, push.values));
    let push = &IncomingPush { values: marked.as_deref().unwrap_or(push.values), ..*push };
    let &IncomingPush { write, keys, values, name, ends, .. } = push;
    let floats = values.len() / keys.len().max(1);
    let (group, rank) = joins::member(tables, number, pusher)?;
    // Where a step does not wait for all workers, a shard may drop a push that another shard has. Nobody sends it
    // again, so a cut must not wait for it.
    let total = if group.clocks.leaves_out() { 0 } else { push.total };
    let push = &IncomingPush { total, ..*push };
    let step = group.clocks.ranks[rank as usize].clock;
    let Some(sums) = &mut group.sums else { return refuse(Refusal::Unknown, "no synchronous group") };
    let rows = keys.len() as u32;
    if step < sums.at() {
        note_missed(tables, number, rank, step, push);
        return Ok(BulkReply::Later { table: number, step, rows, dropped: Applied::default() });
    }
    let sound = |row: &[f32]| row.iter().all(|value| value.is_finite());
    let (mut dropped, all) = (Applied::default(), values.chunks_exact(floats.max(1)));
    for row in all.filter(|row| !sound(row)) {
        *(if is_refused(row) { &mut dropped.refused } else { &mut dropped.not_finite }) += 1;
    }
    let admission = if dropped == Applied::default() {
        sums.store(rank, step, push)
    } else {
        // One worker's NaN must not spoil the others' sum, and a change of a row that has died holds for no other row.
        let good = || keys.iter().zip(values.chunks_exact(floats)).filter(|(_, row)| sound(row));
        let keys: Vec<u64> = good().map(|(&key, _)| key).collect();
        let values: Vec<f32> = good().flat_map(|(_, row)| row.iter().copied()).collect();
        sums.store(rank, step, &IncomingPush { write, keys: &keys, values: &values, name, total, ends })
    };
    match admission {
        StepAdmission::Kept => {
            numbered(tables, number)?.counters.pushed.refused.add(u64::from(dropped.refused));
            Ok(BulkReply::Later { table: number, step, rows, dropped })
        }
        StepAdmission::Later => {
            tables.waits.memory_short = true;
            Err(RequestFailure::Parked(number))
        }
        StepAdmission::Full => {
            let most =
                tables.waits.budget.as_ref().map_or(crate::limits::BSP_BYTES_MAX, |budget| budget.max());
            let text = format!(
                "there is no memory for the pushes of this step: a server stores at most {most} bytes for \
                 synchronous steps, and guarantees half of that to one thread; use a smaller --batch, or a larger \
                 --memory-limit"
            );
            refuse(Refusal::Limit, text)
        }
        StepAdmission::Mixed => {
            let text = "a step has both gradients and changes of state, or only some rows have names of data";
            refuse(Refusal::Malformed, text)
        }
    }
}

/// Notes a push for a step that is already applied. Earlier threads of this server may each have made that step
/// with other workers, so only the shards know whether they have the push.
pub(crate) fn note_missed(
    tables: &mut ServerTables,
    number: u32,
    rank: u32,
    step: u64,
    push: &IncomingPush<'_>,
) {
    let Some(ServerTable { shards: Some(shards), group: Some(Group { sums: Some(sums), .. }), .. }) =
        tables.all.get_mut(number as usize)
    else {
        return;
    };
    let lacks =
        |name: PushName| push.ends.iter().any(|&(shard, row)| !shards.has(shard, &PushName { row, ..name }));
    if push.name.is_some_and(lacks) {
        sums.was_without(rank, step);
    }
}

/// Whether the workers of a table train in synchronous steps.
pub(crate) fn is_synchronous(tables: &ServerTables, number: u32) -> bool {
    let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
    group.is_some_and(|group| group.sums.is_some())
}

/// Whether pushes of this session to this table wait for their step.
pub(crate) fn stores_pushes(tables: &ServerTables, number: u32, pusher: &Pusher) -> bool {
    let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
    group.is_some_and(|group| group.sums.is_some()) && pusher.rank(number).is_some()
}

/// The outcome of a push that was stored.
pub(crate) fn outcome(tables: &ServerTables, number: u32, step: u64, pusher: &Pusher) -> KeepOutcome {
    let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
    match (group.and_then(|group| group.sums.as_ref()), pusher.rank(number)) {
        (Some(sums), Some(rank)) => sums.outcome(rank, step),
        _ => KeepOutcome::Refused(
            Refusal::Blocked,
            "the workers of this push no longer keep step over the table".into(),
        ),
    }
}

/// Whether the session's worker has passed this step over a table.
pub(crate) fn is_past(tables: &ServerTables, number: u32, step: u64, pusher: &Pusher) -> bool {
    let group = tables.all.get(number as usize).and_then(|table| table.group.as_ref());
    let clock = |group: &Group| group.clocks.ranks.get(pusher.rank(number)? as usize).map(|rank| rank.clock);
    group.and_then(clock).is_some_and(|clock| clock > step)
}

/// Counts the rows of a late push.
pub(crate) fn count_late(tables: &ServerTables, number: u32, rows: u32) {
    if let Some(table) = tables.all.get(number as usize) {
        table.counters.late_rows.add(u64::from(rows));
    }
}
