//! The rows that a worker keeps, so that it need not pull them each time: a map from key to row (dashmap) over one
//! arena of a limited number of bytes.
//!
//! ```text
//! nothing --a pull asks for it, often enough--> asked --its answer--> kept --too old for a pull--> asked
//! ```
//! - A kept row has what its answer had and all own pushes that began since that pull did: a push of a change adds it
//!   to the row as the server will. Of a row that is asked for, those changes are summed until the answer comes, and
//!   are added to it. So a pull that a kept row answers sees every own push before it, as one that is asked for does;
//!   what it may miss is others' pushes.
//! - How much of them is bounded: a row is had only while [`Staleness`] allows, and, of workers that keep step, while
//!   the clock of the worker furthest behind was high enough when it was read. It is had in one life of its server
//!   only.
//! - Whatever makes a row uncertain drops it: a gradient pushed to it (only the rule knows what comes of it), a push
//!   that a server did not take as it was, a value that is not finite. What is asked over a link that is lost is asked
//!   for again by the next pull.
//! - A row is asked with the stamp that it was read at, unless own pushes have changed it since; the server answers
//!   only what is newer (core's pull_newer.rs).
//! - A key gets a place when it was pulled twice lately, and takes that of another if it was pulled more often
//!   (sketch.rs).
//!
//! - With [`CacheConfig::active`] rows that are had again are subscribed, and their servers send what changes of them
//!   (following.rs).
//!
//! Several workers (threads of a process) may share a cache for reading: they then cannot push to the table.

mod arena;
mod asking;
mod following;
mod sketch;
#[cfg(test)]
mod trials;

pub(super) use asking::{AskedPart, Caching};
pub(super) use following::{Delta, Followed};

use crate::error::WorkerError;
use crate::frames::clock_word;
use crate::key_hash_builder::KeyHashBuilder;
use crate::limits::{CACHE_ASKED_PULLS_MAX, CACHE_BYTES_MIN, SUBSCRIBED_ROWS_MAX};
use arena::Arena;
use dashmap::{DashMap, Entry as Place};
use following::Swept;
use gannet_core::{CachedVersion, Read, Schema};
use sketch::Sketch;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a cached row may be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// For so many pulls after the one that read it; of all workers that share the cache together.
    Pulls(u64),
    /// For so long after the pull that read it was begun.
    Time(Duration),
}

/// How rows are cached.
#[derive(Debug, Clone, Copy)]
pub struct CacheConfig {
    /// Bytes that the cache may take, the map and the counts of frequency included.
    pub bytes: u64,
    /// How long a row may be had.
    pub staleness: Staleness,
    /// A row that is too old is asked for with what is held of it, and comes only if it has changed; otherwise it comes
    /// whole.
    pub incremental: bool,
    /// Servers send what has changed of the rows that were had again, so often.
    pub active: Option<Duration>,
}

/// What is known of a key: with the key itself a cache line.
#[derive(Debug, Clone, Copy)]
struct Entry {
    place: u32,
    asker: u16,
    state: CacheState,
    /// Own changes are in it: its stamp says nothing.
    mixed: bool,
    /// The set of followed rows that it is in, 0 for none; its server has told of it; a change that it told of was left
    /// out.
    followed: u32,
    tracked: bool,
    missed: bool,
    /// The pull that read it or asks for it, and when that was begun, in microseconds.
    turn: u64,
    at_us: u64,
    /// The life of its server; of what is asked for, the link.
    incarnation: u64,
    /// Of a row, that of its answer.
    stamp: u64,
    /// The clock that the worker furthest behind had, plus 1; 0 when nobody keeps step.
    lowest: u64,
}

const _: () = assert!(size_of::<Entry>() + size_of::<u64>() <= 64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheState {
    /// It is asked for; the arena has the sum of own changes since.
    Asked,
    /// The arena has the row; or, there being none, its initial value.
    Row,
    NoRow,
}

impl Entry {
    /// What its server can be told of it.
    fn held(&self) -> CachedVersion {
        match self.state {
            CacheState::Asked => CachedVersion::Nothing,
            CacheState::Row => CachedVersion::Row(self.stamp),
            CacheState::NoRow => CachedVersion::NoRow,
        }
    }
}

/// Who looks, and for which pull.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheReader {
    /// Which of the workers that share the cache.
    pub(super) asker: u16,
    /// The pull's number and its time.
    pub(super) turn: u64,
    pub(super) at_us: u64,
    /// The life of the server, and which link to it this is.
    pub(super) incarnation: u64,
    pub(super) epoch: u64,
    /// The clock that the worker furthest behind must have had; whether it keeps step.
    pub(super) least: u64,
    pub(super) in_step: bool,
    /// The set of rows that this link keeps fresh, and as of when it has.
    pub(super) generation: u32,
    pub(super) swept: Swept,
}

