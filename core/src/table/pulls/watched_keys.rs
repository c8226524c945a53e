//! Keys whose changes a reader wants to know, again and again.
//!
//! A *reading* begins with a mark of all shards here and goes through the keys in slices. Pushes may be applied between
//! two slices. It returns each key whose row has changed since the reading before began, as the row is now. So a row
//! that a whole reading does not return is as it was when the reading before began.
//!
//! The keys are in the order of their slots, and the reader of changes ([`changes`](crate::table::owned::changes))
//! skips pages without changes. A row that is gone shows in its slot. A key that had no row is looked up. If it still
//! has none, the ring of deletions tells whether it had one in between. If the ring has forgotten that, the key is
//! returned.

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::index::hash_index::NONE;
use crate::index::resolve::ShardIndex;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::owned::slots::Slots;
use crate::table::pushes::read_write::Read;

/// How many keys ahead of a look-up the bucket is prefetched.
const AHEAD: usize = 16;

/// Keys of one thread's shards, and what their reader knows of each. [`Shards::read_changes`] has an example.
#[derive(Debug, Default)]
pub struct WatchedKeys {
    keys: Vec<u64>,
    /// The keys that the reader knows, in the order of shards and slots. While a reading is under way, new keys are at
    /// the end.
    places: Vec<Place>,
    /// The mark of the last whole reading; 0: there was none.
    from: u64,
    reading: Option<Reading>,
}

/// Where the row of a key was when it was last returned. The slot is [`NONE`] if the key had no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    shard: u16,
    slot: u32,
    number: u32,
}

/// A reading that is under way.
#[derive(Debug)]
struct Reading {
    mark: u64,
    /// The next place, and how many there were at the beginning.
    at: usize,
    end: usize,
    /// The places are not in their order any more.
    moved: bool,
}

/// The keys of deletions since the last reading, in ascending order. They are of the shard that was looked at last, and
/// hold for one slice: a push between two slices may delete a row that it has inserted.
#[derive(Default)]
struct Deletions {
    shard: Option<u16>,
    /// `None`: the ring has forgotten some.
    keys: Option<Vec<u64>>,
}

/// The keys that a slice of a reading returns. It can be used again for the next slice.
#[derive(Debug, Default)]
pub struct ChangedKeys {
    places: Vec<usize>,
    keys: Vec<u64>,
    slots: Vec<u32>,
    numbers: Vec<u32>,
}

/// How far a slice of a reading came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeSlice {
    /// How many keys, or pages of them, were visited.
    pub visits: usize,
    /// The snapshot version of the returned rows: later changes get higher row versions.
    pub version: u64,
    /// The reading is over.
    pub last: bool,
}

impl WatchedKeys {
    /// Bytes of memory for each key.
    pub const BYTES_A_KEY: usize = size_of::<u64>() + size_of::<Place>();

    /// Adds keys. Their numbers count on from those before, from 0. The next reading that has not ended returns them
    /// in any case.
    pub fn extend(&mut self, keys: &[u64]) {
        self.keys.extend_from_slice(keys);
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether no reading is under way.
    pub fn is_between_readings(&self) -> bool {
        self.reading.is_none()
    }

    /// Takes new keys into this reading, which returns them, until `most` keys are returned.
    fn take_new(&mut self, shards: u32, most: usize, visits: &mut usize, found: &mut Vec<usize>) {
        while self.places.len() < self.keys.len() && found.len() < most && *visits > 0 {
            *visits -= 1;
            let number = self.places.len();
            let shard = shard_of(hash(self.keys[number]), shards) as u16;
            found.push(number);
            self.places.push(Place { shard, slot: NONE, number: number as u32 });
        }
    }
}

impl ChangedKeys {
    /// The number of each key, and whether it has a row, in the order of the rows.
    pub fn iter(&self) -> impl Iterator<Item = (u32, bool)> {
        self.numbers.iter().zip(&self.slots).map(|(&number, &slot)| (number, slot != NONE))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// The places of a reading that have a slot of one shard.
struct PlacesWithSlots<'a> {
    places: &'a [Place],
    at: usize,
    shard: u16,
}

impl Slots for PlacesWithSlots<'_> {
    #[inline(always)]
    fn next(&self) -> Option<u32> {
        let place = self.places.get(self.at)?;
        (place.shard == self.shard && place.slot != NONE).then_some(place.slot)
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.at += 1;
    }

