//! Pushes. A call divides its keys into runs, each of keys of one shard. A run is a part of the push: the shard checks
//! the part's name, then applies it row by row (push_loop.rs). Each row is one step of the journal.

use crate::error::{PullError, PushError};
use crate::hash::{hash, shard_of};
use crate::index::hash_index::NONE;
use crate::index::resolve::{BLOCK, KeyBlock};
use crate::push_name::PushName;
use crate::schema::shard_set::ShardPlaces;
use crate::schema::table_schema::Schema;
use crate::table::owned::shards::Shards;
use crate::table::owned::vectors::Vectors;
use crate::table::owned::width::{Any, Fixed, Width};
use crate::table::pushes::damping::Damped;
use crate::table::pushes::effect::{Changes, Gradients, Terms, TransformedGradients, WholeRows};
use crate::table::pushes::push_loop::push_rows;
use crate::table::pushes::push_request::{Applied, PushOptions, PushRequest};
use crate::table::pushes::read_write::Write;
use crate::table::pushes::segment_rules::{SegmentGradients, Segmented};
use gannet_optim::{Cpu, Isa, Scalar, Update, Work};

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
        self.push_at(
            name,
            PushOptions { clock: name.seq, ..PushOptions::default() },
            write,
            keys,
            slots,
            values,
        )
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
        let is_change = matches!(write, Write::Change | Write::Damped);
        let marked =
            options.since.filter(|_| is_change).and_then(|since| self.refuse_changes(since, keys, values));
        let values = marked.as_deref().unwrap_or(values);
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
        cut_by_shard(keys, places, shards.len(), &mut scratch.runs)
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
            return cut_by_shard(keys, places, shards.len(), &mut scratch.runs);
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
fn cut_by_shard(
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
                (Write::Gradient, 16) if I::LANES > 1 => {
                    push_rows(self, Fixed::<16>, dim, isa, rule, Gradients)
                }
                (Write::Gradient, _) => push_rows(self, Any(dim), dim, isa, rule, Gradients),
                _ => self.run_all_parts(),
            };
        }
        if I::LANES > 1 {
            // Wide registers serve only gradients of long rows. Shards::push runs other work with scalar code.
            return match dim {
                16 if !shaping.changes_gradients() => push_rows(self, Fixed::<16>, dim, isa, rule, Gradients),
                _ if !shaping.changes_gradients() => push_rows(self, Any(dim), dim, isa, rule, Gradients),
                _ => push_rows(self, Any(dim), dim, isa, rule, TransformedGradients::new(shaping, dim)),
            };
        }
        match (write, dim) {
            (Write::Gradient, _) if shaping.changes_gradients() => {
                push_rows(self, Any(dim), dim, isa, rule, TransformedGradients::new(shaping, dim))
            }
            (Write::Gradient, 1) => push_rows(self, Fixed::<1>, 1, isa, rule, Gradients),
            (Write::Gradient, _) => push_rows(self, Any(dim), dim, isa, rule, Gradients),
            (Write::Change, 1) => push_rows(self, Fixed::<1>, U::floats(1), isa, rule, Changes),
            (Write::Change, _) => push_rows(self, Any(dim), U::floats(dim), isa, rule, Changes),
            (Write::Row, _) => push_rows(self, Any(dim), U::floats(dim), isa, rule, WholeRows),
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
            Write::Row => push_rows(self, width, width.floats::<Segmented<'_>>(), Scalar, rule, WholeRows),
            Write::Gradient => push_rows(self, width, width.dim(), Scalar, rule, SegmentGradients::new(rule)),
            Write::Change => {
                let floats = width.floats::<Segmented<'_>>();
                push_rows(self, width, floats, Scalar, rule, Changes)
            }
            Write::Damped => {
                let floats = width.floats::<Segmented<'_>>();
                push_rows(self, width, floats, Scalar, rule, Damped)
            }
            Write::Delete => {
                let (table, why) =
                    (self.shards.schema.name.clone(), "deletions have no effect to apply".into());
                Err(PushError::Program { table, why })
            }
            Write::Sum => {
                let terms = Terms { pass: Vectors::pass_of(self.name.seq) };
                push_rows(self, width, 2, Scalar, rule, terms)
            }
        }
    }
}
