//! The sums of steps, compared with a plain map, and the workers for which each step waits.

use crate::steps::clocks::Joiner;
use crate::steps::step::StepNote;
use crate::steps::step_merge::WorkerRows;
use crate::steps::step_sums::*;
use gannet_core::{hash, shard_of};
use gannet_wire::frames::push_payload::run_ends;
use gannet_wire::sync::{Merge, StepReduce, SyncConfig, SyncMode};
use proptest::prelude::*;
use std::time::Duration;

const SHARDS: u32 = 8;

fn sorted(mut rows: Vec<(u64, Vec<f32>)>) -> (Vec<u64>, Vec<f32>) {
    rows.sort_by_key(|(key, _)| shard_of(hash(*key), SHARDS));
    (rows.iter().map(|row| row.0).collect(), rows.into_iter().flat_map(|row| row.1).collect())
}

/// One worker's rows, in ascending order of shard.
fn rows(floats: usize) -> impl Strategy<Value = (Vec<u64>, Vec<f32>)> {
    let row = (0..40u64, prop::collection::vec(-1e3f32..1e3, floats));
    prop::collection::vec(row, 0..60).prop_map(sorted)
}

/// The sums, key by key and rank by rank.
fn naive(parts: &[(Vec<u64>, Vec<f32>)], floats: usize, merge: Merge) -> BTreeMap<u64, Vec<f32>> {
    let mut all = BTreeMap::<u64, (Vec<f32>, u32)>::new();
    for (keys, values) in parts {
        let mut touched = std::collections::BTreeSet::new();
        for (key, row) in keys.iter().zip(values.chunks(floats)) {
            let first = touched.insert(*key);
            match all.get_mut(key) {
                None => drop(all.insert(*key, (row.to_vec(), 1))),
                Some((sum, ranks)) => {
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                    *ranks += u32::from(first);
                }
            }
        }
    }
    let divided = |(sum, ranks): (Vec<f32>, u32)| match merge {
        Merge::Sum => sum,
        Merge::Mean => sum.iter().map(|value| value / ranks as f32).collect(),
    };
    all.into_iter().map(|(key, row)| (key, divided(row))).collect()
}

fn clocks(workers: u32, aggregate: u32) -> Clocks {
    let mode = SyncMode::Bsp(StepReduce { aggregate, merge: Merge::Sum });
    let worker_timeout = Duration::from_secs(5);
    let member = SyncConfig { rank: 0, workers, mode, worker_timeout, strict: false };
    let mut clocks = Clocks::new(&member, 0);
    for rank in 0..workers {
        let joiner = Joiner { rank, pusher: u64::from(rank) + 1, incarnation: 1, session: rank };
        clocks.join(joiner, None, 0).unwrap();
    }
    clocks
}

/// A group of one thread.
struct SumsModel {
    clocks: Clocks,
    sums: StepSums,
    aggregate: u32,
}

impl SumsModel {
    fn new(workers: u32, aggregate: u32) -> SumsModel {
        SumsModel { clocks: clocks(workers, aggregate), sums: StepSums::default(), aggregate }
    }

    fn push(&mut self, rank: u32, key: u64) -> StepAdmission {
        self.push_as(rank, &[key], None)
    }

    fn push_as(&mut self, rank: u32, keys: &[u64], name: Option<PushName>) -> StepAdmission {
        let step = self.clocks.ranks[rank as usize].clock;
        let values = vec![1.0; keys.len()];
        let ends = name.map_or_else(Vec::new, |name| run_ends(keys, SHARDS, name.row));
        self.sums.store(
            rank,
            step,
            &IncomingPush { write: Write::Gradient, keys, values: &values, name, total: 24, ends: &ends },
        )
    }

    fn tick(&mut self, rank: u32) {
        let from = self.clocks.ranks[rank as usize].clock;
        self.sums.tick(rank, from, from + 1, false);
        self.clocks.tick(rank, from + 1);
    }

