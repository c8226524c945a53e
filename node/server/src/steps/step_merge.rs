//! How the pushes of several workers in one synchronous step become one push.

use crate::steps::step::{DataNames, StepNote, WorkerStep};
use gannet_core::{PushName, hash, shard_of};
use gannet_wire::key_hash_builder::KeyHashBuilder;
use gannet_wire::sync::Merge;
use std::collections::HashMap;
use std::ops::Range;

/// Rows of one worker in a step.
pub(crate) struct WorkerRows<'a> {
    pub(crate) rank: u32,
    pub(crate) keys: &'a [u64],
    pub(crate) values: &'a [f32],
}

/// How the rows of a step become one push.
pub(crate) struct StepMerge<F> {
    pub(crate) merge: Merge,
    /// Floats of a row, by the kind of push.
    pub(crate) floats: F,
    /// Shards of the table.
    pub(crate) shards: u32,
}

/// The part of a step that is not applied yet.
pub(crate) struct UnappliedStep<'a> {
    pub(crate) rows: Vec<WorkerRows<'a>>,
    pub(crate) notes: Vec<StepNote>,
    /// Workers whose data is missing on a shard that already has the step.
    pub(crate) late: u32,
}

/// The rows of a step that no shard has yet, and their names. If two workers pushed the same data in it, because the
/// first was given up, the first one's rows count. `whole`: whether a shard has the whole step; `None` if no shard is
/// ahead.
pub(crate) fn unapplied_rows<'a>(
    parts: &[(u32, &'a WorkerStep)],
    floats: usize,
    table: u32,
    mut has: impl FnMut(u32, &PushName) -> bool,
    whole: Option<&dyn Fn(u32) -> bool>,
) -> UnappliedStep<'a> {
    let (mut all, mut notes, mut late) = (Vec::new(), Vec::new(), 0);
    let mut owners = HashMap::<(u32, u64, u64, u64), u32>::new();
    for &(rank, worker_step) in parts {
        let mut take = |range: Range<usize>| {
            let (keys, values) = (
                &worker_step.keys[range.clone()],
                &worker_step.values[range.start * floats..range.end * floats],
            );
            all.push(WorkerRows { rank, keys, values });
        };
        let shard = |key: &u64| shard_of(hash(*key), table);
        match whole {
            _ if !worker_step.named.is_empty() => {}
            None => take(0..worker_step.keys.len()),
            Some(whole) => {
                let mut start = 0;
                for run in worker_step.keys.chunk_by(|a, b| shard(a) == shard(b)) {
                    let from = start;
                    start += run.len();
                    if !whole(shard(&run[0])) {
                        take(from..start);
                    }
                }
            }
        }
        for DataNames { name, total, keys, ends } in &worker_step.named {
            let mut rest = keys.clone();
            for &(shard, end) in ends {
                let here = |key: &u64| shard_of(hash(*key), table) == shard;
                let rows = worker_step.keys[rest.clone()].iter().take_while(|key| here(key)).count();
                let run = rest.start..rest.start + rows;
                rest.start = run.end;
                let name = PushName { row: end, ..*name };
                // A step has all rows that a push has in a shard, or none of them.
                if has(shard, &name) {
                    continue;
                }
                // Decided shard by shard: after a restart the first worker may resend only a part of its push.
                let push = (shard, name.pusher, name.incarnation, name.seq);
                if whole.is_some_and(|whole| whole(shard)) {
                    late |= 1 << rank;
                } else if *owners.entry(push).or_insert(rank) == rank {
                    take(run);
                    notes.push(StepNote { shard, name, total: *total });
                }
            }
        }
    }
    UnappliedStep { rows: all, notes, late }
}

/// Merges the rows of several workers into one row for each key. The row is the sum in the order of ranks, or this sum
/// divided by the number of ranks that have the key. Keys come in ascending order of shard, and within a shard in the
/// order in which they first came. So the order and the sums depend only on what each worker sent to a shard.
pub(crate) fn merge_rows(
    parts: &[WorkerRows<'_>],
    floats: usize,
    merge: Merge,
    shards: u32,
) -> (Vec<u64>, Vec<f32>) {
    let most = parts.iter().map(|rows| rows.keys.len()).sum();
    let mut places =
        HashMap::<u64, u32, KeyHashBuilder>::with_capacity_and_hasher(most, KeyHashBuilder::default());
    let (mut keys, mut sums): (Vec<u64>, Vec<f32>) = (Vec::new(), Vec::new());
    // For each key: how many ranks have it, and the last of them.
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    for &WorkerRows { rank, keys: own, values } in parts {
        for (&key, row) in own.iter().zip(values.chunks_exact(floats)) {
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
