//! Pushes: the hot path that writes. A call divides its keys into runs, each of keys of one shard. A run is a
//! part of the push: the shard checks the part's name, then applies it row by row. Each row is one step of the
//! journal.

use crate::error::{PullError, PushError};
use crate::hash::{hash, shard_of};
use crate::index::hash_index;
use crate::index::hash_index::NONE;
use crate::index::resolve::{BLOCK, KeyBlock};
use crate::push_name::PushName;
use crate::schema::row_type::{RowType, row_chance};
use crate::schema::shard_set::ShardPlaces;
use crate::schema::table_schema::Schema;
use crate::table::damping::Damped;
use crate::table::effect::{Changes, Effect, Gradients, Terms, TransformedGradients, WholeRows, sound};
use crate::table::newest_incarnations::Incarnations;
use crate::table::part_end::{PartEnd, end_run};
use crate::table::part_progress::{PartProgress, PartStart};
use crate::table::pull::{holds, missing};
use crate::table::read_write::Write;
use crate::table::segment_rules::{SegmentGradients, Segmented};
use crate::table::shard::Shard;
use crate::table::shards::{CallBuffers, Shards};
use crate::table::vectors::Vectors;
use crate::table::width::{Any, Fixed, Width};
use gannet_optim::{Cpu, Isa, Scalar, Update, Work, all_finite};
use std::ops::Range;

/// How many rows ahead of the current one are prefetched.
const AHEAD: usize = 16;

/// The outcome of a push, in rows. [`Shards`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Rows applied now.
    pub applied: u32,
    /// Rows dropped because the shard already had their part.
    pub duplicate: u32,
    /// Rows dropped because a value or the resulting row is NaN or infinite, or because a change of state would
    /// make a row that the rule cannot produce, such as one with a negative sum of squares.
    pub not_finite: u32,
    /// Rows not created because this push of their keys was not admitted ([`Admission`](crate::Admission)).
    pub not_admitted: u32,
}

/// What a push says besides its name and its rows. By default the clock is 0, and the size is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// The clock that the schedule of the learning rate follows.
    pub clock: u64,
    /// Rows of the whole push, over all shards of the table; 0: unknown.
    pub total: u64,
}

struct PushRequest<'a> {
    shards: &'a mut Shards,
    name: &'a PushName,
    options: PushOptions,
    /// Rows behind those of the call that the last run has, and that were refused.
    refused: u32,
    write: Write,
    keys: &'a [u64],
    slots: &'a mut [u32],
    values: &'a [f32],
    applied: &'a mut Applied,
}

impl Shards {
    /// Applies a push, or a part of one. `values` holds [`Schema::write_floats`] floats for each key. Keys are
    /// in shard order: ascending by shard, in any order within a shard. A key that occurs twice in one call is
    /// applied twice, in order.
    ///
    /// The run of the first key may begin in an earlier part: `name.row` rows of the run come before this call.
    /// The runs of the other shards begin here. `slots` are a keyset's slots; wrong slots are corrected.
    /// Without slots, the keys are looked up. [`Shards`] has an example.
    ///
    /// # Errors
    /// See [`PushError`]. After any error, a caller that sends the same push again applies every row exactly once.
    pub fn push(
        &mut self,
        name: &PushName,
        write: Write,
        keys: &[u64],
        slots: Option<&mut [u32]>,
        values: &[f32],
    ) -> Result<Applied, PushError> {
        self.push_at(name, PushOptions { clock: name.seq, total: 0 }, write, keys, slots, values)
    }

    /// [`push`](Self::push), with a learning-rate schedule that follows a clock instead of the name's seq, and with the
    /// size of the whole push.
    ///
    /// # Errors
    /// As for `push`.
    pub fn push_at(
        &mut self,
        name: &PushName,
        options: PushOptions,
        write: Write,
        keys: &[u64],
        slots: Option<&mut [u32]>,
        values: &[f32],
    ) -> Result<Applied, PushError> {
        self.check_pusher(name.pusher, name.incarnation)?;
        self.push_part(name, (options, 0), write, keys, slots, values)
    }