    fn rejoin(&mut self, rank: u32, clock: u64, session: u32) {
        let joiner = Joiner { rank, pusher: u64::from(rank) + 1, incarnation: 1, session };
        let clock = self.clocks.join(joiner, Some(clock), self.sums.begin()).unwrap();
        self.sums.join(rank, clock, false);
    }

    fn next(&mut self) -> NextStep {
        self.next_beside(|_, _| false)
    }

    /// The next step, when shards already have these rows.
    fn next_beside(&mut self, has: impl FnMut(u32, &PushName) -> bool) -> NextStep {
        let how = StepMerge { merge: Merge::Sum, floats: |_| 1, shards: SHARDS };
        self.sums.next(&self.clocks, self.aggregate, &how, has)
    }

    /// Applies the next step. Returns its mask, keys and sums.
    fn apply(&mut self) -> Option<(u32, Vec<u64>, Vec<f32>)> {
        let NextStep::Step(sum) = self.next() else { return None };
        self.sums.applied();
        Some(sum.map_or((0, Vec::new(), Vec::new()), |sum| (sum.mask, sum.keys, sum.values)))
    }
}

proptest! {
    #[test]
    fn a_step_is_what_a_map_makes_of_it(
        floats in 1usize..5,
        seed_parts in prop::collection::vec(rows(4), 1..5),
        mean: bool,
    ) {
        let merge = if mean { Merge::Mean } else { Merge::Sum };
        let cut = |(keys, values): (Vec<u64>, Vec<f32>)| {
            let values = values.chunks(4).flat_map(|row| row[..floats.min(4)].to_vec()).collect();
            (keys, values)
        };
        let floats = floats.min(4);
        let parts: Vec<(Vec<u64>, Vec<f32>)> = seed_parts.into_iter().map(cut).collect();
        let ranked: Vec<WorkerRows<'_>> =
            (0..).zip(&parts).map(|(rank, (keys, values))| WorkerRows { rank, keys, values }).collect();
        let (keys, values) = merge_rows(&ranked, floats, merge, SHARDS);
        let shards: Vec<u32> = keys.iter().map(|&key| shard_of(hash(key), SHARDS)).collect();
        prop_assert!(shards.is_sorted());
        let want = naive(&parts, floats, merge);
        prop_assert_eq!(keys.len(), want.len());
        for (key, row) in keys.iter().zip(values.chunks(floats)) {
            let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(row), bits(&want[key]), "key {}", key);
        }
    }
}

#[test]
fn a_step_is_applied_when_all_have_made_it() {
    let mut world = SumsModel::new(3, 3);
    for rank in [2, 0] {
        assert_eq!(world.push(rank, 7), StepAdmission::Kept);
        world.tick(rank);
        assert_eq!(world.next(), NextStep::Wait);
    }
    // Worker 1 has no data: its step is empty.
    world.tick(1);
    assert_eq!(world.apply(), Some((0b101, vec![7], vec![2.0])));
    assert_eq!(world.next(), NextStep::Wait);
    assert_eq!(world.sums.outcome(0, 0), KeepOutcome::Applied);
    // The step waits for a worker that is away, but not for one that has left.
    world.push(0, 8);
    world.tick(0);
    world.tick(2);
    world.clocks.end(1);
    assert_eq!(world.next(), NextStep::Wait);
    world.clocks.leave(1);
    assert_eq!(world.apply(), Some((0b1, vec![8], vec![1.0])));
}

#[test]
fn with_fewer_to_aggregate_the_rest_comes_too_late() {
    let mut world = SumsModel::new(3, 2);
    world.push(0, 1);
    world.tick(0);
    // Half of worker 2's push has come.
    world.push(2, 1);
    world.push(1, 1);
    world.tick(1);
    assert_eq!(world.apply(), Some((0b11, vec![1], vec![2.0])));
    assert_eq!(world.sums.outcome(2, 0), KeepOutcome::Late);
    world.tick(2);
    assert_eq!(world.next(), NextStep::Wait);
    assert_eq!((world.sums.outcome(2, 0), world.sums.bytes()), (KeepOutcome::Late, 0));
    // A worker that leaves out steps has not made them.
    world.sums.tick(2, 1, 3, true);
    world.clocks.tick(2, 3);
    world.push(0, 5);
    world.tick(0);
    assert_eq!(world.next(), NextStep::Wait);
    world.tick(1);
    assert_eq!(world.apply(), Some((0b1, vec![5], vec![1.0])));
}

