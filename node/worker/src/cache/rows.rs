//! The rows that a worker caches, so that it need not pull them each time: a map from key to row (dashmap) over one
//! arena of a limited number of bytes.
//!
//! ```text
//! no entry --pulled often enough--> requested --its answer--> row --too old for a pull--> requested
//! ```
//! - A cached row has the values of its answer and all own pushes that began since that pull did. A push of a change
//!   adds it to the row as the server will. While a row is requested, those changes are summed, and then added to the
//!   answer. So a pull that the cache answers sees every own push before it, as a requested one does. It may miss
//!   pushes of other workers.
//! - [`Staleness`] bounds what it may miss. If the workers keep step, the clock of the slowest worker bounds it too. A
//!   row is used in one incarnation of its server only.
//! - A row is dropped when it becomes uncertain: after a push of a gradient (only the rule knows its effect), a push
//!   that a server did not apply as it was, or a value that is not finite. What was requested over a lost link is
//!   requested again by the next pull.
//! - A request names the version of the cached row, unless own pushes have changed the row since. The server then
//!   answers only what is newer (core's pull_newer.rs).
//! - A key gets a place when it was pulled twice lately. It takes the place of another key if it was pulled more often
//!   (sketch.rs).
//! - With [`CacheUse::Auto`](crate::CacheUse::Auto) pulls go past the cache while that costs less time. The cache is
//!   then empty, and pushes do not look there.
//! - With [`CacheConfig::active`](crate::CacheConfig::active) the worker subscribes to rows that it uses again, and
//!   their servers send what changes (following.rs).
//!
//! Several workers (threads of a process) may share a cache for reading. They then cannot push to the table.

use crate::cache::arena::Arena;
use crate::cache::settings::{CacheConfig, Staleness};
use crate::cache::sketch::Sketch;
use crate::cache::swept::Swept;
use crate::error::WorkerError;
use crate::limits::{CACHE_BYTES_MIN, CACHE_REQUEST_PULLS_MAX};
use dashmap::{DashMap, Entry as Place};
use gannet_core::{CachedVersion, Read, Schema};
use gannet_wire::frames::word::clock_word;
use gannet_wire::key_hash_builder::KeyHashBuilder;
use gannet_wire::limits::SUBSCRIBED_ROWS_MAX;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The entry of a key; with the key itself it fits a cache line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) place: u32,
    sharer: u16,
    state: CacheState,
    /// The row includes own changes since, so its version says nothing.
    mixed: bool,
    /// The set of followed rows that it is in, 0 for none; whether its server has sent it; whether a change that the
    /// server sent was left out.
    followed: u32,
    tracked: bool,
    missed: bool,
    /// The pull that read it or requests it, and when that began, in microseconds.
    turn: u64,
    at_us: u64,
    /// The incarnation of its server. While the row is requested: the epoch of the link.
    incarnation: u64,
    /// The version of the answer that brought the row.
    version: u64,
    /// The clock of the slowest worker, plus 1; 0 if the workers do not keep step.
    lowest: u64,
}

const _: () = assert!(size_of::<Entry>() + size_of::<u64>() <= 64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheState {
    /// The row is requested. The arena has the sum of own changes since.
    Requested,
    /// The arena has the row. `NoRow`: the server has none, and the arena has its initial value.
    Row,
    NoRow,
}

impl Entry {
    /// The cached version, for a request to its server.
    fn cached_version(&self) -> CachedVersion {
        match self.state {
            CacheState::Requested => CachedVersion::Nothing,
            CacheState::Row => CachedVersion::Row(self.version),
            CacheState::NoRow => CachedVersion::NoRow,
        }
    }
}

/// The pull that looks a row up, and its worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheReader {
    /// The number of the worker among those that share the cache.
    pub(crate) sharer: u16,
    /// The pull's number and its time.
    pub(crate) turn: u64,
    pub(crate) at_us: u64,
    /// The incarnation of the server, and the epoch of the link to it.
    pub(crate) incarnation: u64,
    pub(crate) epoch: u64,
    /// The clock that the slowest worker must have had; whether the workers keep step.
    pub(crate) least: u64,
    pub(crate) in_step: bool,
    /// The set of rows that the server keeps fresh over this link, and as of when.
    pub(crate) generation: u32,
    pub(crate) swept: Swept,
}

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheLookup {
    /// The cache has the row, as of this clock.
    Hit(Option<u64>),
    /// The row must be requested. `cached` is the version that the cache has; its values are then in `out`. With
    /// `fills` the answer goes into the cache.
    Miss { cached: CachedVersion, fills: bool },
}

