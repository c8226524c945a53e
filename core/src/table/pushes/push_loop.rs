//! The loop of a push over its rows: the hot path that writes. Each rule, width, effect and instruction set has a loop
//! of its own.

use crate::error::PushError;
use crate::hash::hash;
use crate::index::hash_index;
use crate::index::hash_index::NONE;
use crate::push_name::PushName;
use crate::schema::row_type::{RowType, row_chance};
use crate::schema::table_schema::Schema;
use crate::table::eviction::refused_changes::is_refused;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::{CallBuffers, Shards};
use crate::table::owned::width::Width;
use crate::table::progress::newest_incarnations::Incarnations;
use crate::table::progress::part_end::{PartEnd, end_run};
use crate::table::progress::part_progress::{PartProgress, PartStart};
use crate::table::pulls::pull::{holds, missing};
use crate::table::pushes::effect::{Effect, sound};
use crate::table::pushes::push_request::{Applied, PushRequest};
use gannet_optim::{Isa, Update, all_finite};
use std::ops::Range;

/// How many rows ahead of the current one are prefetched.
const AHEAD: usize = 16;

/// Applies every run.
#[inline(always)]
pub(crate) fn push_rows<I: Isa, U: Update, W: Width, E: Effect>(
    call: PushRequest<'_>,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
    mut effect: E,
) -> Result<(), PushError> {
    let Shards { schema, shards, scratch, incarnations, listener, .. } = call.shards;
    // A resend of the push, and a copy of the shard, round in the same way.
    let rounds = U::ROUNDS && schema.row_type() != RowType::F32;
    let push_chance = if rounds { schema.push_chance(call.name) } else { 0 };
    for r in 0..scratch.runs.len() {
        let (keys, more) = (call.keys.len(), call.refused);
        let of = RunCall { name: call.name, total: call.options.total, is_first: r == 0, keys, more };
        let begun = begin_run(shards, incarnations, &scratch.runs[r..], &of, call.applied)?;
        let Some((owner, range, part)) = begun else {
            continue;
        };
        let (shard, start) = (&mut shards[owner], part.from as usize);
        let run = ShardRun {
            schema,
            name: call.name,
            push_chance,
            keys: &call.keys[range.clone()],
            slots: &mut call.slots[range.clone()],
            values: &call.values[range.start * floats..range.end * floats],
            start,
        };
        let applied = &mut *call.applied;
        let result = if E::OFTEN && !shard.journal.on {
            apply_rule::<I, U, W, E, false>(
                shard,
                run,
                scratch,
                width,
                floats,
                isa,
                rule,
                &mut effect,
                applied,
            )
        } else {
            apply_rule::<I, U, W, E, true>(
                shard,
                run,
                scratch,
                width,
                floats,
                isa,
                rule,
                &mut effect,
                applied,
            )
        };
        let part_end = PartEnd {
            name: call.name,
            first: r == 0,
            clock: call.options.clock,
            total: call.options.total,
            write: call.write,
            keys: &call.keys[range.clone()],
            values: &call.values[range.start * floats..range.end * floats],
            refused: if range.end == call.keys.len() { call.refused } else { 0 },
        };
        end_run(shard, part, &result, listener, part_end);
        result.map_err(|(_, e)| e)?;
    }
    Ok(())
}

/// The call of a push that a run is of.
pub(crate) struct RunCall<'a> {
    pub(crate) name: &'a PushName,
    /// The rows of the whole push.
    pub(crate) total: u64,
    /// The run is the first one of the call, the only one that may have rows in an earlier call.
    pub(crate) is_first: bool,
    /// How many keys the call has.
    pub(crate) keys: usize,
    /// How many rows more its last run has.
    pub(crate) more: u32,
}