#[test]
fn what_a_lost_session_had_not_finished_comes_again() {
    let mut world = SumsModel::new(2, 2);
    world.push(0, 3);
    world.clocks.end(0);
    world.sums.end(0, 0);
    assert_eq!(world.sums.bytes(), 0);
    world.rejoin(0, 0, 10);
    world.push(0, 3);
    world.tick(0);
    // The push is complete but not acknowledged. It stays, and a resend does not double it.
    world.clocks.end(0);
    world.sums.end(0, 1);
    world.push(1, 3);
    world.rejoin(0, 0, 11);
    world.push(0, 3);
    world.tick(1);
    assert_eq!(world.next(), NextStep::Wait);
    world.tick(0);
    assert_eq!(world.apply(), Some((0b11, vec![3], vec![2.0])));
    // A resend after the step was applied is recognised.
    world.clocks.end(1);
    world.rejoin(1, 0, 12);
    assert_eq!(world.sums.outcome(1, 0), KeepOutcome::Applied);
}

/// A worker that had ended a step without a push does not end it again when it comes back. The others waited for one
/// more worker than the step needed.
#[test]
fn a_step_without_pushes_is_made_also_after_all_links_are_lost() {
    let mut world = SumsModel::new(3, 2);
    world.tick(0);
    world.push(1, 5);
    world.tick(2);
    // Worker 1 is in the step, and the steps of the others are enough.
    assert_eq!(world.apply(), Some((0, vec![], vec![])));
    world.tick(0);
    world.push(2, 6);
    world.tick(2);
    for session in 0..3 {
        world.clocks.end(session);
    }
    world.sums.drop_stored();
    world.clocks.take_back(world.sums.begin());
    world.rejoin(0, 2, 10);
    assert_eq!(world.next(), NextStep::Wait);
    world.rejoin(2, 1, 12);
    assert_eq!(world.next(), NextStep::Wait, "its push was dropped");
    world.push(2, 6);
    assert_eq!(world.next(), NextStep::Wait, "it is in the step");
    world.tick(2);
    assert_eq!(world.apply(), Some((0b100, vec![6], vec![1.0])), "worker 1 stays away");
}

/// A step that could not be applied whole is tried again unchanged, whichever of its workers joins again.
#[test]
fn a_step_that_is_stuck_is_tried_again_as_it_is() {
    let mut world = SumsModel::new(3, 3);
    for rank in 0..3 {
        world.push(rank, 9 + u64::from(rank) / 2);
        world.tick(rank);
    }
    let NextStep::Step(Some(sum)) = world.next() else { panic!("all have made it") };
    world.sums.failed(sum.clone(), Refusal::NoSpace, "full".into());
    assert_eq!(world.next(), NextStep::Wait);
    assert_eq!(world.sums.outcome(1, 0), KeepOutcome::Refused(Refusal::NoSpace, "full".into()));
    assert_eq!(world.sums.begin(), 1, "who begins anew has nothing of it");
    // One worker joins again, another begins anew, the third is dead.
    world.clocks.end(2);
    world.rejoin(1, 0, 11);
    let joiner = Joiner { rank: 0, pusher: 1, incarnation: 2, session: 12 };
    let clock = world.clocks.join(joiner, None, world.sums.begin()).unwrap();
    world.sums.join(0, clock, true);
    assert_eq!((clock, world.next()), (1, NextStep::Step(Some(sum.clone()))));
    assert_eq!(world.push(1, 10), StepAdmission::Kept);
    world.tick(1);
    assert_eq!(world.apply(), Some((0b111, sum.keys, sum.values)));
    assert_eq!(world.sums.outcome(1, 0), KeepOutcome::Applied);
    // Resent rows of the stuck step do not count for the next step.
    world.clocks.leave(2);
    world.tick(1);
    world.push(0, 3);
    world.tick(0);
    assert_eq!(world.apply(), Some((0b1, vec![3], vec![1.0])));
}

