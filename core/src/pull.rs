//! Pulls: the hot path that reads. A software pipeline runs over the keys of a call: the index line of key i + 2D and
//! the row of key i + D are asked for while key i is copied (spikes: 2 to 2.5 times the speed of no prefetching).

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::index::{self, NONE};
use crate::init::initial_weights;
use crate::schema::Schema;
use crate::shard::Shard;
use crate::table::{Read, Shards};
use crate::width::{Width, by_width};
use gannet_optim::{Update, Visitor};

/// Keys between the stages of the pipeline.
const AHEAD: usize = 16;
const RING: usize = 4 * AHEAD;
const _: () = assert!(RING.is_power_of_two() && RING > 2 * AHEAD);

struct Pull<'a> {
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
        let want = keys.len() * self.schema.read_floats(read);
        if out.len() != want {
            return Err(PullError::Length { what: "floats of the answer", got: out.len(), want });
        }
        let mut own = std::mem::take(&mut self.scratch.slots);
        own.clear();
        let slots = slots.unwrap_or(&mut own);
        let rule = self.schema.rule;
        let result = rule.visit(Pull { shards: self, keys, read, out, slots });
        self.scratch.slots = own;
        result
    }
}

impl Visitor for Pull<'_> {
    type Out = Result<(), PullError>;

    fn run<U: Update>(self, rule: U) -> Self::Out {
        let read = self.read;
        by_width!(self.shards.schema.dim as usize, width => match read {
            Read::Weights => pull(self, width, width.dim(), rule, |rule, row, out| rule.weights(row, out)),
            Read::State => pull(self, width, width.dim() * U::PLANES, rule, |_, row, out| out.copy_from_slice(row)),
        })
    }
}

/// The pipeline. `read` turns the stored floats of a row into `floats` floats of the answer.
#[inline(always)]
fn pull<U: Update, W: Width>(
    call: Pull<'_>,
    width: W,
    floats: usize,
    rule: U,
    read: impl Fn(U, &[f32], &mut [f32]),
) -> Result<(), PullError> {
    let Pull { shards, keys, out, slots, .. } = call;
    let stored = width.dim() * U::PLANES;
    let Shards { schema, first, shards, scratch, .. } = shards;
    let mut hashes = [0u64; RING];
    let mut homes = [0usize; RING];
    let mut owners = [0usize; RING];
    let mut candidates = [NONE; RING];
    let n = keys.len();
    slots.reserve(n);
    let mut answers = out.chunks_exact_mut(floats);
    for i in 0..n + 2 * AHEAD {
        if let Some(&key) = keys.get(i) {
            let h = hash(key);
            let owner = shard_of(h, schema.shards).wrapping_sub(*first) as usize;
            let Some(shard) = shards.get(owner) else {
                return Err(PullError::WrongShard { key, shard: shard_of(h, schema.shards) });
            };
            let home = shard.geometry.home(h);
            shard.image.prefetch_bucket(home);
            (hashes[i % RING], homes[i % RING], owners[i % RING]) = (h, home, owner);
        }
        if i >= AHEAD && i - AHEAD < n {
            let r = (i - AHEAD) % RING;
            let shard = &shards[owners[r]];
            candidates[r] = index::candidate(&shard.image, homes[r], hashes[r]);
            if candidates[r] != NONE {
                shard.image.prefetch_row(candidates[r]);
            }
        }
        // Half a stage on, keys in an overflow bucket get their turn.
        if i >= AHEAD + AHEAD / 2 && i - AHEAD - AHEAD / 2 < n {
            let r = (i - AHEAD - AHEAD / 2) % RING;
            if candidates[r] == NONE {
                let shard = &shards[owners[r]];
                candidates[r] = index::second_candidate(&shard.image, homes[r], hashes[r]);
                if candidates[r] != NONE {
                    shard.image.prefetch_row(candidates[r]);
                }
            }
        }
        if i >= 2 * AHEAD {
            let j = i - 2 * AHEAD;
            let r = j % RING;
            let (key, shard) = (keys[j], &mut shards[owners[r]]);
            let Some(answer) = answers.next() else { break };
            let mut slot = candidates[r];
            if slot >= shard.image.slots() || !shard.image.row(slot).is(key) {
                slot = index::find(&shard.image, homes[r], hashes[r], key);
            }
            slots.push(slot);
            if slot == NONE {
                missing(schema, rule, key, &mut scratch.init, &mut scratch.row);
                read(rule, &scratch.row, answer);
            } else {
                read(rule, shard.image.row(slot).floats(stored), answer);
            }
        }
    }
    Ok(())
}

/// The stored floats of a row that is not there, into `row`.
#[cold]
#[inline(never)]
pub(crate) fn missing<U: Update>(schema: &Schema, rule: U, key: u64, init: &mut [f32], row: &mut [f32]) {
    let init = &mut init[..schema.dim as usize];
    initial_weights(schema.init, schema.seed, key, init);
    rule.init(init, row);
}

/// Whether `slot` of `shard` is the live row of `key`.
#[inline(always)]
pub(crate) fn holds(shard: &mut Shard, slot: u32, key: u64) -> bool {
    slot < shard.image.slots() && shard.image.row(slot).is(key)
}
