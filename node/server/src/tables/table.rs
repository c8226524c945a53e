//! A thread's part of a table, and the workers that keep step over it.

use crate::counters::table::TableCounters;
use crate::limits::CLOCK_MAX;
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::steps::clocks::{Clocks, JoinError, Joiner};
use crate::steps::group::Group;
use crate::steps::step_budget::StepBudgetShare;
use crate::steps::step_files;
use crate::steps::step_files::{RecoveredSteps, StepFiles};
use crate::steps::step_merge::StepMerge;
use crate::steps::step_sums::{NextStep, StepSums};
use crate::tables::regions::Regions;
use gannet_core::{
    Eviction, Evictor, NO_CLOCK, PushName, Schema, ShardSet, Shards, TableIdentity, Write, hash, shard_of,
};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_wire::messages::control::JoinV1;
use gannet_wire::refusal::{REPLACED, Refusal};
use gannet_wire::share_pushers::AGGREGATE;
use gannet_wire::sync::{SyncConfig, SyncMode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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
    pub(crate) fn check_push(&self, write: Write, keys: &[u64]) -> RequestOutcome {
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
                    let applied = step_files::apply_step(shards, &sum, AGGREGATE);
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

/// A thread's part of a table.
pub(crate) struct ServerTable {
    pub(crate) schema: Schema,
    /// The table's id, and which of its servers this server is.
    pub(crate) identity: TableIdentity,
    /// The shards of this thread.
    pub(crate) own: ShardSet,
    /// The memory that peers may READ. Declared before the shards, so it is dropped before them.
    pub(crate) regions: Regions,
    /// `None` if this thread owns no shard of the table.
    pub(crate) shards: Option<Shards>,
    /// The workers that keep step over the table.
    pub(crate) group: Option<Group>,
    /// The steps that were recovered when the images were opened.
    pub(crate) recovered: RecoveredSteps,
    /// The files that hold a step while it is applied.
    pub(crate) step_files: Option<StepFiles>,
    pub(crate) counters: Arc<TableCounters>,
    /// What evicts rows, if a worker has said that rows may die.
    pub(crate) evictor: Option<Evictor>,
}

impl ServerTable {
    /// The table's id, and which of its servers this server is.
    pub(crate) fn identity(&self) -> TableIdentity {
        self.identity
    }

    /// From now on these rows may die.
    ///
    /// # Errors
    /// The settings make no sense for this table.
    pub(crate) fn evict(&mut self, eviction: Eviction) -> RequestOutcome {
        if self.evictor.as_ref().is_some_and(|evictor| *evictor.eviction() == eviction) {
            return Ok(());
        }
        match Evictor::new(eviction, &self.schema) {
            Ok(evictor) => self.evictor = Some(evictor),
            Err(error) => return refuse(Refusal::Mismatch, error.to_string()),
        }
        tracing::info!(table = self.schema.name, ?eviction, "rows of the table may die");
        Ok(())
    }

    /// Whether pushes wait for their step. Then no row may die: the workers have computed them from the rows as they
    /// are.
    pub(crate) fn keeps_pushes(&self) -> bool {
        let sums = self.group.as_ref().and_then(|group| group.sums.as_ref());
        sums.is_some_and(|sums| sums.bytes() > 0)
    }

    /// Updates the gauges of the table's size.
    pub(crate) fn publish(&self) {
        if let Some(shards) = &self.shards {
            self.counters.note(shards);
        }
    }
}