    /// [`push_at`](Self::push_at) of a push whose last run has `refused` rows more: the shard remembers that it waits
    /// for them. Only the shards of the keys decide whether the pusher is fenced.
    pub(crate) fn push_part(
        &mut self,
        name: &PushName,
        (options, refused): (PushOptions, u32),
        write: Write,
        keys: &[u64],
        slots: Option<&mut [u32]>,
        values: &[f32],
    ) -> Result<Applied, PushError> {
        let clock = options.clock;
        if matches!(write, Write::Change | Write::Damped) && !self.schema.replays() {
            return Err(PushError::NoReplay(self.schema.name.clone(), self.schema.rule_without_replay()));
        }
        if write == Write::Damped && !self.schema.counts() {
            return Err(PushError::NoCount(self.schema.name.clone()));
        }
        if write == Write::Sum && Vectors::of(&self.schema).is_none() {
            let (table, why) =
                (self.schema.name.clone(), "only tables of vectors take sums of a pass".into());
            return Err(PushError::Program { table, why });
        }
        let want = keys.len() * self.schema.write_floats(write);
        if values.len() != want {
            return Err(PullError::Length { what: "floats of the push", got: values.len(), want }.into());
        }
        if write == Write::Delete {
            return self.delete(name, options, keys);
        }
        let by_keyset = slots.is_some();
        let mut own = std::mem::take(&mut self.scratch.slots);
        let result = self.runs(keys, &mut own, slots.as_deref(), by_keyset).and_then(|()| {
            let slots = slots.unwrap_or(&mut own);
            let mut applied = Applied::default();
            // The learning rate depends on the push's name, so a resend has the same rate.
            let rule = self.schema.rule.at_rate(self.schema.shaping.schedule.factor(clock));
            let cpu = match write {
                Write::Gradient => self.cpu.fit(self.schema.dim as usize),
                Write::Change | Write::Sum | Write::Damped | Write::Row | Write::Delete => Cpu::Scalar,
            };
            let call = PushRequest {
                shards: self,
                name,
                options,
                refused,
                write,
                keys,
                slots,
                values,
                applied: &mut applied,
            };
            let parts = call.shards.schema.parts(Some(clock));
            let pushed = if parts.is_empty() {
                rule.work(cpu, call)
            } else {
                call.run_segments(Segmented::new(&parts))
            };
            pushed.map(|()| applied)
        });
        self.scratch.slots = own;
        result
    }

    /// Divides the keys into runs, without their slots.
    pub(crate) fn cut_runs(&mut self, keys: &[u64]) -> Result<(), PushError> {
        let Shards { places, shards, scratch, .. } = self;
        scratch.runs.clear();
        cut(keys, places, shards.len(), &mut scratch.runs)
    }

    /// Divides the keys into runs. Without a keyset, also finds the likely slot of each key and prefetches its row.
    fn runs(
        &mut self,
        keys: &[u64],
        own: &mut Vec<u32>,
        slots: Option<&[u32]>,
        by_keyset: bool,
    ) -> Result<(), PushError> {
        if let Some(slots) = slots
            && slots.len() != keys.len()
        {
            return Err(PullError::Length { what: "slots", got: slots.len(), want: keys.len() }.into());
        }
        let stride = self.schema.stride();
        let Shards { places, shards, scratch, .. } = self;
        scratch.runs.clear();
        own.clear();
        own.resize(if by_keyset { 0 } else { keys.len() }, NONE);
        if by_keyset {
            return cut(keys, places, shards.len(), &mut scratch.runs);
        }
        let blocks = keys.len().div_ceil(BLOCK);
        let mut ring = [KeyBlock::EMPTY; 3];
        let mut last = NONE;
        for b in 0..blocks + 2 {
            if b < blocks {
                let keys = &keys[b * BLOCK..keys.len().min((b + 1) * BLOCK)];
                let block = &mut ring[b % 3];
                block.locate(shards, places, keys)?;
                for (i, &owner) in block.owners.iter().enumerate().take(keys.len()) {
                    if owner != last {
                        if last != NONE && owner < last {
                            return Err(PushError::Order(b * BLOCK + i));
                        }
                        scratch.runs.push((owner, (b * BLOCK + i) as u32));
                        last = owner;
                    }
                }
            }
            if b >= 1 && b - 1 < blocks {
                ring[(b - 1) % 3].candidates(shards, stride);
            }
            if b >= 2 {
                let block = &mut ring[(b - 2) % 3];
                block.second_look(shards, stride);
                let own = &mut own[(b - 2) * BLOCK..];
                let n = own.len().min(BLOCK);
                own[..n].copy_from_slice(&block.slots[..n]);
            }
        }
        Ok(())
    }
}