/// Cached rows of one table, read in one way. Workers share it by `Arc`.
///
/// ```
/// # use gannet_core::{Read, Schema};
/// # use gannet_worker::{CacheConfig, CacheUse, OneSided, RowCache, Staleness};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_optim::{Add, Rule};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).one_sided(OneSided::Never).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// # let schema = Schema::scalar("clicks", Rule::Add(Add));
/// # let table = worker.open_table(&schema)?;
/// # let staleness = Staleness::Pulls(100);
/// # let (when, active) = (CacheUse::Always, None);
/// # let config = CacheConfig { bytes: 1 << 20, when, staleness, incremental: true, active };
/// // This worker does not read rows in its server's memory (OneSided::Never), as if they were on two hosts.
/// worker.cache_rows(table, RowCache::new(&schema, Read::Weights, config)?.into())?;
/// let mut weights = [0.0];
/// for _ in 0..4 {
///     worker.pull(table, &[7], Read::Weights, &mut weights)?;
/// }
/// assert!(worker.counters().cache_hits > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowCache {
    pub(crate) table: String,
    pub(crate) read: Read,
    pub(crate) floats: usize,
    pub(crate) config: CacheConfig,
    pub(crate) map: DashMap<u64, Entry, KeyHashBuilder>,
    pub(crate) arena: Arena,
    pub(crate) sketch: Sketch,
    /// The first place that was never taken; places that have become free.
    pub(crate) fresh: AtomicU32,
    pub(crate) free: Mutex<Vec<u32>>,
    /// Counts the pulls of all workers.
    pub(crate) turns: AtomicU64,
    /// Workers that share the cache now, and how many ever did.
    pub(crate) sharers: AtomicU32,
    pub(crate) sharers_ever: AtomicU16,
    /// Keys to follow; how many sets of them there have been.
    pub(crate) to_follow: Mutex<Vec<u64>>,
    pub(crate) generations: AtomicU32,
    /// A counter from which random places are drawn.
    chance: AtomicU64,
}

