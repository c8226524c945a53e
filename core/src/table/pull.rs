//! Pulls: the hot path that reads. A software pipeline runs over blocks of keys (resolve.rs): index lines are asked for
//! three blocks ahead, rows two blocks ahead (spikes: 2 to 2.5 times the speed of no prefetching).

use crate::error::PullError;
use crate::index::hash_index;
use crate::index::hash_index::NONE;
use crate::index::resolve::{BLOCK, KeyBlock};
use crate::schema::segment::Segments;
use crate::schema::table_schema::Schema;
use crate::table::read_write::Read;
use crate::table::segment_rules::{Segmented, SelectedSegments};
use crate::table::shard::Shard;
use crate::table::shards::Shards;
use crate::table::width::{Width, by_width};
use gannet_optim::{Isa, Rule, Scalar, Update, Visitor, Work};

/// Blocks between a key's index line being asked for and its row being read.
const STAGES: usize = 3;

struct PullRequest<'a> {
    shards: &'a mut Shards,
    keys: &'a [u64],
    read: Read,
    out: &'a mut [f32],
    slots: &'a mut Vec<u32>,
}

impl Shards {
    /// Reads a row for each key into `out`, which holds `keys.len()` times [`Schema::read_floats`] floats. A key without
    /// a row reads as its initial value; nothing is created. With `slots`, appends each key's slot
    /// ([`NO_SLOT`](crate::NO_SLOT) when it has none): a keyset.
    ///
    /// # Errors
    /// A key of a shard that is not here, or lengths that do not agree; `out` is then unspecified.
    pub fn pull(
        &mut self,
        keys: &[u64],
        read: Read,
        out: &mut [f32],
        slots: Option<&mut Vec<u32>>,
    ) -> Result<(), PullError> {
        self.pull_segments(keys, read, Segments::ALL, out, slots)
    }

    /// [`Shards::pull`] of some segments of each row: `out` holds `keys.len()` times [`Schema::read_floats_of`] floats.
    ///
    /// # Errors
    /// As [`Shards::pull`]; or segments that rows do not have.
    pub fn pull_segments(
        &mut self,
        keys: &[u64],
        read: Read,
        segments: Segments,
        out: &mut [f32],
        slots: Option<&mut Vec<u32>>,
    ) -> Result<(), PullError> {
        let want = keys.len() * self.schema.read_floats_of(read, segments)?;
        if out.len() != want {
            return Err(PullError::Length { what: "floats of the answer", got: out.len(), want });
        }
        let mut own = std::mem::take(&mut self.scratch.slots);
        own.clear();
        let slots = slots.unwrap_or(&mut own);
        let cpu = self.cpu.fit(self.schema.dim as usize);
        let rule = self.schema.rule;
        let call = PullRequest { shards: self, keys, read, out, slots };
        let parts = call.shards.schema.parts(None);
        let result = match rule {
            _ if !parts.is_empty() => call.run_segments(Segmented(&parts), segments),
            // Weights that are derived are worth wide registers; the others are copied.
            Rule::Ftrl(rule) if read == Read::Weights => cpu.run(rule, call),
            Rule::GroupFtrl(rule) if read == Read::Weights => cpu.run(rule, call),
            rule => rule.visit(call),
        };
        self.scratch.slots = own;
        result
    }
}

impl Visitor for PullRequest<'_> {
    type Out = Result<(), PullError>;

    fn run<U: Update>(self, rule: U) -> Self::Out {
        let read = self.read;
        by_width!(self.shards.schema.dim as usize, width => match read {
            Read::Weights => pull::<_, U, _, false>(self, width, width.dim(), Scalar, rule),
            Read::State => pull::<_, U, _, true>(self, width, width.floats::<U>(), Scalar, rule),
        })
    }
}

impl Work for PullRequest<'_> {
    type Out = Result<(), PullError>;

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out {
        by_width!(self.shards.schema.dim as usize, width => pull::<_, _, _, false>(self, width, width.dim(), isa, rule))
    }
}