/// What came of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheLookup {
    /// The row was had, as of this clock.
    Had(Option<u64>),
    /// It is to be asked for, with what is held of it (then in the place for the row); with `fills` the answer is to be
    /// kept.
    Ask { held: CachedVersion, fills: bool },
}

/// Cached rows of one table, read in one way. Workers have it by `Arc`.
pub struct RowCache {
    table: String,
    read: Read,
    floats: usize,
    config: CacheConfig,
    map: DashMap<u64, Entry, KeyHashBuilder>,
    arena: Arena,
    sketch: Sketch,
    /// Places that were never taken begin here; others that are free.
    fresh: AtomicU32,
    free: Mutex<Vec<u32>>,
    /// Pulls of all workers.
    turns: AtomicU64,
    /// Workers that have it, and those that ever had.
    sharers: AtomicU32,
    askers: AtomicU16,
    /// Keys to be followed; sets of them that there were.
    wanted: Mutex<Vec<u64>>,
    generations: AtomicU32,
    /// Chance, for victims.
    chance: AtomicU64,
}

impl RowCache {
    /// An empty cache of a table's rows as `read` answers them.
    ///
    /// # Errors
    /// The limit is too small for it to be of use, or rows could be had for ever.
    pub fn new(schema: &Schema, read: Read, config: CacheConfig) -> Result<RowCache, WorkerError> {
        let floats = schema.read_floats(read);
        // The map doubles, and is at least seven sixteenths full.
        let entry = (size_of::<Entry>() + size_of::<u64>() + 1) * 16 / 7;
        let a_row = (8 + 4 * floats + entry + 16) as u64;
        if config.bytes < CACHE_BYTES_MIN {
            let text = format!("a cache of {} bytes: {CACHE_BYTES_MIN} are the least", config.bytes);
            return Err(WorkerError::Call(text));
        }
        let rows = u32::try_from(config.bytes / a_row).unwrap_or(u32::MAX);
        Ok(RowCache {
            table: schema.name.clone(),
            read,
            floats,
            config,
            map: DashMap::default(),
            arena: Arena::new(rows, floats),
            sketch: Sketch::new(rows, config.staleness),
            fresh: AtomicU32::new(0),
            free: Mutex::default(),
            turns: AtomicU64::new(0),
            sharers: AtomicU32::new(0),
            askers: AtomicU16::new(0),
            wanted: Mutex::default(),
            generations: AtomicU32::new(0),
            chance: AtomicU64::new(1),
        })
    }

    /// Rows that it has, or waits for.
    pub fn rows(&self) -> u64 {
        self.map.len() as u64
    }

    /// Rows that it may have.
    pub fn rows_max(&self) -> u64 {
        u64::from(self.arena.places())
    }

    fn is_fresh(&self, entry: &Entry, who: &CacheReader) -> bool {
        let swept = who.swept_of(entry);
        let in_step = who.least == 0 || entry.lowest.max(swept.lowest) > who.least;
        in_step
            && entry.incarnation == who.incarnation
            && match self.config.staleness {
                Staleness::Pulls(pulls) => who.turn.saturating_sub(entry.turn.max(swept.turn)) <= pulls,
                Staleness::Time(time) => {
                    who.at_us.saturating_sub(entry.at_us.max(swept.at_us)) <= time.as_micros() as u64
                }
            }
    }

    /// Has the row of a key for a pull, into `out`, or says how to ask for it.
    pub(super) fn look(&self, key: u64, who: &CacheReader, out: &mut [f32]) -> CacheLookup {
        let pulled = self.sketch.count(key);
        let Some(mut entry) = self.map.get_mut(&key) else {
            let fills = pulled > 1 && self.admit(key, pulled, who);
            return CacheLookup::Ask { held: CachedVersion::Nothing, fills };
        };
        if entry.state == CacheState::Asked {
            // Its answer never came, or never will.
            let lost = entry.asker == who.asker && entry.incarnation != who.epoch;
            let fills = lost || who.turn.saturating_sub(entry.turn) > CACHE_ASKED_PULLS_MAX;
            if fills {
                self.ask(&mut entry, who);
            }
            return CacheLookup::Ask { held: CachedVersion::Nothing, fills };
        }
        if self.is_fresh(&entry, who) {
            self.arena.read(entry.place, out);
            if entry.followed != who.generation {
                self.want(key, &mut entry, who);
            }
            return CacheLookup::Had(entry.lowest.max(who.swept_of(&entry).lowest).checked_sub(1));
        }
        let tells = self.config.incremental && !entry.mixed && entry.incarnation == who.incarnation;
        let held = if tells { entry.held() } else { CachedVersion::Nothing };
        if tells {
            self.arena.read(entry.place, out);
        }
        self.ask(&mut entry, who);
        CacheLookup::Ask { held, fills: true }
    }