impl RowCache {
    /// An empty cache of a table's rows as `read` answers them.
    ///
    /// # Errors
    /// The limit is too small for the cache to be of use.
    pub fn new(schema: &Schema, read: Read, config: CacheConfig) -> Result<RowCache, WorkerError> {
        let floats = schema.read_floats(read);
        // The map doubles, and is at least seven sixteenths full.
        let entry = (size_of::<Entry>() + size_of::<u64>() + 1) * 16 / 7;
        let a_row = (8 + 4 * floats + entry + 16) as u64;
        if config.bytes < CACHE_BYTES_MIN {
            let text = format!(
                "a cache of {} bytes is too small: it needs at least {CACHE_BYTES_MIN}",
                config.bytes
            );
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
            sharers_ever: AtomicU16::new(0),
            to_follow: Mutex::default(),
            generations: AtomicU32::new(0),
            chance: AtomicU64::new(1),
        })
    }

    /// Rows that it has or has requested.
    pub fn rows(&self) -> u64 {
        self.map.len() as u64
    }

    /// Rows that it may have.
    pub fn rows_max(&self) -> u64 {
        u64::from(self.arena.places())
    }

    fn is_fresh(&self, entry: &Entry, reader: &CacheReader) -> bool {
        let swept = reader.swept_of(entry);
        let in_step = reader.least == 0 || entry.lowest.max(swept.lowest) > reader.least;
        in_step
            && entry.incarnation == reader.incarnation
            && match self.config.staleness {
                Staleness::Pulls(pulls) => reader.turn.saturating_sub(entry.turn.max(swept.turn)) <= pulls,
                Staleness::Time(time) => {
                    reader.at_us.saturating_sub(entry.at_us.max(swept.at_us)) <= time.as_micros() as u64
                }
            }
    }

    /// Copies the row of a key into `out` for a pull, or says how to request it.
    pub(crate) fn look(&self, key: u64, reader: &CacheReader, out: &mut [f32]) -> CacheLookup {
        let pulled = self.sketch.count(key);
        let Some(mut entry) = self.map.get_mut(&key) else {
            let fills = pulled > 1 && self.admit(key, pulled, reader);
            return CacheLookup::Miss { cached: CachedVersion::Nothing, fills };
        };
        if entry.state == CacheState::Requested {
            // The answer never came, or never will.
            let lost = entry.sharer == reader.sharer && entry.incarnation != reader.epoch;
            let fills = lost || reader.turn.saturating_sub(entry.turn) > CACHE_REQUEST_PULLS_MAX;
            if fills {
                self.request(&mut entry, reader);
            }
            return CacheLookup::Miss { cached: CachedVersion::Nothing, fills };
        }
        if self.is_fresh(&entry, reader) {
            self.arena.read(entry.place, out);
            if entry.followed != reader.generation {
                self.follow_later(key, &mut entry, reader);
            }
            return CacheLookup::Hit(entry.lowest.max(reader.swept_of(&entry).lowest).checked_sub(1));
        }
        let names_version =
            self.config.incremental && !entry.mixed && entry.incarnation == reader.incarnation;
        let cached = if names_version { entry.cached_version() } else { CachedVersion::Nothing };
        if names_version {
            self.arena.read(entry.place, out);
        }
        self.request(&mut entry, reader);
        CacheLookup::Miss { cached, fills: true }
    }

    /// Marks a row as requested.
    pub(crate) fn request(&self, entry: &mut Entry, reader: &CacheReader) {
        self.arena.clear(entry.place);
        let (followed, tracked) = (entry.followed, entry.tracked);
        *entry = Entry { followed, tracked, ..requested(entry.place, reader) };
    }

    /// A row that is used again is worth following.
    fn follow_later(&self, key: u64, entry: &mut Entry, reader: &CacheReader) {
        (entry.followed, entry.tracked, entry.missed) = (reader.generation, false, false);
        if let Ok(mut to_follow) = self.to_follow.lock()
            && to_follow.len() < SUBSCRIBED_ROWS_MAX
        {
            to_follow.push(key);
        }
    }

    /// Takes a place for a key, perhaps that of a key that is pulled less often.
    fn admit(&self, key: u64, pulled: u8, reader: &CacheReader) -> bool {
        let Some(place) = self.take_place(pulled) else { return false };
        self.arena.set_key(place, key);
        self.arena.clear(place);
        match self.map.entry(key) {
            Place::Vacant(vacant) => {
                vacant.insert(requested(place, reader));
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

    /// Stores a requested row from its answer: `row` as of then, with the version that the server answered.
    pub(crate) fn fill(
        &self,
        key: u64,
        reader: &CacheReader,
        row: &[f32],
        version: CachedVersion,
        lowest: Option<u64>,
    ) {
        let Some(mut entry) = self.map.get_mut(&key) else { return };
        if entry.state != CacheState::Requested
            || (entry.sharer, entry.turn, entry.incarnation) != (reader.sharer, reader.turn, reader.epoch)
        {
            return;
        }
        if !entry.mixed {
            self.arena.write(entry.place, row);
        } else if !self.arena.add(entry.place, row) {
            drop(entry);
            return self.forget(key);
        }
        (entry.state, entry.version) = match version {
            CachedVersion::Row(version) => (CacheState::Row, version),
            _ => (CacheState::NoRow, 0),
        };
        (entry.incarnation, entry.lowest) = (reader.incarnation, clock_word(lowest));
    }

    /// Adds the change of an own push, which has just begun, to a key's row.
    pub(crate) fn change(&self, key: u64, change: &[f32]) {
        let Some(mut entry) = self.map.get_mut(&key) else { return };
        entry.mixed = true;
        if !self.arena.add(entry.place, change) {
            drop(entry);
            self.forget(key);
        }
    }

    /// Drops what is known of all keys. Answers on their way find no entry.
    pub(crate) fn forget_all(&self) {
        self.map.retain(|_, entry| {
            self.give_place(entry.place);
            false
        });
    }

    /// Drops what is known of a key.
    pub(crate) fn forget(&self, key: u64) {
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

/// Number of random places from which the key that is pulled least often is evicted.
const VICTIMS: usize = 5;

fn requested(place: u32, reader: &CacheReader) -> Entry {
    let &CacheReader { sharer, turn, at_us, epoch, .. } = reader;
    Entry {
        place,
        sharer,
        state: CacheState::Requested,
        mixed: false,
        followed: 0,
        tracked: false,
        missed: false,
        turn,
        at_us,
        incarnation: epoch,
        version: 0,
        lowest: 0,
    }
}

impl RowCache {
    /// Stores a change of a followed row that its server has sent. Returns `false` if the cache no longer follows the
    /// row.
    pub(crate) fn refresh(
        &self,
        key: u64,
        generation: u32,
        touched: bool,
        row: &[f32],
        version: CachedVersion,
        as_of: (&Swept, u64),
    ) -> bool {
        let Some(mut entry) = self.map.get_mut(&key) else { return false };
        if entry.followed != generation {
            return false;
        }
        entry.tracked = true;
        // The row is requested: its answer comes later, and is newer.
        if entry.state == CacheState::Requested {
            return true;
        }
        entry.missed = touched;
        if touched {
            return true;
        }
        self.arena.write(entry.place, row);
        let (last_answered, lowest) = as_of;
        (entry.state, entry.version) = match version {
            CachedVersion::Row(version) => (CacheState::Row, version),
            _ => (CacheState::NoRow, 0),
        };
        (entry.mixed, entry.lowest) = (false, lowest);
        (entry.turn, entry.at_us) = (last_answered.turn, last_answered.at_us);
        true
    }
}

impl CacheReader {
    /// As of when a row is current because it is followed and was not mentioned.
    pub(crate) fn swept_of(&self, entry: &Entry) -> Swept {
        let follows = entry.followed != 0 && entry.followed == self.generation;
        if follows && entry.tracked && !entry.missed { self.swept } else { Swept::default() }
    }
}
