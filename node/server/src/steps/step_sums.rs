//! The pushes of a synchronous group (BSP) for steps that are not applied, and how the pushes of a step become one
//! push. Plain state, no I/O: the caller applies the step, and always the whole step (step_files.rs).
//!
//! A shard may already have a push that is named by its data, because another worker pushed it before. The step leaves
//! out such a push.

#[cfg(test)]
#[path = "step_sums_tests.rs"]
mod tests;

use crate::limits::BSP_STEPS_REMEMBERED;
use crate::steps::clocks::Clocks;
use crate::steps::step::{DataNames, IncomingPush, StepAdmission, StepSum, WorkerStep};
use crate::steps::step_budget::StepBudgetShare;
use crate::steps::step_files::RecoveredSteps;
use crate::steps::step_merge::{StepMerge, UnappliedStep, merge_rows, unapplied_rows};
use gannet_core::{PushName, Write};
use gannet_wire::refusal::Refusal;
use std::collections::{BTreeMap, VecDeque};

/// The outcome of a push that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeepOutcome {
    /// Its step is not applied yet.
    Waits,
    Applied,
    /// Its step was applied without it.
    Late,
    Refused(Refusal, String),
}

/// What to do about the next step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NextStep {
    /// Wait for other workers.
    Wait,
    /// Apply it. `None`: nobody pushed anything, or the shards have all of it.
    Step(Option<StepSum>),
}

#[derive(Debug, Default)]
pub(crate) struct StepSums {
    /// The first step that is not applied.
    at: u64,
    pending: BTreeMap<(u64, u32), WorkerStep>,
    /// The workers that have finished a step, a bit each, by step.
    completed: BTreeMap<u64, u32>,
    /// The workers that were in the steps before `at`, a bit each, the last step first.
    masks: VecDeque<u32>,
    /// Shards that are ahead, in ascending order. Each comes with the first step that it does not have.
    ahead: Vec<(u32, u64)>,
    /// Workers whose data in step `at` is missing in a shard that is ahead: the shard applied the step without them.
    late: u32,
    /// Step `at`, if it could not be applied whole.
    stuck: Option<StepSum>,
    /// Why step `at` cannot be applied. Cleared when a worker joins again.
    trouble: Option<(Refusal, String)>,
    /// The memory of the stored pushes, taken from the server's budget.
    share: StepBudgetShare,
}

impl StepSums {
    /// A group that goes on after the recovered steps.
    pub(crate) fn after(found: &RecoveredSteps) -> StepSums {
        let masks = found.masks.iter().copied().take(BSP_STEPS_REMEMBERED).collect();
        StepSums { at: found.at, masks, ahead: found.ahead.clone(), ..StepSums::default() }
    }

    /// The state from which the next group goes on, once all workers of this one have left.
    pub(crate) fn to_recover(&self) -> RecoveredSteps {
        RecoveredSteps { at: self.at, masks: Vec::new(), ahead: self.ahead.clone() }
    }

    /// Replaces the share of the server's budget.
    pub(crate) fn with_share(self, share: StepBudgetShare) -> StepSums {
        StepSums { share, ..self }
    }

    /// The workers in the next step and in those before it, the last step first.
    pub(crate) fn masks(&self) -> Vec<u32> {
        std::iter::once(self.in_step()).chain(self.masks.iter().copied()).take(BSP_STEPS_REMEMBERED).collect()
    }

    /// The workers in the steps before the next one, the last step first.
    pub(crate) fn masks_before(&self) -> Vec<u32> {
        self.masks.iter().copied().collect()
    }

    /// The workers whose pushes are in step `at` on all shards.
    fn in_step(&self) -> u32 {
        self.completed.get(&self.at).copied().unwrap_or(0) & !self.late
    }

    /// The first step that is not applied.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The first step for which pushes may still come.
    pub(crate) fn begin(&self) -> u64 {
        self.at + u64::from(self.stuck.is_some())
    }

    /// The lowest clock at which a worker can begin anew: a step that no shard has.
    pub(crate) fn entry(&self) -> u64 {
        self.ahead.iter().map(|&(_, at)| at).max().unwrap_or(0).max(self.begin())
    }