impl PullRequest<'_> {
    /// The same for rows of several segments.
    fn run_segments(self, rule: Segmented<'_>, segments: Segments) -> Result<(), PullError> {
        let width = rule.width();
        if segments != Segments::ALL {
            let floats = self.shards.schema.read_floats_of(self.read, segments)?;
            let chosen = SelectedSegments { of: rule, segments, state: self.read == Read::State };
            return pull::<_, _, _, false>(self, width, floats, Scalar, chosen);
        }
        match self.read {
            Read::Weights => pull::<_, _, _, false>(self, width, width.dim(), Scalar, rule),
            Read::State => {
                let floats = width.floats::<Segmented<'_>>();
                pull::<_, _, _, true>(self, width, floats, Scalar, rule)
            }
        }
    }
}

/// The pipeline. The stored floats of a row, or with `STATE` false its weights, are the `floats` floats of its answer.
#[inline(always)]
fn pull<I: Isa, U: Update, W: Width, const STATE: bool>(
    call: PullRequest<'_>,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
) -> Result<(), PullError> {
    let PullRequest { shards, keys, out, slots, .. } = call;
    let (stored, stride) = (width.floats::<U>(), width.stride::<U>());
    let Shards { schema, first, shards, scratch, .. } = shards;
    let blocks = keys.len().div_ceil(BLOCK);
    let mut ring = [KeyBlock::EMPTY; STAGES + 1];
    let from = slots.len();
    slots.resize(from + keys.len(), NONE);
    for b in 0..blocks + STAGES {
        if b < blocks {
            let keys = &keys[b * BLOCK..keys.len().min((b + 1) * BLOCK)];
            ring[b % (STAGES + 1)].locate(shards, schema.shards, *first, keys)?;
        }
        if b >= 1 && b - 1 < blocks {
            ring[(b - 1) % (STAGES + 1)].candidates(shards, stride);
        }
        if b >= 2 && b - 2 < blocks {
            ring[(b - 2) % (STAGES + 1)].second_look(shards, stride);
        }
        let Some(b) = b.checked_sub(STAGES) else { continue };
        let block = &ring[b % (STAGES + 1)];
        let (start, end) = (b * BLOCK, keys.len().min((b + 1) * BLOCK));
        let answers = out[start * floats..end * floats].chunks_exact_mut(floats);
        let places = keys[start..end].iter().zip(&mut slots[from + start..from + end]);
        for (i, ((&key, place), answer)) in places.zip(answers).enumerate() {
            let i = i % BLOCK; // in bounds, as the compiler can see
            let shard = &mut shards[block.owners[i] as usize];
            let mut slot = block.slots[i];
            if !holds(shard, slot, key) {
                slot = hash_index::find(&shard.image, block.homes[i] as usize, block.hashes[i], key);
            }
            *place = slot;
            if slot == NONE {
                missing(schema, rule, key, &mut scratch.init, &mut scratch.row);
                answer_with::<I, U, STATE>(isa, rule, &scratch.row, answer);
            } else {
                answer_with::<I, U, STATE>(isa, rule, shard.image.row(slot).floats(stored), answer);
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn answer_with<I: Isa, U: Update, const STATE: bool>(isa: I, rule: U, row: &[f32], answer: &mut [f32]) {
    if STATE {
        answer.copy_from_slice(row);
    } else {
        rule.weights_on(isa, row, answer);
    }
}

/// The stored floats of a row that is not there, into `row`.
#[cold]
#[inline(never)]
pub(crate) fn missing<U: Update>(schema: &Schema, rule: U, key: u64, init: &mut [f32], row: &mut [f32]) {
    let init = &mut init[..schema.weights()];
    schema.initial_weights(key, init);
    rule.init(init, row);
}

/// Whether `slot` of `shard` is the live row of `key`.
#[inline(always)]
pub(crate) fn holds(shard: &mut Shard, slot: u32, key: u64) -> bool {
    slot < shard.image.slots() && shard.image.row(slot).is(key)
}