/// A server that restarted goes on after the last step, and knows which workers were in it.
#[test]
fn the_steps_before_are_known_by_who_was_in_them() {
    let mode = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    let member =
        SyncConfig { rank: 0, workers: 3, mode, worker_timeout: Duration::from_secs(5), strict: false };
    let clocks = Clocks::new(&member, 5);
    let mut world = SumsModel {
        clocks,
        sums: StepSums::after(&RecoveredSteps { at: 5, masks: vec![0b101, 0b011], ahead: Vec::new() }),
        aggregate: 2,
    };
    assert_eq!((world.sums.at(), world.sums.begin()), (5, 5));
    world.rejoin(0, 3, 1);
    world.rejoin(1, 5, 2);
    let outcomes =
        [(0, 4), (1, 4), (2, 4), (1, 3), (2, 3)].map(|(rank, step)| world.sums.outcome(rank, step));
    let [yes, no] = [KeepOutcome::Applied, KeepOutcome::Late];
    assert_eq!(outcomes, [yes.clone(), no.clone(), yes.clone(), yes, no]);
    world.push(1, 7);
    world.tick(1);
    assert_eq!(world.next(), NextStep::Wait);
    for rank in 0..3 {
        world.rejoin(rank, 5, 10 + rank);
        world.push(rank, 7);
        world.tick(rank);
    }
    assert_eq!(world.sums.masks(), [0b111, 0b101, 0b011]);
    assert_eq!(world.apply(), Some((0b111, vec![7], vec![3.0])));
}

fn data(task: u64, seq: u64) -> Option<PushName> {
    Some(PushName { pusher: gannet_core::DATA_PUSHERS | task, incarnation: 1, seq, row: 0 })
}

/// A step takes rows under a name of data only where no shard has them. If two workers push them, the first one's
/// count.
#[test]
fn data_is_taken_once() {
    let keys: Vec<u64> = sorted((0..20).map(|key| (key, vec![1.0])).collect()).0;
    let shard = |key: &u64| shard_of(hash(*key), SHARDS);
    let mut world = SumsModel::new(3, 3);
    // Worker 1 has died since, and worker 2 was given its batch.
    world.push_as(0, &keys, data(3, 7));
    world.push_as(1, &keys, data(4, 2));
    world.push_as(2, &keys, data(4, 2));
    (0..3).for_each(|rank| world.tick(rank));
    let NextStep::Step(Some(sum)) = world.next_beside(|shard, name| name.seq == 7 && shard % 2 == 0) else {
        panic!("all have made it")
    };
    assert_eq!((sum.mask, &sum.keys), (0b011, &keys));
    for (key, value) in sum.keys.iter().zip(&sum.values) {
        assert_eq!(*value, if shard(key) % 2 == 0 { 1.0 } else { 2.0 }, "key {key}");
    }
    let mut shards: Vec<u32> = keys.iter().map(shard).collect();
    shards.dedup();
    let note = |name: Option<PushName>, of: u32| {
        let row = keys.iter().filter(|key| shard(key) == of).count() as u32;
        StepNote { shard: of, name: PushName { row, ..name.unwrap() }, total: 24 }
    };
    let odd = shards.iter().filter(|&&shard| shard % 2 == 1).map(|&shard| note(data(3, 7), shard));
    let want: Vec<_> = odd.chain(shards.iter().map(|&shard| note(data(4, 2), shard))).collect();
    assert_eq!(sum.notes, want);
    // If the shards have all rows, there is nothing to apply.
    assert_eq!(world.next_beside(|_, _| true), NextStep::Step(None));
    // Rows with and without names in one step: the shards could not tell which rows belong to which name.
    world.sums.pass(&world.clocks);
    assert_eq!(world.push_as(0, &[1], data(3, 8)), StepAdmission::Kept);
    assert_eq!(world.push_as(0, &[2], data(3, 8)), StepAdmission::Kept);
    assert_eq!(world.push(0, 3), StepAdmission::Mixed);
    assert_eq!(world.push(1, 3), StepAdmission::Kept);
    assert_eq!(world.push_as(1, &[4], data(4, 3)), StepAdmission::Mixed);
}

