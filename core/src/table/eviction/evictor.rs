//! Evicts rows in small slices between the other calls of the thread that owns the shards.

use crate::image::row_version::LIVE;
use crate::limits::*;
use crate::schema::init::INTERCEPT_KEY;
use crate::schema::segment::Segments;
use crate::table::commands::command::ShardCommand;
use crate::table::eviction::hour_share::HourShare;
use crate::table::eviction::push_times::PushTimes;
use crate::table::eviction::settings::{Eviction, EvictionError};
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::{NO_SLOT, Shards};
use crate::table::pushes::read_write::Read;
use std::cmp::Ordering;
use std::time::Duration;

/// What evicts the rows of some shards. Time is that of the caller: any clock that does not go back.
///
/// A row counts as pushed when it was last changed, whoever changed it. Rows that were here when the evictor was made
/// count as pushed then. Reads leave no trace in a shard. The intercept never dies.
///
/// ```
/// use gannet_core::{Capacity, Eviction, Evictor, PushName, Schema, Shards, Store, Write};
/// use gannet_optim::{Add, Rule};
/// use std::time::Duration;
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// for seq in 1..=3 {
///     shards.push(&PushName { pusher: 1, incarnation: 1, seq, row: 0 }, Write::Gradient, &[seq], None, &[1.0])?;
/// }
/// let full = Eviction { capacity: Some(Capacity::Rows(2)), ..Eviction::default() };
/// let mut evictor = Evictor::new(full, &schema)?;
/// assert_eq!(evictor.slice(&mut shards, Duration::ZERO).capacity, 1);
/// assert!(!shards.free(1) && shards.free(2) && shards.free(3), "a full shard keeps the newest rows");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Evictor {
    eviction: Eviction,
    /// Rows that a shard may have.
    rows_max: Option<u64>,
    times: PushTimes,
    share: HourShare,
    /// The pass over a shard that is too full.
    full: Option<FullPass>,
    /// The shard that is looked at next.
    next_full: usize,
    /// Live rows after the last slice.
    rows_before: u64,
    sweep: Option<Sweep>,
    next_sweep: Duration,
}

/// Rows that a slice has evicted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// They were not pushed for a long time.
    pub after: u64,
    /// Their weights were small.
    pub below: u64,
    /// Their shard was full.
    pub capacity: u64,
    /// There is more to do at once.
    pub more: bool,
}

/// Frees the oldest rows of a shard that is too full.
struct FullPass {
    /// Its place.
    at: usize,
    /// The next slot.
    from: u32,
    /// Rows below this version go.
    version: u64,
    /// So many rows of this version go.
    same: u64,
    /// Until so many are left.
    target: u64,
}

/// A pass over all shards that looks for rows that are old or weigh nothing.
struct Sweep {
    at: usize,
    from: u32,
    /// Rows up to this version are old.
    old: Option<u64>,
    /// Rows up to this version are quiet: a small norm counts.
    quiet: Option<u64>,
}

impl Evictor {
    /// An evictor for shards of a table.
    ///
    /// # Errors
    /// The settings make no sense, or not for this table.
    pub fn new(eviction: Eviction, schema: &crate::Schema) -> Result<Evictor, EvictionError> {
        eviction.check()?;
        let quiet = eviction.below.map(|_| EVICT_QUIET);
        let longest = eviction.after.max(quiet).unwrap_or_default();
        Ok(Evictor {
            eviction,
            rows_max: eviction.rows_a_shard(schema)?,
            times: PushTimes::new(longest),
            share: HourShare::new(),
            full: None,
            next_full: 0,
            rows_before: 0,
            sweep: None,
            next_sweep: Duration::ZERO,
        })
    }

    /// The settings.
    pub fn eviction(&self) -> &Eviction {
        &self.eviction
    }

    /// Evicts some of the rows that must go by now. A slice costs little if there are none.
    pub fn slice(&mut self, shards: &mut Shards, now: Duration) -> Evicted {
        let mut evicted = Evicted::default();
        if self.eviction.after.is_some() || self.eviction.below.is_some() {
            if self.times.is_due(now) {
                self.times.note(now, shards.snapshot_version());
            }
            self.sweep_some(shards, now, &mut evicted);
        }
        if let Some(most) = self.rows_max {
            self.free_some(shards, most, &mut evicted);
        }
        evicted
    }