/// Begins the first of `runs` as a part of the push. Returns the place of the run's shard, its range in the keys of the
/// call, and the part; `None` when the shard has all its rows.
pub(crate) fn begin_run(
    shards: &mut [Shard],
    incarnations: &mut Incarnations,
    runs: &[(u32, u32)],
    call: &RunCall<'_>,
    applied: &mut Applied,
) -> Result<Option<(usize, Range<usize>, PartProgress)>, PushError> {
    let (owner, from) = (runs[0].0 as usize, runs[0].1 as usize);
    let (to, more) = runs.get(1).map_or((call.keys, call.more), |next| (next.1 as usize, 0));
    let name = if call.is_first { *call.name } else { PushName { row: 0, ..*call.name } };
    match shards[owner].begin_part(&name, (to - from) as u32 + more, call.total)? {
        PartStart::Duplicate => {
            applied.duplicate += (to - from) as u32;
            Ok(None)
        }
        PartStart::From(part) => {
            incarnations.raise(name.pusher, name.incarnation);
            applied.duplicate += part.from.min((to - from) as u32);
            Ok(Some((owner, from..to, part)))
        }
    }
}

/// The rows of one part in one shard. Rows before `start` were applied before.
struct ShardRun<'a> {
    schema: &'a Schema,
    name: &'a PushName,
    push_chance: u64,
    keys: &'a [u64],
    slots: &'a mut [u32],
    values: &'a [f32],
    start: usize,
}

/// Applies rows `start..` of a run. Without `JOURNAL`, the shard's journal is off. An error comes with the number of
/// rows that were applied.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the innermost loop would unpack a struct at once
fn apply_rule<I: Isa, U: Update, W: Width, E: Effect, const JOURNAL: bool>(
    shard: &mut Shard,
    run: ShardRun<'_>,
    scratch: &mut CallBuffers,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
    effect: &mut E,
    applied: &mut Applied,
) -> Result<(), (u32, PushError)> {
    let (stored, stride) = (width.floats::<U>(), width.stride::<U>());
    let ShardRun { schema, name, push_chance, keys, slots, values, start } = run;
    // The new row: on the stack or in registers if it is short.
    let mut short = [0f32; 64];
    let CallBuffers { row: long, init, .. } = scratch;
    let next: &mut [f32] = if stored <= 64 { &mut short[..stored] } else { &mut long[..stored] };
    for j in start..keys.len() {
        prefetch_at(shard, keys, slots, j + AHEAD, stride);
        let (key, value) = (keys[j], &values[j * floats..j * floats + floats]);
        let chance = if U::ROUNDS { row_chance(push_chance, key) } else { 0 };
        let mut slot = slots[j];
        if !holds(shard, slot, key) {
            let h = hash(key);
            slot = hash_index::find_slot(&shard.image, shard.geometry.home(h), h, key);
            if slot == NONE {
                // A value that can never be applied does not count towards admission.
                if !E::CREATES && all_finite(value) && !shard.admits(schema, name, key) {
                    applied.not_admitted += 1;
                    continue;
                }
                missing(schema, rule, key, init, next);
                effect.apply(isa, rule, next, value, chance);
                if sound(rule, key, value, next) {
                    slots[j] = shard.insert_row(key, next).map_err(|e| (j as u32, e))?;
                    applied.applied += 1;
                } else {
                    drop_row(shard, value, applied);
                }
                continue;
            }
            slots[j] = slot;
        }
        next.copy_from_slice(shard.image.row(slot).floats(stored));
        effect.apply(isa, rule, next, value, chance);
        if !sound(rule, key, value, next) {
            drop_row(shard, value, applied);
            continue;
        }
        shard.write_row::<JOURNAL>(slot, next.len(), |row| row.copy_from_slice(next));
        applied.applied += 1;
    }
    Ok(())
}

/// Counts a row that cannot be applied, which is a step all the same.
#[cold]
#[inline(never)]
fn drop_row(shard: &mut Shard, value: &[f32], applied: &mut Applied) {
    *(if is_refused(value) { &mut applied.refused } else { &mut applied.not_finite }) += 1;
    shard.skip_step();
}

/// Prefetches the row of key `j` of a run, and the key's bucket if its slot is not known. Does nothing past the
/// end of the run.
#[inline(always)]
fn prefetch_at(shard: &Shard, keys: &[u64], slots: &[u32], j: usize, stride: usize) {
    if let Some(&slot) = slots.get(j) {
        if slot == NONE {
            let h = hash(keys[j]);
            shard.image.prefetch_bucket(shard.geometry.home(h));
        }
        shard.image.prefetch_row(slot, stride);
    }
}
