//! What the workers of a synchronous group (BSP) have pushed for steps that are not applied, and how a step is made one push.
//! Plain state: whoever holds it applies what it makes.
//!
//! A step is named in the images by who was in it (a bit each): a server that was killed while it applied one finds the name,
//! and waits until exactly those have sent their parts again ([`Sums::after`]).

use super::clocks::Clocks;
use crate::error::Refusal;
use crate::keyed::ByKey;
use crate::limits::{BSP_BYTES_MAX, BSP_STEPS_REMEMBERED};
use crate::sync::Merge;
use gannet_core::{Write, hash, shard_of};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What one worker has pushed in one step.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    write: Option<Write>,
    keys: Vec<u64>,
    values: Vec<f32>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.keys.len() * 8 + self.values.len() * 4
    }
}

/// What became of a push that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its step is not applied yet.
    Waits,
    Applied,
    /// Its step was applied without it.
    Late,
    Refused(Refusal, String),
}

/// Whether a push can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Kept,
    /// When the next step has been applied.
    Later,
    /// Never: the step is too large.
    Full,
    /// The worker pushed both gradients and changes in one step.
    Mixed,
}

/// A step as one push.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sum {
    pub(super) step: u64,
    /// In its name: whose rows are in it.
    pub(super) mask: u32,
    pub(super) write: Write,
    /// In ascending order of shard.
    pub(super) keys: Vec<u64>,
    pub(super) values: Vec<f32>,
}

/// What is to be done about the next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// Others are waited for.
    Wait,
    /// It is to be applied; `None`: nobody pushed anything, or it was applied before.
    Step(Option<Sum>),
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    /// The first step that is not applied.
    at: u64,
    kept: BTreeMap<(u64, u32), Kept>,
    /// Who has made a step, by step.
    made: BTreeMap<u64, u32>,
    /// Who was in the steps before `at`, the last first.
    masks: VecDeque<u32>,
    /// Step `at` was begun with these.
    begun: Option<u32>,
    /// Those of `begun` who begin anew, and will not send their parts again.
    lost: u32,
    /// Why step `at` could not be applied: until one of its workers has come again.
    trouble: Option<(Refusal, String)>,
    bytes: usize,
}

impl Sums {
    /// Of images in which the last step has this name: (seq, part), if there was one.
    pub(super) fn after(last: Option<(u64, u32)>) -> Sums {
        match last {
            Some((seq, mask)) if seq > 0 => Sums { at: seq - 1, begun: Some(mask), ..Sums::default() },
            _ => Sums::default(),
        }
    }