    /// Frees the oldest rows of shards that have more than `most`.
    fn free_some(&mut self, shards: &mut Shards, most: u64, evicted: &mut Evicted) {
        let made = shards.stats().rows.saturating_sub(self.rows_before) as usize;
        let mut slots = EVICT_SLICE_SLOTS + EVICT_SLOTS_A_ROW * made;
        while slots > 0 {
            let Some(mut pass) = self.full.take().or_else(|| self.next_pass(shards, most, &mut slots)) else {
                break;
            };
            let before = shards.shards[pass.at].live();
            let ended = pass.go_on(shards, &mut slots);
            evicted.capacity += before - shards.shards[pass.at].live();
            if !ended {
                self.full = Some(pass);
            }
        }
        evicted.more |= self.full.is_some();
        self.rows_before = shards.stats().rows;
    }

    /// A pass over the next shard that has too many rows.
    fn next_pass(&mut self, shards: &mut Shards, most: u64, slots: &mut usize) -> Option<FullPass> {
        let count = shards.shards.len();
        let at =
            (0..count).map(|n| (self.next_full + n) % count).find(|&at| shards.shards[at].live() > most)?;
        self.next_full = (at + 1) % count;
        *slots = slots.saturating_sub(EVICT_SAMPLE.min(shards.shards[at].high_water() as usize));
        let target = (most - most / EVICT_PART).max(1);
        let (version, same) = oldest_versions(&mut shards.shards[at], target);
        Some(FullPass { at, from: 0, version, same, target })
    }

    /// Looks at some rows for age and weights, if a sweep is due or under way.
    fn sweep_some(&mut self, shards: &mut Shards, now: Duration, evicted: &mut Evicted) {
        let Some(mut sweep) = self.sweep.take().or_else(|| self.begin_sweep(now)) else { return };
        let rows = shards.stats().rows;
        let floor = floor_here(self.eviction.floor, shards.shards.len() as u64, shards.schema.shards.into());
        let may_die = self.share.left(now, rows).min(rows.saturating_sub(floor));
        let mut left = may_die.min(EVICT_SLICE_ROWS as u64);
        let before = (evicted.after, evicted.below);
        let mut slots = EVICT_SLICE_SLOTS;
        while slots > 0 && left > 0 && sweep.at < shards.shards.len() {
            self.look_at_some(&mut sweep, shards, (&mut slots, &mut left), evicted);
        }
        let gone = evicted.after - before.0 + evicted.below - before.1;
        self.share.count(now, gone);
        if sweep.at < shards.shards.len() && may_die > gone {
            evicted.more = true;
            self.sweep = Some(sweep);
        }
    }

    fn begin_sweep(&mut self, now: Duration) -> Option<Sweep> {
        if now < self.next_sweep {
            return None;
        }
        self.next_sweep = now + self.times.step();
        let Eviction { after, below, .. } = self.eviction;
        let old = after.and_then(|after| self.times.version_before(now, after));
        let quiet = below.and_then(|_| self.times.version_before(now, EVICT_QUIET));
        (old.is_some() || quiet.is_some()).then_some(Sweep { at: 0, from: 0, old, quiet })
    }

    /// Looks at the next slots of a shard, and evicts at most `left` rows.
    fn look_at_some(
        &mut self,
        sweep: &mut Sweep,
        shards: &mut Shards,
        (slots, left): (&mut usize, &mut u64),
        evicted: &mut Evicted,
    ) {
        let (mut old, mut quiet) = (Vec::new(), Vec::new());
        let shard = &mut shards.shards[sweep.at];
        let end = shard.high_water();
        while sweep.from < end && *slots > 0 && ((old.len() + quiet.len()) as u64) < *left {
            *slots -= 1;
            let row = shard.image.row(sweep.from);
            sweep.from += 1;
            let (version, key) = (row.version(), row.key());
            let up_to = |limit: Option<u64>| limit.is_some_and(|limit| version >> 2 <= limit);
            if version & LIVE == 0 || key == INTERCEPT_KEY {
                continue;
            }
            if up_to(sweep.old) {
                old.push(key);
            } else if up_to(sweep.quiet) {
                quiet.push(key);
            }
        }
        let at = sweep.at;
        if sweep.from >= end {
            (sweep.at, sweep.from) = (sweep.at + 1, 0);
        }
        self.keep_small(shards, &mut quiet);
        let mut evict = |keys: &[u64]| keys.iter().filter(|&&key| evict_row(shards, at, key)).count() as u64;
        let (of_age, of_weight) = (evict(&old), evict(&quiet));
        (evicted.after, evicted.below) = (evicted.after + of_age, evicted.below + of_weight);
        *left = left.saturating_sub(of_age + of_weight);
    }