/// Divides keys into runs. Their slots are known, or not needed.
#[inline(never)] // within its caller the loop needs 3 instructions more a key
fn cut(
    keys: &[u64],
    places: &ShardPlaces,
    shards: usize,
    runs: &mut Vec<(u32, u32)>,
) -> Result<(), PushError> {
    let mut last = NONE;
    for (i, &key) in keys.iter().enumerate() {
        let number = shard_of(hash(key), places.table());
        let owner = places.place(number);
        if owner != last {
            if owner as usize >= shards {
                return Err(PullError::WrongShard { key, shard: number }.into());
            }
            if last != NONE && owner < last {
                return Err(PushError::Order(i));
            }
            runs.push((owner, i as u32));
            last = owner;
        }
    }
    Ok(())
}

impl Work for PushRequest<'_> {
    type Out = Result<(), PushError>;

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out {
        let Schema { dim, shaping, .. } = self.shards.schema;
        let (dim, write) = (dim as usize, self.write);
        if U::ROUNDS {
            // Only what trainings do most has loops of its own: they make the program larger.
            return match (write, dim) {
                (Write::Gradient, _) if shaping.changes_gradients() => self.run_all_parts(),
                (Write::Gradient, 16) if I::LANES > 1 => push(self, Fixed::<16>, dim, isa, rule, Gradients),
                (Write::Gradient, _) => push(self, Any(dim), dim, isa, rule, Gradients),
                _ => self.run_all_parts(),
            };
        }
        if I::LANES > 1 {
            // Wide registers serve only gradients of long rows. Shards::push runs other work with scalar code.
            return match dim {
                16 if !shaping.changes_gradients() => push(self, Fixed::<16>, dim, isa, rule, Gradients),
                _ if !shaping.changes_gradients() => push(self, Any(dim), dim, isa, rule, Gradients),
                _ => push(self, Any(dim), dim, isa, rule, TransformedGradients::new(shaping, dim)),
            };
        }
        match (write, dim) {
            (Write::Gradient, _) if shaping.changes_gradients() => {
                push(self, Any(dim), dim, isa, rule, TransformedGradients::new(shaping, dim))
            }
            (Write::Gradient, 1) => push(self, Fixed::<1>, 1, isa, rule, Gradients),
            (Write::Gradient, _) => push(self, Any(dim), dim, isa, rule, Gradients),
            (Write::Change, 1) => push(self, Fixed::<1>, U::floats(1), isa, rule, Changes),
            (Write::Change, _) => push(self, Any(dim), U::floats(dim), isa, rule, Changes),
            (Write::Row, _) => push(self, Any(dim), U::floats(dim), isa, rule, WholeRows),
            // Rows of vectors and rows of a counting table have several segments, so run_segments applies their
            // pushes.
            (Write::Sum | Write::Damped | Write::Delete, _) => {
                let (table, why) = (self.shards.schema.name.clone(), "its rows have one segment".into());
                Err(PushError::Program { table, why })
            }
        }
    }
}

impl PushRequest<'_> {
    /// Applies a push to rows of one segment as if there were several.
    #[inline(never)]
    fn run_all_parts(self) -> Result<(), PushError> {
        let parts = self.shards.schema.all_parts(Some(self.options.clock));
        self.run_segments(Segmented::new(&parts))
    }

    /// Applies a push to rows of several segments.
    fn run_segments(self, rule: Segmented<'_>) -> Result<(), PushError> {
        let width = rule.width();
        match self.write {
            Write::Row => push(self, width, width.floats::<Segmented<'_>>(), Scalar, rule, WholeRows),
            Write::Gradient => push(self, width, width.dim(), Scalar, rule, SegmentGradients::new(rule)),
            Write::Change => {
                let floats = width.floats::<Segmented<'_>>();
                push(self, width, floats, Scalar, rule, Changes)
            }
            Write::Damped => {
                let floats = width.floats::<Segmented<'_>>();
                push(self, width, floats, Scalar, rule, Damped)
            }
            Write::Delete => {
                let (table, why) =
                    (self.shards.schema.name.clone(), "deletions have no effect to apply".into());
                Err(PushError::Program { table, why })
            }
            Write::Sum => {
                let terms = Terms { pass: Vectors::pass_of(self.name.seq) };
                push(self, width, 2, Scalar, rule, terms)
            }
        }
    }
}