    /// The first step that is not applied.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where who begins anew can begin.
    pub(super) fn begin(&self) -> u64 {
        self.at + u64::from(self.begun.is_some())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A worker comes, at this clock; what it had sent from there on comes again, unless it begins `anew`.
    pub(super) fn join(&mut self, rank: u32, clock: u64, anew: bool) {
        let from = if anew { 0 } else { clock };
        self.drop_kept(|step, of| of == rank && step >= from);
        self.made.iter_mut().filter(|(step, _)| **step >= from).for_each(|(_, made)| *made &= !(1 << rank));
        if anew {
            self.lost |= 1 << rank;
        }
        self.trouble = None;
    }

    /// A worker's session has ended at this clock: what it sent of the step that it was in comes again, or never whole.
    pub(super) fn end(&mut self, rank: u32, clock: u64) {
        self.drop_kept(|step, of| of == rank && step >= clock);
    }

    fn drop_kept(&mut self, which: impl Fn(u64, u32) -> bool) {
        let Sums { kept, bytes, .. } = self;
        kept.retain(|&(step, rank), kept| {
            let drop = which(step, rank);
            *bytes -= if drop { kept.bytes() } else { 0 };
            !drop
        });
    }

    /// Keeps rows of a step that is not applied.
    pub(super) fn keep(&mut self, rank: u32, step: u64, write: Write, keys: &[u64], values: &[f32]) -> Room {
        let bytes = keys.len() * 8 + values.len() * 4;
        let sum = self.bytes + bytes;
        if step > self.at && sum > BSP_BYTES_MAX / 2 {
            return Room::Later;
        }
        if sum > BSP_BYTES_MAX {
            return Room::Full;
        }
        let kept = self.kept.entry((step, rank)).or_default();
        if kept.write.is_some_and(|before| before != write) {
            return Room::Mixed;
        }
        kept.write = Some(write);
        kept.keys.extend_from_slice(keys);
        kept.values.extend_from_slice(values);
        self.bytes = sum;
        Room::Kept
    }

    /// A worker has gone from one clock to another: it has made the step between, or (`skip`) left out those between.
    pub(super) fn tick(&mut self, rank: u32, from: u64, to: u64, skip: bool) {
        if !skip && to == from + 1 && from >= self.at {
            *self.made.entry(from).or_default() |= 1 << rank;
            self.lost &= !(1 << rank);
        } else {
            self.drop_kept(|step, of| of == rank && (from..to).contains(&step));
        }
    }

    /// What became of a push.
    pub(super) fn outcome(&self, rank: u32, step: u64) -> Outcome {
        if let Some(before) = self.at.checked_sub(step + 1) {
            let mask = self.masks.get(before as usize).copied().unwrap_or(0);
            return if mask >> rank & 1 == 1 { Outcome::Applied } else { Outcome::Late };
        }
        match &self.trouble {
            Some((refusal, text)) if step == self.at => Outcome::Refused(*refusal, text.clone()),
            _ => Outcome::Waits,
        }
    }

    /// Looks at the next step. `aggregate`: how many make it whole.
    pub(super) fn next(
        &self,
        clocks: &Clocks,
        aggregate: u32,
        merge: Merge,
        floats: impl Fn(Write) -> usize,
        shards: u32,
    ) -> Next {
        let made = self.made.get(&self.at).copied().unwrap_or(0);
        let passed = |mask: u32| {
            let bits = (0..).zip(&clocks.ranks).filter(|(_, rank)| rank.clock > self.at);
            bits.fold(0, |all, (number, _)| all | 1u32 << number) & mask
        };
        let counted = clocks.counted().fold(0, |all, (number, _)| all | 1u32 << number);
        if self.trouble.is_some() {
            return Next::Wait;
        }
        if let Some(begun) = self.begun {
            // Who has gone past it was told that all of it had been applied.
            if passed(begun) & !made & !self.lost != 0 {
                return Next::Step(None);
            }
            if begun & counted & !made & !self.lost != 0 {
                return Next::Wait;
            }
            return Next::Step(self.sum(begun & made, merge, floats, shards));
        }
        let all = counted != 0 && counted & !passed(u32::MAX) == 0;
        let enough = made.count_ones() >= aggregate || counted == 0 && made != 0;
        if !all && !enough {
            return Next::Wait;
        }
        Next::Step(self.sum(made, merge, floats, shards))
    }

    fn sum(&self, made: u32, merge: Merge, floats: impl Fn(Write) -> usize, shards: u32) -> Option<Sum> {
        let parts: Vec<(u32, &Kept)> = self
            .kept
            .range((self.at, 0)..=(self.at, u32::MAX))
            .map(|(&(_, rank), kept)| (rank, kept))
            .filter(|(rank, kept)| made >> rank & 1 == 1 && !kept.keys.is_empty())
            .collect();
        let write = parts.first()?.1.write?;
        let mask = parts.iter().fold(0, |mask, (rank, _)| mask | 1 << rank);
        let (keys, values) = merged(&parts, floats(write), merge, shards);
        Some(Sum { step: self.at, mask, write, keys, values })
    }

    /// Whether all who have made the next step pushed the same kind; otherwise it cannot be made one.
    pub(super) fn is_of_one_kind(&self) -> bool {
        let mut writes =
            self.kept.range((self.at, 0)..=(self.at, u32::MAX)).filter_map(|(_, kept)| kept.write);
        let first = writes.next();
        writes.all(|write| Some(write) == first)
    }

    /// The next step is applied.
    pub(super) fn applied(&mut self) {
        let made = self.made.remove(&self.at).unwrap_or(0);
        self.masks.push_front(made | self.begun.unwrap_or(0));
        self.masks.truncate(BSP_STEPS_REMEMBERED);
        let at = self.at;
        self.drop_kept(|step, _| step <= at);
        (self.at, self.begun, self.lost) = (at + 1, None, 0);
    }

    /// Nothing is to be applied for the next step, nor for those that all who count have passed and nobody has made.
    pub(super) fn pass(&mut self, clocks: &Clocks) {
        self.applied();
        let made = self.made.keys().next().copied().unwrap_or(u64::MAX);
        let kept = self.kept.keys().next().map_or(u64::MAX, |(step, _)| *step);
        let to = clocks.lowest().min(made).min(kept);
        if let Some(steps) = to.checked_sub(self.at) {
            let remembered = steps.min(BSP_STEPS_REMEMBERED as u64);
            (0..remembered).for_each(|_| self.masks.push_front(0));
            self.masks.truncate(BSP_STEPS_REMEMBERED);
            self.at = to;
        }
    }

    /// The next step could not be applied: it is tried again when its workers have come again, with the same name.
    pub(super) fn failed(&mut self, mask: u32, refusal: Refusal, text: String) {
        (self.begun, self.trouble) = (Some(mask), Some((refusal, text)));
    }

    /// A new group begins: nothing of those before is kept. Those of them who are alive send theirs again.
    pub(super) fn restart(&mut self) {
        self.kept.clear();
        self.made.clear();
        (self.bytes, self.trouble) = (0, None);
    }
}

/// The rows of several workers as one for each key: added in the order of ranks, or that divided by the number of ranks that
/// have the key. Keys come in ascending order of shard, within a shard as they came first: the order, like the sums, depends on
/// what each worker sent to a shard and on nothing else.
fn merged(parts: &[(u32, &Kept)], floats: usize, merge: Merge, shards: u32) -> (Vec<u64>, Vec<f32>) {
    let most = parts.iter().map(|(_, kept)| kept.keys.len()).sum();
    let mut places = HashMap::<u64, u32, ByKey>::with_capacity_and_hasher(most, ByKey::default());
    let (mut keys, mut sums): (Vec<u64>, Vec<f32>) = (Vec::new(), Vec::new());
    // For each key how many ranks have it, and the last of them.
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    for &(rank, kept) in parts {
        for (&key, row) in kept.keys.iter().zip(kept.values.chunks_exact(floats)) {
            let place = *places.entry(key).or_insert(keys.len() as u32) as usize;
            if place == keys.len() {
                keys.push(key);
                ranks.push((1, rank));
                sums.extend_from_slice(row);
                continue;
            }
            if ranks[place].1 != rank {
                ranks[place] = (ranks[place].0 + 1, rank);
            }
            sums[place * floats..][..floats].iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_by_key(|&place| shard_of(hash(keys[place as usize]), shards));
    let mut values = Vec::with_capacity(sums.len());
    for &place in &order {
        let row = &sums[place as usize * floats..][..floats];
        let by = if merge == Merge::Mean { ranks[place as usize].0 as f32 } else { 1.0 };
        values.extend(row.iter().map(|sum| sum / by));
    }
    (order.iter().map(|&place| keys[place as usize]).collect(), values)
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