proptest! {
    /// A server restarted with fewer threads. One thread got the shards of two, and some of them were some steps ahead.
    /// A batch was late in those steps, its worker had left, and another worker pushed the batch again. The server
    /// acknowledged it as applied, and lost it.
    #[test]
    fn a_batch_is_applied_everywhere_or_told_to_be_late_where_shards_are_ahead(
        ahead in prop::collection::btree_map(0..SHARDS, 1..4u64, 0..SHARDS as usize),
        // Workers push one of four batches in each of four steps.
        batches in prop::collection::vec(prop::collection::vec(0..4u64, 3), 4),
        shard_batches in prop::collection::hash_set((0..SHARDS, 0..4u64), 0..12),
    ) {
        let found = RecoveredSteps { at: 0, masks: Vec::new(), ahead: ahead.clone().into_iter().collect() };
        let mut world = SumsModel { sums: StepSums::after(&found), ..SumsModel::new(3, 3) };
        let keys: Vec<u64> = sorted((0..24).map(|key| (key, vec![1.0])).collect()).0;
        let mut shards: Vec<u32> = keys.iter().map(|key| shard_of(hash(*key), SHARDS)).collect();
        shards.dedup();
        // Which batches each shard has. A shard that is ahead may have them from its steps.
        let mut shard_batches: std::collections::HashSet<(u32, u64)> =
            shard_batches.into_iter().filter(|(shard, _)| ahead.contains_key(shard)).collect();
        for (step, of_step) in (0..).zip(&batches) {
            for (rank, &batch) in (0..).zip(of_step) {
                prop_assert_eq!(world.push_as(rank, &keys, data(batch, batch)), StepAdmission::Kept);
                world.tick(rank);
            }
            let NextStep::Step(sum) = world.next_beside(|shard, name| shard_batches.contains(&(shard, name.seq))) else {
                panic!("all have made step {step}")
            };
            for StepNote { shard, name, .. } in sum.iter().flat_map(|sum| &sum.notes) {
                prop_assert!(ahead.get(shard).is_none_or(|&at| at <= step), "shard {} has step {}", shard, step);
                prop_assert!(shard_batches.insert((*shard, name.seq)), "twice in shard {}", shard);
            }
            let masks = world.sums.masks();
            world.sums.applied();
            for (rank, &batch) in (0..).zip(of_step) {
                let whole = shards.iter().all(|&shard| shard_batches.contains(&(shard, batch)));
                let outcome = if whole { KeepOutcome::Applied } else { KeepOutcome::Late };
                prop_assert_eq!(world.sums.outcome(rank, step), outcome, "worker {}, step {}", rank, step);
                prop_assert_eq!(masks[0] >> rank & 1 == 1, whole, "as the file of the step says");
            }
        }
    }
}

/// One of two threads had made a step without a worker, but the file of the other thread named the worker.
#[test]
fn a_push_that_the_shards_do_not_have_was_late_whatever_is_remembered() {
    let mut sums = StepSums::after(&RecoveredSteps { at: 8, masks: vec![0b101, 0b111], ahead: Vec::new() });
    assert_eq!(sums.outcome(2, 7), KeepOutcome::Applied);
    sums.was_without(2, 7);
    assert_eq!([0, 2].map(|rank| sums.outcome(rank, 7)), [KeepOutcome::Applied, KeepOutcome::Late]);
    assert_eq!(sums.outcome(2, 6), KeepOutcome::Applied);
    // Every push for a forgotten step is late.
    sums.was_without(0, 1);
    assert_eq!(sums.outcome(0, 1), KeepOutcome::Late);
}