    /// A row is asked for from now on.
    fn ask(&self, entry: &mut Entry, who: &CacheReader) {
        self.arena.clear(entry.place);
        let (followed, tracked) = (entry.followed, entry.tracked);
        *entry = Entry { followed, tracked, ..asked(entry.place, who) };
    }

    /// A row that is had again is worth being kept fresh.
    fn want(&self, key: u64, entry: &mut Entry, who: &CacheReader) {
        (entry.followed, entry.tracked, entry.missed) = (who.generation, false, false);
        if let Ok(mut wanted) = self.wanted.lock()
            && wanted.len() < SUBSCRIBED_ROWS_MAX
        {
            wanted.push(key);
        }
    }

    /// Takes a place for a key, perhaps that of one that is pulled less often.
    fn admit(&self, key: u64, pulled: u8, who: &CacheReader) -> bool {
        let Some(place) = self.take_place(pulled) else { return false };
        self.arena.set_key(place, key);
        self.arena.clear(place);
        match self.map.entry(key) {
            Place::Vacant(vacant) => {
                vacant.insert(asked(place, who));
                true
            }
            // Another worker was faster.
            Place::Occupied(_) => {
                self.give_place(place);
                false
            }
        }
    }

    fn take_place(&self, pulled: u8) -> Option<u32> {
        if let Some(place) = self.free.lock().ok()?.pop() {
            return Some(place);
        }
        let places = self.arena.places();
        let take = |fresh| (fresh < places).then_some(fresh + 1);
        if let Ok(place) = self.fresh.fetch_update(Relaxed, Relaxed, take) {
            return Some(place);
        }
        let victim = (0..VICTIMS).map(|_| {
            let chance = gannet_core::mix(self.chance.fetch_add(1, Relaxed));
            let place = ((u128::from(chance) * u128::from(places)) >> 64) as u32;
            let key = self.arena.key(place);
            (self.sketch.estimate(key), key, place)
        });
        let (often, key, place) = victim.min()?;
        if often >= pulled {
            return None;
        }
        self.map.remove_if(&key, |_, entry| entry.place == place).map(|_| place)
    }

    fn give_place(&self, place: u32) {
        if let Ok(mut free) = self.free.lock() {
            free.push(place);
        }
    }

    /// The answer to a pull that asks for a key: `row` as of then, which is what the server has told of it.
    pub(super) fn fill(
        &self,
        key: u64,
        who: &CacheReader,
        row: &[f32],
        told: CachedVersion,
        lowest: Option<u64>,
    ) {
        let Some(mut entry) = self.map.get_mut(&key) else { return };
        if entry.state != CacheState::Asked
            || (entry.asker, entry.turn, entry.incarnation) != (who.asker, who.turn, who.epoch)
        {
            return;
        }
        if !entry.mixed {
            self.arena.write(entry.place, row);
        } else if !self.arena.add(entry.place, row) {
            drop(entry);
            return self.forget(key);
        }
        (entry.state, entry.stamp) = match told {
            CachedVersion::Row(stamp) => (CacheState::Row, stamp),
            _ => (CacheState::NoRow, 0),
        };
        (entry.incarnation, entry.lowest) = (who.incarnation, clock_word(lowest));
    }

    /// An own push of this change to a key's row has begun.
    pub(super) fn change(&self, key: u64, change: &[f32]) {
        let Some(mut entry) = self.map.get_mut(&key) else { return };
        entry.mixed = true;
        if !self.arena.add(entry.place, change) {
            drop(entry);
            self.forget(key);
        }
    }

    /// What is known of a key is worth nothing any more.
    pub(super) fn forget(&self, key: u64) {
        if let Some((_, entry)) = self.map.remove(&key) {
            self.give_place(entry.place);
        }
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RowCache { table, read, config, .. } = self;
        f.debug_struct("RowCache").field("table", table).field("read", read).field("config", config).finish()
    }
}

/// Places among which the key that is pulled least often gives way.
const VICTIMS: usize = 5;

fn asked(place: u32, who: &CacheReader) -> Entry {
    let &CacheReader { asker, turn, at_us, epoch, .. } = who;
    Entry {
        place,
        asker,
        state: CacheState::Asked,
        mixed: false,
        followed: 0,
        tracked: false,
        missed: false,
        turn,
        at_us,
        incarnation: epoch,
        stamp: 0,
        lowest: 0,
    }
}