    /// Keeps the keys of rows whose weights have a small norm.
    fn keep_small(&self, shards: &mut Shards, keys: &mut Vec<u64>) {
        let Some(norm) = self.eviction.below else { return };
        // The last segment of a counting table is no weight.
        let own: Vec<usize> = (0..=shards.schema.more.len()).collect();
        let counts = shards.schema.counts();
        let segments = if counts { Segments::only(&own[..own.len() - 1]) } else { Segments::ALL };
        let Ok(floats) = shards.schema.read_floats_of(Read::Weights, segments) else { return keys.clear() };
        let mut weights = vec![0.0; keys.len() * floats];
        if keys.is_empty() || shards.pull_segments(keys, Read::Weights, segments, &mut weights, None).is_err()
        {
            return keys.clear();
        }
        let size = |row: &[f32]| row.iter().map(|w| f64::from(*w) * f64::from(*w)).sum::<f64>().sqrt();
        let mut rows = weights.chunks_exact(floats);
        keys.retain(|_| rows.next().is_some_and(|row| size(row) < f64::from(norm)));
    }
}

impl FullPass {
    /// Looks at up to `slots` slots. Returns whether the pass has ended.
    fn go_on(&mut self, shards: &mut Shards, slots: &mut usize) -> bool {
        let FullPass { at, version, target, .. } = *self;
        loop {
            let shard = &mut shards.shards[at];
            if self.from >= shard.high_water() || shard.live() <= target {
                return true;
            }
            if *slots == 0 {
                return false;
            }
            *slots -= 1;
            let row = shard.image.row(self.from);
            self.from += 1;
            let (word, key) = (row.version(), row.key());
            let goes = match (word >> 2).cmp(&version) {
                Ordering::Less => true,
                Ordering::Equal => self.same > 0,
                Ordering::Greater => false,
            };
            if goes && word & LIVE != 0 && key != INTERCEPT_KEY {
                self.same -= u64::from(word >> 2 == version);
                evict_row(shards, at, key);
            }
        }
    }
}

/// Which rows go when only `target` rows stay, the newest: those below a version, and so many of this version. Of a
/// shard with many slots a sample of them answers. The intercept never goes, so it does not count here.
fn oldest_versions(shard: &mut Shard, target: u64) -> (u64, u64) {
    let step = (shard.high_water() as usize).div_ceil(EVICT_SAMPLE).max(1);
    let mut versions: Vec<u64> = Vec::new();
    for slot in (0..shard.high_water()).step_by(step) {
        let row = shard.image.row(slot);
        if row.version() & LIVE != 0 && row.key() != INTERCEPT_KEY {
            versions.push(row.version() >> 2);
        }
    }
    let too_many = shard.live().saturating_sub(target);
    let intercept = shard.find(INTERCEPT_KEY) != NO_SLOT;
    let (rows, sample) = (shard.live().saturating_sub(intercept.into()).max(1), versions.len() as u64);
    let gone = (too_many * sample).div_ceil(rows).min(sample);
    let Some(last) = gone.checked_sub(1) else { return (shard.command, rows) };
    let (older, version, _) = versions.select_nth_unstable(last as usize);
    let below = older.iter().filter(|older| *older < version).count() as u64;
    (*version, ((gone - below) * rows).div_ceil(sample))
}

/// Deletes the row of a key of the shard in this place, as a command.
fn evict_row(shards: &mut Shards, at: usize, key: u64) -> bool {
    shards.apply_at(at, ShardCommand::Delete(key)).unwrap_or(false)
}

/// The rows that some of a table's shards must keep, so that all of them together keep `floor`. Shards have their rows
/// by chance. So a part of them keeps more than its share: six standard deviations.
fn floor_here(floor: u64, here: u64, shards: u64) -> u64 {
    if here >= shards {
        return floor;
    }
    let share = (floor * here).div_ceil(shards);
    (share + 6 * share.isqrt() + 6).min(floor)
}
