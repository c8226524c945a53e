//! The workers that keep step over a table, on one thread: joins, ticks and leaves, pulls that wait, and (BSP) the
//! pushes that are stored until their step is applied. clocks.rs and step_sums.rs decide without touching a shard. This
//! file applies their decisions to the shards.

use crate::requests::group_requests;
use crate::limits::CLOCK_MAX;
use crate::requests::bulk::{BulkReply, Pusher, RequestFailure, RequestOutcome, refuse};
use crate::steps::clocks::{Clocks, JoinError, Joiner};
use crate::steps::step_budget::StepBudgetShare;
use crate::steps::step_files;
use crate::steps::step_files::StepFiles;
use crate::steps::step_merge::StepMerge;
use crate::steps::step_sums::{IncomingPush, KeepOutcome, NextStep, StepAdmission, StepSums};
use crate::tables::server_tables::{ServerTable, ServerTables};
use gannet_core::{DATA_PUSHERS, NO_CLOCK, PushName, Write, hash, shard_of};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_wire::messages::control::JoinV1;
use gannet_wire::refusal::{REPLACED, Refusal};
use gannet_wire::share_pushers::AGGREGATE;
use gannet_wire::sync::{SyncConfig, SyncMode};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whether this is a pusher of data: pushes can be named by the data that they come from.
pub(crate) fn is_data(pusher: u64) -> bool {
    (DATA_PUSHERS..AGGREGATE).contains(&pusher)
}

pub(crate) struct Group {
    pub(crate) clocks: Clocks,
    /// The pushes of the steps that are not applied (BSP only).
    pub(crate) sums: Option<StepSums>,
    /// The lowest clock that the images have.
    published_clock: u64,
    /// How long the group waits for a worker that sends nothing, or makes no progress.
    pub(crate) limits: WorkerLimits,
    /// It does not go on without a dead worker.
    pub(crate) strict: bool,
    /// When the group began, on the clock of the failure detector.
    pub(crate) since: Duration,
    /// For each worker that others wait for and of which nothing was heard here: the incarnation that they asked for,
    /// and when they first did, on that clock.
    pub(crate) asked: BTreeMap<u32, (u64, Duration)>,
}

impl Group {
    /// The clock of the rows: all steps below it are in the rows, of all workers that count.
    pub(crate) fn lowest(&self) -> u64 {
        self.sums.as_ref().map_or_else(|| self.clocks.lowest(), StepSums::at)
    }

    /// Whether a pull at this clock can be answered now.
    pub(crate) fn may_pull(&self, clock: u64) -> bool {
        match &self.sums {
            Some(sums) => sums.at() >= clock,
            None => self.clocks.may_pull(clock),
        }
    }
}

impl ServerTable {
    /// A new group. `share` makes its share of the step budget.
    fn new_group(&self, member: &SyncConfig, share: impl Fn() -> StepBudgetShare, since: Duration) -> Group {
        let sums = member.mode.is_bsp().then(|| StepSums::after(&self.recovered).with_share(share()));
        let begin = sums.as_ref().map_or(0, StepSums::at);
        let (limits, strict) = (WorkerLimits::of(member.worker_timeout), member.strict);
        let (clocks, asked) = (Clocks::new(member, begin), BTreeMap::new());
        Group { clocks, sums, published_clock: NO_CLOCK, limits, strict, since, asked }
    }

    /// Adds a worker to the group. Returns its clock here. `since` is the time on the clock of the failure detector.
    pub(crate) fn join(
        &mut self,
        joiner: Joiner,
        request: &JoinV1,
        share: impl Fn() -> StepBudgetShare,
        since: Duration,
    ) -> Result<u64, RequestFailure> {
        let member = match SyncConfig::of(request) {
            Ok(member) => member,
            Err(text) => return refuse(Refusal::Malformed, text),
        };
        let clock = (request.clock != NO_CLOCK).then_some(request.clock);
        if clock.is_some_and(|clock| clock > CLOCK_MAX) {
            return refuse(
                Refusal::Malformed,
                format!("clock {} is above the limit, {CLOCK_MAX}", request.clock),
            );
        }
        let refusal = |why| match why {
            JoinError::Mismatch(text) => RequestFailure::Refused(Refusal::Mismatch, text),
            JoinError::Fenced(text) => RequestFailure::Refused(Refusal::Fenced, text),
        };
        if let Some(shards) = &mut self.shards {
            let introduced = shards.introduce_pusher(joiner.pusher, joiner.incarnation);
            introduced
                .map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
            let newer = |status: &gannet_core::PusherStatus| {
                status.pusher == joiner.pusher && status.incarnation > joiner.incarnation
            };
            if shards.pushers().iter().any(newer) {
                return refuse(Refusal::Fenced, format!("worker {}: {REPLACED}", joiner.rank));
            }
        }
        let mut group = match self.group.take() {
            Some(group) => group,
            None => self.new_group(&member, &share, since),
        };
        let checked = group.clocks.check(&member);
        if group.clocks.is_over() && (clock.is_none() || checked.is_err()) {
            // No worker of the old group is left. Nothing of it belongs to the new group.
            let begin = group.lowest();
            match (&mut group.sums, member.mode.is_bsp()) {
                (Some(sums), true) => sums.restart(),
                _ => group = self.new_group(&member, &share, since),
            }
            (group.clocks, group.since, group.asked) = (Clocks::new(&member, begin), since, BTreeMap::new());
            (group.limits, group.strict) = (WorkerLimits::of(member.worker_timeout), member.strict);
        } else if let Err(why) = checked {
            self.group = Some(group);
            return Err(refusal(why));
        }
        let least = group.sums.as_ref().map_or(0, StepSums::entry);
        let joined = group.clocks.join(joiner, clock, least);
        if joined.is_ok() && clock.is_some() {
            group.clocks.believe_left(request.left);
        }
        if let (Ok(joined), Some(sums)) = (&joined, &mut group.sums) {
            sums.join(joiner.rank, *joined, clock.is_none());
        }
        self.group = Some(group);
        joined.map_err(refusal)
    }

