//! Pulls: the hot path that reads. A software pipeline runs over blocks of keys (resolve.rs). It prefetches
//! index lines three blocks ahead and rows two blocks ahead. In measurements this was 2 to 2.5 times as fast as
//! code without prefetching.

use crate::error::PullError;
use crate::index::hash_index;
use crate::index::hash_index::NONE;
use crate::index::resolve::{BLOCK, KeyBlock};
use crate::schema::init::init_row;
use crate::schema::segment::Segments;
use crate::schema::table_schema::Schema;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::owned::width::{Width, by_width};
use crate::table::pushes::read_write::Read;
use crate::table::pushes::segment_rules::{Segmented, SelectedSegments};
use gannet_optim::{Cpu, Isa, Rule, Scalar, Update, Visitor, Work};

/// Blocks between the prefetch of a key's index line and the read of its row.
const STAGES: usize = 3;

struct PullRequest<'a> {
    shards: &'a mut Shards,
    keys: &'a [u64],
    read: Read,
    out: &'a mut [f32],
    slots: &'a mut Vec<u32>,
}

impl Shards {
    /// Reads a row for each key into `out`, which holds `keys.len()` times [`Schema::read_floats`] floats. A key
    /// without a row reads as its initial value, and no row is created. With `slots`, appends the slot of each key
    /// ([`NO_SLOT`](crate::NO_SLOT) for a key without a row), for use as a keyset. [`Shards`] has an example.
    ///
    /// # Errors
    /// A key of a shard that is not here, or a wrong length. `out` is then unspecified.
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
    /// [`Segments`] has an example.
    ///
    /// # Errors
    /// As [`Shards::pull`], or a segment that the rows do not have.
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
        let cpu = self.cpu;
        let result = dispatch(PullRequest { shards: self, keys, read, out, slots }, cpu, segments);
        self.scratch.slots = own;
        result
    }
}

/// A pull before its rule, row width and instruction set are chosen. The owner's pull and the pull through a
/// mapping share this choice, but each has its own loop over the rows. The owner answers from the stored row
/// and computes the initial value of a missing row. A reader copies the row between two reads of its version,
/// and counts misses.
pub(crate) trait PullLoop: Sized {
    /// What the pull returns besides its rows.
    type Out;

    fn schema(&self) -> &Schema;

    fn read(&self) -> Read;

    /// Answers `floats` floats for each key: the stored floats of its row with `STATE`, else its weights.
    /// Implementations are inlined, so that they are compiled for the instruction set of `isa`.
    fn run<I: Isa, U: Update, W: Width, const STATE: bool>(
        self,
        width: W,
        floats: usize,
        isa: I,
        rule: U,
    ) -> Result<Self::Out, PullError>;
}

/// Runs a pull of these segments with the table's rule, on the instruction set `cpu` or a narrower one.
pub(crate) fn dispatch<P: PullLoop>(call: P, cpu: Cpu, segments: Segments) -> Result<P::Out, PullError> {
    let cpu = cpu.fit(call.schema().dim as usize);
    let parts = call.schema().parts(None);
    if !parts.is_empty() {
        return run_segments(call, Segmented::new(&parts), segments);
    }
    match call.schema().rule {
        // Computing weights gains from wide registers. Other reads only copy.
        Rule::Ftrl(rule) if call.read() == Read::Weights => cpu.run(rule, Dispatch(call)),
        Rule::GroupFtrl(rule) if call.read() == Read::Weights => cpu.run(rule, Dispatch(call)),
        rule => rule.visit(Dispatch(call)),
    }
}

