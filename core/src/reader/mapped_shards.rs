//! Shards of another process, read in place. Their images are mapped read-only. A reader walks the index and
//! copies rows without a request to the owner, which may write at the same time. The pipeline is that of
//! pull.rs.
//!
//! Only a hit is trusted. A hit is a row with the right key, copied between two reads of its version
//! (row_version.rs), in an image that its owner still serves after the copy. Everything else is a miss: a
//! bucket that is being split, an index that has grown, a row that is being written. The caller then requests
//! the row from the owner.

use crate::error::{OpenError, PullError};
use crate::hash::{hash, shard_of, tag};
use crate::image::bucket::entries;
use crate::image::head::{OtherHead, check_head};
use crate::image::layout::{NO_BACKUPS, NO_CLOCK};
use crate::image::row_version;
use crate::image::row_version::LIVE;
use crate::index::hash_index::NONE;
use crate::index::resolve::{BLOCK, KeyBlock, ShardIndex};
use crate::limits::{CHAIN_MAX, POPULATE_BYTES_MAX, READ_TRIES};
use crate::reader::mapped_image::{MappedImage, copy_floats};
use crate::schema::segment::Segments;
use crate::schema::shard_set::{ShardPlaces, ShardSet};
use crate::schema::table_schema::Schema;
use crate::table::owned::width::Width;
use crate::table::pulls::pull::{PullLoop, dispatch};
use crate::table::pushes::read_write::Read;
use gannet_optim::{Cpu, Isa, Update};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks between the prefetch of a key's index line and the read of its row.
const STAGES: usize = 3;

/// Shards of another process: some shards of one table, read-only. One thread owns it: `Send`, not `Sync`.
pub struct MappedShards {
    schema: Schema,
    set: ShardSet,
    places: ShardPlaces,
    shards: Vec<MappedImage>,
    /// The shards to check to find out whether all are current: one of each group that stops being served at
    /// the same moment.
    group_shards: Vec<u32>,
    /// Buffer for the stored floats of a row, for answers that are computed from them.
    row: Vec<f32>,
    /// Counts the pulls. A pull looks at most once whether an image has grown, because the owner writes those words
    /// with every new row.
    pulls: u32,
    cpu: Cpu,
}

struct MappedPull<'a> {
    view: &'a mut MappedShards,
    keys: &'a [u64],
    read: Read,
    out: &'a mut [f32],
    slots: &'a mut [u32],
}

impl MappedShards {
    /// Maps images that [`Shards::images`](crate::Shards::images) returned. `files` has the image of each shard of
    /// `set`, in its order, and the shard's incarnation. Pages of images in memory are populated at once, up
    /// to [`POPULATE_BYTES_MAX`](crate::limits::POPULATE_BYTES_MAX), with huge pages if there are any. A pull maps what
    /// the images grow by later.
    ///
    /// # Errors
    /// The schema is not sound; there is not one file for each shard of the set; the table has no such shard; a file is
    /// no image of its shard and this schema; or the system refuses a mapping.
    pub fn open(
        schema: &Schema,
        set: impl Into<ShardSet>,
        files: Vec<(File, u64)>,
    ) -> Result<MappedShards, OpenError> {
        schema.check()?;
        let set = set.into();
        let all_there = set.numbers().last().is_some_and(|last| *last < schema.shards);
        if !all_there || files.len() != set.len() {
            let (table, shards) = (schema.name.clone(), schema.shards);
            return Err(OpenError::Shards { table, shards, set });
        }
        let populate = POPULATE_BYTES_MAX / files.len();
        let shards = set.iter().zip(files).map(|(number, (file, incarnation))| {
            let unusable =
                |why: String| OpenError::SharedImage { table: schema.name.clone(), shard: number, why };
            let mut shard = MappedImage::open(file, schema.stride(), incarnation, populate)
                .map_err(|error| unusable(error.to_string()))?;
            check_head(&shard.head(), schema, number).map_err(|other| match other {
                OtherHead::Foreign(why) | OtherHead::Torn(why) => unusable(why),
                OtherHead::Schema(how) => unusable(format!("it does not match the request: {how}")),
            })?;
            shard.follow().map_err(unusable)?;
            Ok(shard)
        });
        let shards = shards.collect::<Result<Vec<_>, OpenError>>()?;
        let mut group_shards = Vec::new();
        let mut before = None;
        for (i, shard) in (0..).zip(&shards) {
            let group = shard.group();
            if group.is_none() || group != before {
                group_shards.push(i);
            }
            before = group;
        }
        let (row, cpu) = (vec![0.0; schema.floats()], Cpu::detect());
        let (places, schema) = (ShardPlaces::of(&set, schema.shards), schema.clone());
        Ok(MappedShards { schema, set, places, shards, group_shards, row, pulls: 0, cpu })
    }