/// Applies every run.
#[inline(always)]
fn push<I: Isa, U: Update, W: Width, E: Effect>(
    call: PushRequest<'_>,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
    mut effect: E,
) -> Result<(), PushError> {
    let Shards { schema, shards, scratch, incarnations, listener, .. } = call.shards;
    // A resend of the push, and a copy of the shard, round in the same way.
    let rounds = U::ROUNDS && schema.row_type() == RowType::Bf16;
    let push_chance = if rounds { schema.push_chance(call.name) } else { 0 };
    for r in 0..scratch.runs.len() {
        let (run, last) = (&scratch.runs[r..], (call.keys.len(), call.refused));
        let name = (call.name, call.options.total, r == 0);
        let Some((owner, range, part)) = begin_run(shards, incarnations, run, name, last, call.applied)?
        else {
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
        let result = if shard.journal.on {
            apply::<I, U, W, E, true>(
                shard,
                run,
                scratch,
                width,
                floats,
                isa,
                rule,
                &mut effect,
                call.applied,
            )
        } else {
            apply::<I, U, W, E, false>(
                shard,
                run,
                scratch,
                width,
                floats,
                isa,
                rule,
                &mut effect,
                call.applied,
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

/// Begins the first of `runs` as a part of the push. `first`: it is the push's first run, the only one that may have
/// rows in an earlier call. `keys`: how many keys the call has, and how many rows more its last run has. Returns the
/// place of the run's shard, its range in the keys of the call, and the part; `None` when the shard has all its rows.
pub(crate) fn begin_run(
    shards: &mut [Shard],
    incarnations: &mut Incarnations,
    runs: &[(u32, u32)],
    (name, total, first): (&PushName, u64, bool),
    (keys, more): (usize, u32),
    applied: &mut Applied,
) -> Result<Option<(usize, Range<usize>, PartProgress)>, PushError> {
    let (owner, from) = (runs[0].0 as usize, runs[0].1 as usize);
    let (to, more) = runs.get(1).map_or((keys, more), |next| (next.1 as usize, 0));
    let name = if first { *name } else { PushName { row: 0, ..*name } };
    match shards[owner].begin_part(&name, (to - from) as u32 + more, total)? {
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

/// Applies rows `start..` of a run. An error comes with the number of rows that were applied.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the innermost loop would unpack a struct at once
fn apply<I: Isa, U: Update, W: Width, E: Effect, const JOURNAL: bool>(
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
            slot = hash_index::find(&shard.image, shard.geometry.home(h), h, key);
            if slot == NONE {
                // A value that can never be applied does not count towards admission.
                if !E::CREATES && all_finite(value) && !shard.admits(schema, name, key) {
                    applied.not_admitted += 1;
                    continue;
                }
                missing(schema, rule, key, init, next);
                effect.apply(isa, rule, next, value, chance);
                if sound(rule, value, next) {
                    slots[j] = shard.insert_row(key, next).map_err(|e| (j as u32, e))?;
                    applied.applied += 1;
                } else {
                    applied.not_finite += 1;
                    shard.skip_step();
                }
                continue;
            }
            slots[j] = slot;
        }
        next.copy_from_slice(shard.image.row(slot).floats(stored));
        effect.apply(isa, rule, next, value, chance);
        if !sound(rule, value, next) {
            applied.not_finite += 1;
            shard.skip_step();
            continue;
        }
        shard.write_row::<JOURNAL>(slot, next.len(), |row| row.copy_from_slice(next));
        applied.applied += 1;
    }
    Ok(())
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