/// Two workers pushed a batch, and the first one sent only the rows that were not acknowledged: the rest was lost.
#[test]
fn of_a_batch_that_comes_twice_each_shard_takes_the_copy_that_has_rows_for_it() {
    let keys: Vec<u64> = sorted((0..24).map(|key| (key, vec![1.0])).collect()).0;
    let half: Vec<u64> = keys.iter().copied().filter(|key| shard_of(hash(*key), SHARDS) < 4).collect();
    assert!(!half.is_empty() && half.len() < keys.len());
    let mut world = SumsModel::new(2, 2);
    world.push_as(0, &half, data(3, 7));
    world.push_as(1, &keys, data(3, 7));
    (0..2).for_each(|rank| world.tick(rank));
    assert_eq!(world.apply(), Some((0b11, keys.clone(), vec![1.0; keys.len()])));
}

/// A thread dropped all rows of a push, because they were NaN, and did not note the push. So it never counted as whole.
#[test]
fn a_named_push_without_a_row_that_can_be_stored_is_noted() {
    let mut world = SumsModel::new(1, 1);
    let (name, write) = (data(3, 7), Write::Gradient);
    let push = IncomingPush { write, keys: &[], values: &[], name, total: 9, ends: &[(2, 4), (5, 1)] };
    assert_eq!(world.sums.store(0, 0, &push), StepAdmission::Kept);
    world.tick(0);
    let NextStep::Step(Some(sum)) = world.next() else { panic!("there is something to note") };
    let note = |shard, row| StepNote { shard, name: PushName { row, ..name.unwrap() }, total: 9 };
    assert_eq!((sum.keys.len(), sum.notes), (0, vec![note(2, 4), note(5, 1)]));
}

/// Steps that nobody made are passed at once, however many there are.
#[test]
fn a_long_way_takes_no_time() {
    let mut world = SumsModel::new(2, 2);
    let far = crate::limits::CLOCK_MAX;
    for rank in [0, 1] {
        world.sums.tick(rank, 0, far - 5, true);
        world.clocks.tick(rank, far - 5);
    }
    world.push(0, 1);
    world.tick(0);
    assert_eq!(world.next(), NextStep::Step(None));
    world.sums.pass(&world.clocks);
    assert_eq!((world.sums.at(), world.next()), (far - 5, NextStep::Wait));
    world.tick(1);
    assert_eq!(world.apply(), Some((0b1, vec![1], vec![1.0])));
    assert_eq!(
        (world.sums.outcome(0, far - 5), world.sums.outcome(0, far - 6)),
        (KeepOutcome::Applied, KeepOutcome::Late)
    );
}

#[test]
fn kept_bytes_are_limited() {
    let mut world = SumsModel::new(2, 2);
    let (keys, values) = (vec![1u64; 1 << 16], vec![1.0; 1 << 20]);
    let bytes = keys.len() * 8 + values.len() * 4;
    let of_worker =
        IncomingPush { write: Write::Gradient, keys: &[], values: &[], name: None, total: 0, ends: &[] };
    let rows = IncomingPush { keys: &keys, values: &values, ..of_worker };
    let mut store = |rank, step| world.sums.store(rank, step, &rows);
    let many = crate::limits::BSP_BYTES_MAX / bytes;
    assert!((0..many / 2).all(|_| store(0, 0) == StepAdmission::Kept));
    assert_eq!(store(1, 1), StepAdmission::Later);
    assert!((0..many / 2).all(|_| store(0, 0) == StepAdmission::Kept));
    assert_eq!(store(1, 0), StepAdmission::Full);
    let change = IncomingPush { write: Write::Change, keys: &[1], values: &[1.0], ..of_worker };
    assert_eq!(world.sums.store(0, 0, &change), StepAdmission::Mixed);
}