    /// Runs rules on this instruction set, or on a narrower one. The answers are the same on all of them.
    #[cfg(feature = "test-support")]
    pub fn set_cpu(&mut self, cpu: Cpu) {
        self.cpu = cpu;
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The numbers of these shards.
    pub fn set(&self) -> &ShardSet {
        &self.set
    }

    /// Whether the incarnation that was mapped still serves every shard here. Once `false`, it stays `false`.
    /// It says nothing about whether the owner runs: an owner that was stopped or killed has changed nothing.
    #[cfg(feature = "test-support")]
    pub fn is_current(&self) -> bool {
        self.shards.iter().all(MappedImage::is_current)
    }

    /// The lowest clock of the workers, as the owner last wrote it. Rows that are pulled after this call
    /// include all pushes of steps below it. [`NO_CLOCK`](crate::NO_CLOCK) when no workers keep step.
    pub fn lowest(&self) -> u64 {
        self.group_shards.iter().map(|&i| self.shards[i as usize].lowest()).min().unwrap_or(NO_CLOCK)
    }

    /// Reads the rows of `keys` like [`Shards::pull_segments`](crate::Shards::pull_segments), with one
    /// difference: row `i` was read only if `slots[i]` is a slot. If it is [`NO_SLOT`](crate::NO_SLOT), the row
    /// was not found, and its floats are unspecified. The table may still have the row: request it from the
    /// owner. In shards that are not served any more, no row is found. `slots` is resized to the length of
    /// `keys`. Returns how many rows were not found.
    ///
    /// # Errors
    /// As [`Shards::pull_segments`](crate::Shards::pull_segments).
    pub fn pull(
        &mut self,
        keys: &[u64],
        read: Read,
        segments: Segments,
        out: &mut [f32],
        slots: &mut Vec<u32>,
    ) -> Result<usize, PullError> {
        let want = keys.len() * self.schema.read_floats_of(read, segments)?;
        if out.len() != want {
            return Err(PullError::Length { what: "floats of the answer", got: out.len(), want });
        }
        slots.resize(keys.len(), NONE);
        self.pulls = self.pulls.wrapping_add(1);
        let cpu = self.cpu;
        let misses = dispatch(MappedPull { view: self, keys, read, out, slots }, cpu, segments)?;
        // Checked after the last row was read. A new incarnation of the owner marks the old one as ended before
        // it changes an image.
        let groups = || self.group_shards.iter().map(|&i| &self.shards[i as usize]);
        let (current, has_backups) =
            (groups().all(MappedImage::is_current), groups().any(|shard| shard.acknowledged() != NO_BACKUPS));
        let misses = if current { misses } else { self.discard_ended(keys, slots) };
        Ok(if has_backups { self.discard_unacknowledged(keys, slots) } else { misses })
    }

    /// Turns rows into misses that the owner has changed since the last command that all its backups have. Returns the
    /// number of misses afterwards.
    #[cold]
    fn discard_unacknowledged(&self, keys: &[u64], slots: &mut [u32]) -> usize {
        let acknowledged: Vec<u64> = self.shards.iter().map(MappedImage::acknowledged).collect();
        let stride = self.schema.stride();
        let mut misses = 0;
        for (&key, slot) in keys.iter().zip(slots) {
            let owner = self.places.place(shard_of(hash(key), self.schema.shards)) as usize;
            // The version of a slot only grows, so that of the row which was read is no higher.
            let changed = self
                .shards
                .get(owner)
                .and_then(|shard| shard.row(*slot, stride))
                .map(row_version::command_of_header);
            if changed.is_none_or(|command| command > acknowledged[owner]) {
                *slot = NONE;
            }
            misses += usize::from(*slot == NONE);
        }
        misses
    }

    /// Turns the rows of shards that are not served any more into misses. Returns the number of misses afterwards.
    #[cold]
    fn discard_ended(&self, keys: &[u64], slots: &mut [u32]) -> usize {
        let current: Vec<bool> = self.shards.iter().map(MappedImage::is_current).collect();
        let mut misses = 0;
        for (&key, slot) in keys.iter().zip(slots) {
            let owner = self.places.place(shard_of(hash(key), self.schema.shards));
            if !current.get(owner as usize).is_some_and(|&current| current) {
                *slot = NONE;
            }
            misses += usize::from(*slot == NONE);
        }
        misses
    }
}

impl PullLoop for MappedPull<'_> {
    /// The number of rows that were not found.
    type Out = usize;

    fn schema(&self) -> &Schema {
        &self.view.schema
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
    ) -> Result<usize, PullError> {
        pull_from_image::<I, U, W, STATE>(self, width, floats, isa, rule)
    }
}