    /// Refuses rows that could not be applied with their step.
    fn check_push(&self, write: Write, keys: &[u64]) -> RequestOutcome {
        let ServerTable { shards: Some(shards), schema, .. } = self else {
            return refuse(Refusal::WrongShard, "this thread owns no shard of the table");
        };
        if write == Write::Change && !schema.replays() {
            let text = format!("table {:?} takes no changes of state", schema.name);
            return refuse(Refusal::Malformed, text);
        }
        if matches!(write, Write::Row | Write::Delete) {
            let text = format!(
                "rows of table {:?} replaced or deleted in a synchronous step: do it from a worker that has not joined \
                 the table",
                schema.name
            );
            return refuse(Refusal::Malformed, text);
        }
        if write == Write::Damped {
            return refuse(
                Refusal::Malformed,
                "damped changes of state in a synchronous step, whose changes are averaged",
            );
        }
        let (own, mut last) = (shards.set(), 0);
        for &key in keys {
            let shard = shard_of(hash(key), schema.shards);
            if !own.contains(shard) {
                return refuse(
                    Refusal::WrongShard,
                    format!("key {key} belongs to shard {shard}, this thread owns only {own}"),
                );
            }
            if shard < last {
                return refuse(Refusal::Malformed, "the keys are not in ascending order of shard");
            }
            last = shard;
        }
        Ok(())
    }

    /// Applies the steps that are complete, up to a cut's `limit`, and writes the lowest clock to the images. Returns
    /// `true` if something has happened that requests may wait for.
    pub(crate) fn advance(&mut self, limit: Option<u64>) -> bool {
        let ServerTable {
            group: Some(group), shards, step_files: files, recovered, schema, counters, ..
        } = self
        else {
            return false;
        };
        let before = group.sums.as_ref().map(|sums| (sums.at(), sums.bytes()));
        let mut failed = false;
        if let (Some(sums), SyncMode::Bsp(together)) = (&mut group.sums, group.clocks.mode) {
            let floats = |write| schema.write_floats(write);
            let how = StepMerge { merge: together.merge, floats, shards: schema.shards };
            loop {
                if limit.is_some_and(|limit| sums.at() >= limit) {
                    break;
                }
                let has = |shard, name: &PushName| shards.as_mut().is_some_and(|here| here.has(shard, name));
                let NextStep::Step(sum) = sums.next(&group.clocks, together.aggregate, &how, has) else {
                    break;
                };
                let Some(sum) = sum else {
                    sums.pass(&group.clocks);
                    if let Some((files, shards)) = files.as_mut().zip(shards.as_ref()) {
                        files.pass(shards, sums.at(), sums.masks_before());
                    }
                    continue;
                };
                let Some(shards) = shards.as_mut().filter(|_| sums.is_of_one_kind()) else {
                    let why = "the workers pushed both gradients and changes of state in one step";
                    sums.refused(Refusal::Mismatch, why.into());
                    failed = true;
                    break;
                };
                let written = files.as_mut().map_or(Ok(()), |files| files.write(shards, &sum, sums.masks()));
                let applied = written.map_err(|text| (Refusal::NoSpace, text)).and_then(|()| {
                    let applied = step_files::apply(shards, &sum, AGGREGATE);
                    applied.map_err(|error| (Refusal::of_push(&error), error.to_string()))
                });
                match applied {
                    Ok(applied) => {
                        counters.count(&applied);
                        sums.applied();
                        files.iter_mut().for_each(StepFiles::applied);
                    }
                    Err((refusal, text)) => {
                        tracing::warn!(
                            table = schema.name,
                            step = sum.step,
                            text,
                            "a step cannot be applied"
                        );
                        sums.failed(sum, refusal, text);
                        failed = true;
                        break;
                    }
                }
            }
            *recovered = sums.to_recover();
            counters.kept_bytes.set(sums.bytes() as u64);
        }
        let lowest = group.lowest();
        let previous_clock = std::mem::replace(&mut group.published_clock, lowest);
        if previous_clock != lowest
            && let Some(shards) = shards
        {
            shards.set_lowest(lowest);
        }
        let after = group.sums.as_ref().map(|sums| (sums.at(), sums.bytes()));
        previous_clock != lowest || before != after || failed
    }
}