/// A pull of rows of several segments.
fn run_segments<P: PullLoop>(call: P, rule: Segmented<'_>, segments: Segments) -> Result<P::Out, PullError> {
    let (width, read) = (rule.width(), call.read());
    if segments != Segments::ALL {
        let floats = call.schema().read_floats_of(read, segments)?;
        let chosen = SelectedSegments { rule, segments, state: read == Read::State };
        return call.run::<_, _, _, false>(width.with_state(), floats, Scalar, chosen);
    }
    match read {
        Read::Weights => call.run::<_, _, _, false>(width, width.dim(), Scalar, rule),
        Read::State => call.run::<_, _, _, true>(width, width.floats::<Segmented<'_>>(), Scalar, rule),
    }
}

/// A pull of rows of one segment, before its rule is chosen.
struct Dispatch<P>(P);

impl<P: PullLoop> Visitor for Dispatch<P> {
    type Out = Result<P::Out, PullError>;

    fn run<U: Update>(self, rule: U) -> Self::Out {
        if U::ROUNDS {
            // Loops of their own would make the program much larger for a few nanoseconds a row.
            let parts = self.0.schema().all_parts(None);
            return run_segments(self.0, Segmented::new(&parts), Segments::ALL);
        }
        by_width!(self.0.schema().dim as usize, width => match self.0.read() {
            Read::Weights => self.0.run::<_, U, _, false>(width, width.dim(), Scalar, rule),
            Read::State => self.0.run::<_, U, _, true>(width, width.floats::<U>(), Scalar, rule),
        })
    }
}

impl<P: PullLoop> Work for Dispatch<P> {
    type Out = Result<P::Out, PullError>;

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out {
        by_width!(self.0.schema().dim as usize, width => self.0.run::<_, _, _, false>(width, width.dim(), isa, rule))
    }
}

impl PullLoop for PullRequest<'_> {
    type Out = ();

    fn schema(&self) -> &Schema {
        &self.shards.schema
    }

    fn read(&self) -> Read {
        self.read
    }

    #[inline(always)]
    fn run<I: Isa, U: Update, W: Width, const STATE: bool>(
        self,
        width: W,
        floats: usize,
        isa: I,
        rule: U,
    ) -> Result<(), PullError> {
        pull_keys::<I, U, W, STATE>(self, width, floats, isa, rule)
    }
}

/// The pipeline. An answer of `floats` floats is the row's stored floats with `STATE`, else its weights.
#[inline(always)]
fn pull_keys<I: Isa, U: Update, W: Width, const STATE: bool>(
    call: PullRequest<'_>,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
) -> Result<(), PullError> {
    let PullRequest { shards, keys, out, slots, .. } = call;
    let (stored, stride) = (width.floats::<U>(), width.stride::<U>());
    let Shards { schema, places, shards, scratch, .. } = shards;
    let blocks = keys.len().div_ceil(BLOCK);
    let mut ring = [KeyBlock::EMPTY; STAGES + 1];
    let from = slots.len();
    slots.resize(from + keys.len(), NONE);
    for b in 0..blocks + STAGES {
        if b < blocks {
            let keys = &keys[b * BLOCK..keys.len().min((b + 1) * BLOCK)];
            ring[b % (STAGES + 1)].locate(shards, places, keys)?;
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
        let found = keys[start..end].iter().zip(&mut slots[from + start..from + end]);
        for (i, ((&key, place), answer)) in found.zip(answers).enumerate() {
            let i = i % BLOCK; // lets the compiler see that it is in bounds
            let shard = &mut shards[block.owners[i] as usize];
            let mut slot = block.slots[i];
            if !holds(shard, slot, key) {
                slot = hash_index::find_slot(&shard.image, block.homes[i] as usize, block.hashes[i], key);
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

/// Writes into `row` the stored floats that a missing row would have.
#[cold]
#[inline(never)]
pub(crate) fn missing<U: Update>(schema: &Schema, rule: U, key: u64, init: &mut [f32], row: &mut [f32]) {
    let init = &mut init[..schema.weights()];
    schema.initial_weights(key, init);
    init_row(rule, key, init, row);
}

/// Whether `slot` of `shard` is the live row of `key`.
#[inline(always)]
pub(crate) fn holds(shard: &mut Shard, slot: u32, key: u64) -> bool {
    slot < shard.image.slots() && shard.image.row(slot).is(key)
}