/// The pipeline. It copies the first `floats` floats of a row. With `U::DERIVES` and without `STATE` it copies all
/// floats that the weights are computed from, and then computes the answer from the copy. Returns how many rows were
/// not found.
#[inline(always)]
fn pull_from_image<I: Isa, U: Update, W: Width, const STATE: bool>(
    call: MappedPull<'_>,
    width: W,
    floats: usize,
    isa: I,
    rule: U,
) -> Result<usize, PullError> {
    let MappedPull { view: MappedShards { places, shards, row: long, pulls, .. }, keys, out, slots, .. } =
        call;
    let (read, stride) = (width.weight_floats::<U>(), width.stride::<U>());
    let derived = U::DERIVES && !STATE;
    let bytes = 16 + 4 * if derived { read } else { floats };
    let mut short = [0f32; 64];
    let row: &mut [f32] = if read <= 64 { &mut short[..read] } else { &mut long[..read] };
    let blocks = keys.len().div_ceil(BLOCK);
    let mut ring = [KeyBlock::EMPTY; STAGES + 1];
    let mut misses = 0;
    for b in 0..blocks + STAGES {
        if b < blocks {
            let keys = &keys[b * BLOCK..keys.len().min((b + 1) * BLOCK)];
            ring[b % (STAGES + 1)].locate(shards, places, keys)?;
        }
        if b >= 1 && b - 1 < blocks {
            ring[(b - 1) % (STAGES + 1)].candidates(shards, bytes);
        }
        if b >= 2 && b - 2 < blocks {
            ring[(b - 2) % (STAGES + 1)].second_look(shards, bytes);
        }
        let Some(b) = b.checked_sub(STAGES) else { continue };
        let block = &ring[b % (STAGES + 1)];
        let (start, end) = (b * BLOCK, keys.len().min((b + 1) * BLOCK));
        let answers = out[start * floats..end * floats].chunks_exact_mut(floats);
        let found = keys[start..end].iter().zip(&mut slots[start..end]);
        for (i, ((&key, place), answer)) in found.zip(answers).enumerate() {
            let i = i % BLOCK; // lets the compiler see that it is in bounds
            let shard = &mut shards[block.owners[i] as usize];
            let mut slot = block.slots[i];
            let copied = if derived { &mut *row } else { &mut *answer };
            if !copy(shard, slot, stride, key, copied) {
                slot = find_in_image(shard, *pulls, block.hashes[i], key, stride);
                if slot == NONE || !copy(shard, slot, stride, key, copied) {
                    (*place, misses) = (NONE, misses + 1);
                    continue;
                }
            }
            *place = slot;
            if derived {
                rule.weights_on(isa, row, answer);
            }
        }
    }
    Ok(misses)
}

/// Copies the first floats of the row of `key`. Returns `false` when the row is not at `slot`, or changed
/// during each try.
#[inline(always)]
fn copy(shard: &MappedImage, slot: u32, stride: usize, key: u64, to: &mut [f32]) -> bool {
    shard.row(slot, stride).is_some_and(|row| {
        row_version::read_stable(row, key, READ_TRIES, |words: &[AtomicU64]| copy_floats(words, to))
    })
}

/// The slot of `key`, found by searching the whole chain. The index is as it was when this pull first missed a
/// row of the shard, or newer.
#[inline(never)]
fn find_in_image(shard: &mut MappedImage, pull: u32, hash: u64, key: u64, stride: usize) -> u32 {
    if let Err(why) = shard.follow_once(pull) {
        tracing::warn!(why, "a mapped image contradicts itself: its rows are now requested from the server");
    }
    let mut bucket = shard.bucket(shard.home(hash));
    for _ in 0..=CHAIN_MAX {
        let Some(seen) = bucket else { return NONE };
        let (mask, link) = seen.matches(tag(hash));
        for entry in entries(mask) {
            let slot = seen.slot(entry);
            if let Some([version, own, ..]) = shard.row(slot, stride)
                && version.load(Relaxed) & LIVE != 0
                && own.load(Relaxed) == key
            {
                return slot;
            }
        }
        bucket = shard.linked(link);
    }
    NONE
}

impl ShardIndex for MappedImage {
    #[inline(always)]
    fn locate(&self, hash: u64) -> usize {
        let home = self.home(hash);
        self.prefetch_bucket(home);
        home
    }

    #[inline(always)]
    fn candidate(&self, home: usize, hash: u64) -> u32 {
        let Some(bucket) = self.bucket(home) else { return NONE };
        let (mask, link) = bucket.matches(tag(hash));
        if mask != 0 {
            return bucket.slot(mask.trailing_zeros() as usize % crate::image::bucket::ENTRIES);
        }
        if link != 0 {
            self.prefetch_linked(link);
        }
        NONE
    }

    #[inline(always)]
    fn second_candidate(&self, home: usize, hash: u64) -> u32 {
        let link = self.bucket(home).map_or(0, |bucket| bucket.matches(0).1);
        let Some(bucket) = self.linked(link) else { return NONE };
        let (mask, _) = bucket.matches(tag(hash));
        if mask == 0 { NONE } else { bucket.slot(mask.trailing_zeros() as usize) }
    }

    #[inline(always)]
    fn prefetch_row(&self, slot: u32, bytes: usize) {
        MappedImage::prefetch_row(self, slot, bytes);
    }
}