    /// Whether a shard already has the next step.
    fn is_ahead(&self, shard: u32) -> bool {
        let at = self.ahead.binary_search_by_key(&shard, |&(of, _)| of);
        at.is_ok_and(|at| self.ahead[at].1 > self.at)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// A worker joins at this clock. Drops its stored pushes from there on, because the worker resends them. Of a
    /// worker that begins `anew`, drops all stored pushes.
    pub(crate) fn join(&mut self, rank: u32, clock: u64, anew: bool) {
        // The sum of a stuck step keeps its rows.
        let from = (if anew { 0 } else { clock }).max(self.begin());
        self.drop_pending(|step, worker| worker == rank && step >= from);
        self.completed
            .iter_mut()
            .filter(|(step, _)| **step >= from)
            .for_each(|(_, completed)| *completed &= !(1 << rank));
        self.trouble = None;
    }

    /// A worker's session has ended at this clock. Drops the pushes of the step that the worker was in: it resends
    /// them, or the step is never complete.
    pub(crate) fn end(&mut self, rank: u32, clock: u64) {
        self.drop_pending(|step, worker| worker == rank && step >= clock);
    }

    fn drop_pending(&mut self, which: impl Fn(u64, u32) -> bool) {
        let mut dropped = 0;
        self.pending.retain(|&(step, rank), worker_step| {
            let drop = which(step, rank);
            dropped += if drop { worker_step.bytes() } else { 0 };
            !drop
        });
        self.share.give_back(dropped);
    }

    /// Stores rows of a step that is not applied.
    pub(crate) fn store(&mut self, rank: u32, step: u64, rows: &IncomingPush<'_>) -> StepAdmission {
        if step == self.at && self.stuck.is_some() {
            // The sum of a stuck step does not change: it has these rows, or it is applied without them.
            return StepAdmission::Kept;
        }
        let mixes = |worker_step: &WorkerStep| {
            let of_data = !worker_step.named.is_empty();
            worker_step.write.is_some_and(|before| before != rows.write || of_data != rows.name.is_some())
        };
        if self.pending.get(&(step, rank)).is_some_and(mixes) {
            return StepAdmission::Mixed;
        }
        let admission = self.share.take(rows.bytes(), step == self.at);
        if admission != StepAdmission::Kept {
            return admission;
        }
        let worker_step = self.pending.entry((step, rank)).or_default();
        worker_step.write = Some(rows.write);
        let from = worker_step.keys.len();
        worker_step.keys.extend_from_slice(rows.keys);
        worker_step.values.extend_from_slice(rows.values);
        let keys = from..worker_step.keys.len();
        let (total, ends) = (rows.total, rows.ends);
        worker_step.named.extend(rows.name.map(|name| DataNames { name, total, keys, ends: ends.to_vec() }));
        StepAdmission::Kept
    }

    /// A worker's clock has moved on. The worker has finished the step between, or left out the steps between (`skip`).
    pub(crate) fn tick(&mut self, rank: u32, from: u64, to: u64, skip: bool) {
        if !skip && to == from + 1 && from >= self.begin() {
            *self.completed.entry(from).or_default() |= 1 << rank;
        } else {
            self.drop_pending(|step, worker| worker == rank && (from..to).contains(&step));
        }
    }

    /// The outcome of a push.
    pub(crate) fn outcome(&self, rank: u32, step: u64) -> KeepOutcome {
        if let Some(before) = self.at.checked_sub(step + 1) {
            let mask = self.masks.get(before as usize).copied().unwrap_or(0);
            return if mask >> rank & 1 == 1 { KeepOutcome::Applied } else { KeepOutcome::Late };
        }
        match &self.trouble {
            Some((refusal, text)) if step == self.at => KeepOutcome::Refused(*refusal, text.clone()),
            _ => KeepOutcome::Waits,
        }
    }

    /// Corrects the record of a step: it was applied without the push of this worker.
    pub(crate) fn was_without(&mut self, rank: u32, step: u64) {
        let before = self.at.checked_sub(step + 1).and_then(|before| self.masks.get_mut(before as usize));
        before.into_iter().for_each(|mask| *mask &= !(1 << rank));
    }

    /// Decides about the next step. `aggregate`: how many workers make it complete. `has`: whether a shard has the rows
    /// of a name.
    pub(crate) fn next(
        &mut self,
        clocks: &Clocks,
        aggregate: u32,
        how: &StepMerge<impl Fn(Write) -> usize>,
        has: impl FnMut(u32, &PushName) -> bool,
    ) -> NextStep {
        if self.trouble.is_some() {
            return NextStep::Wait;
        }
        if let Some(stuck) = &self.stuck {
            return NextStep::Step(Some(stuck.clone()));
        }
        let completed = self.completed.get(&self.at).copied().unwrap_or(0);
        let counted = clocks.counted().count();
        let all = counted > 0 && clocks.counted().all(|(_, rank)| rank.clock > self.at);
        if !all && completed.count_ones() < aggregate && (counted > 0 || completed == 0) {
            return NextStep::Wait;
        }
        let (sum, late) = self.sum(completed, how, has);
        self.late = late;
        NextStep::Step(sum)
    }

    /// The next step as one push, and the workers that come too late for it on a shard that is ahead.
    fn sum(
        &self,
        completed: u32,
        how: &StepMerge<impl Fn(Write) -> usize>,
        has: impl FnMut(u32, &PushName) -> bool,
    ) -> (Option<StepSum>, u32) {
        let parts: Vec<(u32, &WorkerStep)> = self
            .pending
            .range((self.at, 0)..=(self.at, u32::MAX))
            .map(|(&(_, rank), worker_step)| (rank, worker_step))
            .filter(|(rank, worker_step)| completed >> rank & 1 == 1 && !worker_step.is_empty())
            .collect();
        let Some(write) = parts.first().and_then(|(_, worker_step)| worker_step.write) else {
            return (None, 0);
        };
        let floats = (how.floats)(write);
        let whole = |shard| self.is_ahead(shard);
        let whole: Option<&dyn Fn(u32) -> bool> = if self.ahead.is_empty() { None } else { Some(&whole) };
        let UnappliedStep { rows, notes, late } = unapplied_rows(&parts, floats, how.shards, has, whole);
        let mask = rows.iter().fold(0, |mask, rows| mask | 1 << rows.rank);
        let (keys, values) = merge_rows(&rows, floats, how.merge, how.shards);
        ((mask != 0).then_some(StepSum { step: self.at, mask, write, keys, values, notes }), late)
    }

    /// Whether all pushes of the next step are of one kind. Otherwise they cannot become one push.
    pub(crate) fn is_of_one_kind(&self) -> bool {
        let mut writes = self
            .pending
            .range((self.at, 0)..=(self.at, u32::MAX))
            .filter_map(|(_, worker_step)| worker_step.write);
        let first = writes.next();
        writes.all(|write| Some(write) == first)
    }

    /// Notes that the next step is applied.
    pub(crate) fn applied(&mut self) {
        self.masks.push_front(self.in_step());
        self.masks.truncate(BSP_STEPS_REMEMBERED);
        let at = self.at;
        self.completed.remove(&at);
        self.drop_pending(|step, _| step <= at);
        (self.at, self.stuck, self.late) = (at + 1, None, 0);
        self.ahead.retain(|&(_, reached)| reached > at + 1);
    }

    /// Passes the next step, which has no rows, and the following steps that all workers have passed and nobody has
    /// made.
    pub(crate) fn pass(&mut self, clocks: &Clocks) {
        self.applied();
        let completed = self.completed.keys().next().copied().unwrap_or(u64::MAX);
        let stored = self.pending.keys().next().map_or(u64::MAX, |(step, _)| *step);
        let to = clocks.lowest().min(completed).min(stored);
        if let Some(steps) = to.checked_sub(self.at) {
            let remembered = steps.min(BSP_STEPS_REMEMBERED as u64);
            (0..remembered).for_each(|_| self.masks.push_front(0));
            self.masks.truncate(BSP_STEPS_REMEMBERED);
            self.at = to;
            self.ahead.retain(|&(_, reached)| reached > to);
        }
    }

    /// The next step could not be applied whole. The same sum is tried again when one of the workers has joined again.
    pub(crate) fn failed(&mut self, sum: StepSum, refusal: Refusal, text: String) {
        (self.stuck, self.trouble) = (Some(sum), Some((refusal, text)));
    }

    /// The next step cannot become one push. It waits until a worker has joined again.
    pub(crate) fn refused(&mut self, refusal: Refusal, text: String) {
        self.trouble = Some((refusal, text));
    }

    /// All links are lost. Drops all stored pushes: their workers resend them, and have not made their steps until
    /// then. A worker that had no push in a step has made it, and does not announce it again.
    pub(crate) fn drop_stored(&mut self) {
        // The sum of a stuck step keeps its rows.
        let begin = self.begin();
        for &(step, rank) in self.pending.keys().filter(|(step, _)| *step >= begin) {
            self.completed.entry(step).and_modify(|completed| *completed &= !(1 << rank));
        }
        self.completed.retain(|_, completed| *completed != 0);
        self.drop_pending(|_, _| true);
        self.trouble = None;
    }

    /// A new group begins. Nothing of the old one belongs to it, except a stuck step.
    pub(crate) fn restart(&mut self) {
        self.drop_pending(|_, _| true);
        self.completed.retain(|step, _| self.stuck.is_some() && *step == self.at);
        self.trouble = None;
    }
}