    #[inline(always)]
    fn skip_to(&mut self, end: u32) {
        while self.next().is_some_and(|slot| slot < end) {
            self.at += 1;
        }
    }
}

impl Shards {
    /// Reads the next slice of the watched keys that have changed. It begins a reading if none is under way. It visits
    /// about `visits` keys and returns at most as many as fit into `out`: [`Schema::read_floats`] floats for each, in
    /// the order of `changed`. A key without a row has its initial value. Keys that were added since the last reading
    /// come last. Once `last` is returned, the next call begins the next reading.
    ///
    /// # Errors
    /// A watched key is of a shard that is not here. `out` is then unspecified, and the next reading returns all keys.
    ///
    /// # Panics
    /// `out` has no space for one key.
    ///
    /// ```
    /// # use gannet_core::{ChangedKeys, PushName, Read, Schema, Shards, Store, WatchedKeys, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// # let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    /// shards.push(&name(1), Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    /// let (mut watched, mut changed, mut rows) = (WatchedKeys::default(), ChangedKeys::default(), [0.0; 4]);
    /// watched.extend(&[7, 8, 9]);
    /// let slice = shards.read_changes(&mut watched, Read::Weights, 100, &mut rows, &mut changed)?;
    /// assert!(slice.last && changed.iter().eq([(0, true), (1, true), (2, false)]));
    ///
    /// shards.push(&name(2), Write::Gradient, &[8], None, &[5.0])?;
    /// shards.read_changes(&mut watched, Read::Weights, 100, &mut rows, &mut changed)?;
    /// assert!(changed.iter().eq([(1, true)]) && rows[0] == 7.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Schema::read_floats`]: crate::Schema::read_floats
    pub fn read_changes(
        &mut self,
        watched: &mut WatchedKeys,
        read: Read,
        visits: usize,
        out: &mut [f32],
        changed: &mut ChangedKeys,
    ) -> Result<ChangeSlice, PullError> {
        let floats = self.schema.read_floats(read);
        let most = out.len() / floats;
        assert!(most > 0, "no space for a row of {floats} floats");
        let known = watched.places.len();
        let mut reading = watched.reading.take().unwrap_or_else(|| Reading {
            mark: self.mark_changes(),
            at: 0,
            end: known,
            moved: false,
        });
        let mut left = visits;
        let ChangedKeys { places: found, keys, slots, numbers } = changed;
        found.clear();
        keys.clear();
        slots.clear();
        numbers.clear();
        self.find_changed(watched, &mut reading, most, &mut left, found);
        if reading.at == reading.end {
            watched.take_new(self.schema.shards, most, &mut left, found);
        }
        numbers.extend(found.iter().map(|&at| watched.places[at].number));
        keys.extend(numbers.iter().map(|&number| watched.keys[number as usize]));
        if let Err(error) = self.pull(keys, read, &mut out[..keys.len() * floats], Some(slots)) {
            // Nothing is known of any key: the next reading returns all of them.
            *watched = WatchedKeys { keys: std::mem::take(&mut watched.keys), ..WatchedKeys::default() };
            return Err(error);
        }
        for (&at, &slot) in found.iter().zip(&*slots) {
            reading.moved |= watched.places[at].slot != slot;
            watched.places[at].slot = slot;
        }
        let last = reading.at == reading.end && watched.places.len() == watched.keys.len();
        if last {
            if reading.moved || reading.end != watched.places.len() {
                watched.places.sort_unstable();
            }
            watched.from = reading.mark;
        } else {
            watched.reading = Some(reading);
        }
        Ok(ChangeSlice { visits: visits - left, version: self.snapshot_version(), last })
    }

    /// Sets a mark at a snapshot version of all shards here, and returns it.
    fn mark_changes(&mut self) -> u64 {
        let mark = self.snapshot_version();
        self.shards.iter_mut().for_each(Shard::mark);
        mark
    }

    /// Adds to `found` the places of keys that may have changed, until there are `most`.
    fn find_changed(
        &mut self,
        watched: &WatchedKeys,
        reading: &mut Reading,
        most: usize,
        visits: &mut usize,
        found: &mut Vec<usize>,
    ) {
        let places = &watched.places[..reading.end];
        let mut deletions = Deletions::default();
        while *visits > 0
            && found.len() < most
            && let Some(&place) = places.get(reading.at)
        {
            let Some(shard) = self.shard_mut(u32::from(place.shard)) else {
                // The pull refuses the key by name.
                found.push(reading.at);
                reading.at += 1;
                continue;
            };
            if place.slot == NONE {
                *visits -= 1;
                if shard.may_have_had_row(watched, reading, &mut deletions) {
                    found.push(reading.at);
                }
                reading.at += 1;
                continue;
            }
            let mut slots = PlacesWithSlots { places, at: reading.at, shard: place.shard };
            while found.len() < most && shard.next_changed(watched.from, &mut slots, visits).is_some() {
                found.push(slots.at - 1);
            }
            reading.at = slots.at;
        }
    }
}

impl Shard {
    /// Whether the key of the reading's next place, which had no row, has one now or may have had one since.
    fn may_have_had_row(
        &mut self,
        watched: &WatchedKeys,
        reading: &Reading,
        deletions: &mut Deletions,
    ) -> bool {
        let key = |place: &Place| watched.keys[place.number as usize];
        let place = watched.places[reading.at];
        if let Some(ahead) = watched.places[..reading.end].get(reading.at + AHEAD)
            && ahead.shard == place.shard
        {
            self.locate(hash(key(ahead)));
        }
        if self.find(key(&place)) != NONE {
            return true;
        }
        if deletions.shard != Some(place.shard) {
            let mut keys = self.deletions_since(watched.from);
            keys.iter_mut().for_each(|keys| keys.sort_unstable());
            *deletions = Deletions { shard: Some(place.shard), keys };
        }
        deletions.keys.as_ref().is_none_or(|keys| keys.binary_search(&key(&place)).is_ok())
    }
}