pub(crate) fn numbered(tables: &mut ServerTables, number: u32) -> Result<&mut ServerTable, RequestFailure> {
    match tables.all.get(number as usize) {
        Some(_) => Ok(&mut tables.all[number as usize]),
        None => tables.all.refuse_number(number),
    }
}

/// Advances a table's group after a change.
pub(crate) fn settle(tables: &mut ServerTables, number: usize) {
    let limit = tables.cuts.step_limit(number as u32);
    if let Some(table) = tables.all.get_mut(number) {
        tables.group_changed |= table.advance(limit);
    }
}

/// The clock of the slowest worker, of those that keep step over a table.
pub(crate) fn lowest(tables: &ServerTables, table: u32) -> Option<u64> {
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
    let (group, rank) = group_requests::member(tables, number, pusher)?;
    let (own_clock, mode) = (group.clocks.ranks[rank as usize].clock, group.clocks.mode);
    if clock.saturating_sub(own_clock) > mode.ahead_max() {
        let text =
            format!("a pull at clock {clock} of a worker at clock {own_clock} would wait for itself");
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
    pusher: &Pusher,
) -> Result<BulkReply, RequestFailure> {
    let &IncomingPush { write, keys, values, name, ends, .. } = push;
    let floats = values.len() / keys.len().max(1);
    numbered(tables, number)?.check_push(write, keys)?;
    let (group, rank) = group_requests::member(tables, number, pusher)?;
    // Where a step does not wait for all workers, a shard may drop a push that another shard has. Nobody sends it
    // again, so a cut must not wait for it.
    let total = if group.clocks.leaves_out() { 0 } else { push.total };
    let push = &IncomingPush { total, ..*push };
    let step = group.clocks.ranks[rank as usize].clock;
    let Some(sums) = &mut group.sums else { return refuse(Refusal::Unknown, "no synchronous group") };
    let rows = keys.len() as u32;
    if step < sums.at() {
        note_missed(tables, number, rank, step, push);
        return Ok(BulkReply::Later { table: number, step, rows, not_finite: 0 });
    }
    let sound = |row: &[f32]| row.iter().all(|value| value.is_finite());
    let bad = values.chunks_exact(floats.max(1)).filter(|row| !sound(row)).count();
    let admission = if bad == 0 {
        sums.store(rank, step, push)
    } else {
        // One worker's NaN must not spoil the others' sum.
        let good = || keys.iter().zip(values.chunks_exact(floats)).filter(|(_, row)| sound(row));
        let keys: Vec<u64> = good().map(|(&key, _)| key).collect();
        let values: Vec<f32> = good().flat_map(|(_, row)| row.iter().copied()).collect();
        sums.store(rank, step, &IncomingPush { write, keys: &keys, values: &values, name, total, ends })
    };
    match admission {
        StepAdmission::Kept => Ok(BulkReply::Later { table: number, step, rows, not_finite: bad as u32 }),
        StepAdmission::Later => {
            tables.memory_short = true;
            Err(RequestFailure::Parked(number))
        }
        StepAdmission::Full => {
            let most =
                tables.step_budget.as_ref().map_or(crate::limits::BSP_BYTES_MAX, |budget| budget.max());
            let text = format!(
                "there is no memory for the pushes of this step: a server stores at most {most} bytes for \
                 synchronous steps, and guarantees half of that to one thread; use a smaller --batch, or a larger \
                 --memory-limit"
            );
            refuse(Refusal::Limit, text)
        }
        StepAdmission::Mixed => {
            let text =
                "a step has both gradients and changes of state, or only some rows have names of data";
            refuse(Refusal::Malformed, text)
        }
    }
}

/// Notes a push for a step that is already applied. Earlier threads of this server may each have made that step
/// with other workers, so only the shards know whether they have the push.
fn note_missed(tables: &mut ServerTables, number: u32, rank: u32, step: u64, push: &IncomingPush<'_>) {
    let Some(ServerTable { shards: Some(shards), group: Some(Group { sums: Some(sums), .. }), .. }) =
        tables.all.get_mut(number as usize)
    else {
        return;
    };
    let lacks = |name: PushName| {
        push.ends.iter().any(|&(shard, row)| !shards.has(shard, &PushName { row, ..name }))
    };
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
    let clock =
        |group: &Group| group.clocks.ranks.get(pusher.rank(number)? as usize).map(|rank| rank.clock);
    group.and_then(clock).is_some_and(|clock| clock > step)
}

/// Counts the rows of a late push.
pub(crate) fn count_late(tables: &ServerTables, number: u32, rows: u32) {
    if let Some(table) = tables.all.get(number as usize) {
        table.counters.late_rows.add(u64::from(rows));
    }
}
