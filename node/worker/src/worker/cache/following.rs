//! Cached rows that servers keep fresh. The worker subscribes to rows that it has used again. In regular sweeps its
//! servers send the rows that have changed, and then that the sweep is over.
//!
//! A frame of changes comes among the answers in order. So it includes every own push that was acknowledged before it,
//! and none of the unacknowledged ones: the worker leaves rows that such pushes touch as they are. A row that a sweep
//! does not mention has not changed since the sweep before. The worker knows when a sweep began from the latest request
//! that the server had answered when the sweep before it was over.

use crate::error::WorkerError;
use crate::worker::Worker;
use crate::worker::cache::{CacheReader, CacheState, Entry, RowCache};
use crate::worker::ids::Request;
use crate::worker::in_flight::{ControlInFlight, RequestWork};
use crate::worker::tables::TableId;
use bytemuck::cast_slice;
use gannet_core::{CachedVersion, Read, hash, shard_of};
use gannet_transport::{Head, Net};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::subscriptions::{DeltaFrame, SubscribeFlags, SubscribeFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::frames::word::clock_word;
use gannet_wire::limits::{PART_KEYS_MAX, SUBSCRIBED_ROWS_MAX};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a link's server keeps fresh of one table.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The keys; their indices are their numbers on the link.
    keys: Vec<u64>,
    /// The number of this set of keys. Frames of another set are about other rows.
    generation: u32,
    /// The server cannot keep more rows fresh.
    refused: bool,
    /// How many of the rows sent in this set the cache no longer has, and how many rows were sent.
    gone: usize,
    sent: usize,
    /// As of when all unmentioned rows are current; and what that will be when the next sweep is over.
    pub(crate) swept: Swept,
    next: Swept,
}

/// As of when rows are current.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    pub(crate) turn: u64,
    pub(crate) at_us: u64,
    /// The lowest clock plus 1, or 0.
    pub(crate) lowest: u64,
}

/// A frame of changes, copied out of the receive buffer.
pub(crate) struct Delta {
    pub(crate) head: Head,
    pub(crate) payload: Vec<u64>,
}

impl Followed {
    /// Ends the set: the link is lost, or the set is given up. The next set starts from nothing.
    pub(crate) fn lose(&mut self) {
        *self = Followed::default();
    }

    /// The number of the set that rows should be in; 0 if none are followed.
    pub(crate) fn generation(&mut self, rows: &RowCache) -> u32 {
        if self.generation == 0 && !self.refused && rows.config.active.is_some() {
            self.generation = rows.generations.fetch_add(1, Relaxed) + 1;
        }
        self.generation
    }
}

impl RowCache {
    /// Stores a change of a followed row that its server has sent. Returns `false` if the cache no longer follows the
    /// row.
    fn refresh(
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

impl<N: Net> Worker<N> {
    /// Subscribes to rows that have been used again since the last call.
    pub(crate) fn follow(&mut self, table: TableId, now: Duration) -> Result<(), WorkerError> {
        let Some(caching) = &mut self.tables[table.0].cache else { return Ok(()) };
        let Some(every) = caching.rows.config.active.filter(|_| now >= caching.next_follow) else {
            return Ok(());
        };
        caching.next_follow = now + every;
        let rows = caching.rows.clone();
        let to_follow =
            rows.to_follow.lock().map(|mut to_follow| std::mem::take(&mut *to_follow)).unwrap_or_default();
        let known = &self.tables[table.0];
        let mut by_peer: Vec<Vec<u64>> = vec![Vec::new(); self.peers.len()];
        for key in to_follow {
            let shard = shard_of(hash(key), known.schema.shards);
            by_peer[known.owners[shard as usize] as usize].push(key);
        }
        for (number, keys) in by_peer.iter().enumerate() {
            let peer = &mut self.peers[number];
            let anew = peer.followed_of(table.0).gone * 2 > peer.followed_of(table.0).sent.max(1_000);
            if anew {
                peer.followed_of(table.0).lose();
            }
            if peer.link.is_none() {
                continue;
            }
            // The server's answers say as of when the rows that it does not mention are current.
            if !peer.followed_of(table.0).keys.is_empty() {
                self.ping(number, now)?;
            }
            for keys in keys.chunks(PART_KEYS_MAX) {
                self.subscribe(number, table, keys, every, rows.read)?;
            }
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        number: usize,
        table: TableId,
        keys: &[u64],
        every: Duration,
        read: Read,
    ) -> Result<(), WorkerError> {
        let now = self.net.now();
        let followed = self.peers[number].followed_of(table.0);
        if followed.generation == 0
            || followed.refused
            || followed.keys.len() + keys.len() > SUBSCRIBED_ROWS_MAX
        {
            return Ok(());
        }
        let flags = SubscribeFlags { anew: followed.keys.is_empty(), state: read == Read::State };
        followed.keys.extend_from_slice(keys);
        let frame = UnsentFrame::new(&SubscribeFrame {
            table: 0,
            keys: keys.len() as u32,
            period_ms: every.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
            flags,
            set: followed.generation,
        });
        let payloads = vec![cast_slice(keys).to_vec()];
        let control = ControlInFlight {
            frame,
            table: Some(table.0),
            payloads,
            answers: vec![None],
            ..Default::default()
        };
        let id = self.flights.add(RequestWork::Control(control), 1, 0, now);
        self.peers[number].enqueue(Request { index: id.index, chunk: 0, push: false, bytes: 0 }, now);
        self.send(number)
    }

    /// A server cannot keep more rows fresh: stops following its rows.
    pub(crate) fn follow_refused(&mut self, number: usize) {
        for followed in &mut self.peers[number].followed {
            followed.lose();
            followed.refused = true;
        }
    }

    /// Stores changes that a server has sent. Returns `false` if they cannot be read.
    pub(crate) fn take_delta(&mut self, number: usize, delta: &Delta) -> bool {
        let Delta { head, payload } = delta;
        let Ok(DeltaFrame { table: of, rows, version, set: generation, last, lowest }) =
            DeltaFrame::decode(head)
        else {
            return false;
        };
        let lowest = clock_word(lowest);
        let peer = &mut self.peers[number];
        let Some(table) = peer.session.tables.iter().position(|&table| table == of) else { return false };
        let Some(caching) = self.tables.get(table).and_then(|table| table.cache.as_ref()) else {
            return true;
        };
        let last_answered = peer.near.last_answered();
        let touched = peer.near.own_pushes.open();
        let Some(followed) = peer.followed.get_mut(table).filter(|of| of.generation == generation) else {
            return true;
        };
        let (cache, count) = (&caching.rows, rows as usize);
        let behind = (4 * count).next_multiple_of(8);
        let bytes: &[u8] = cast_slice(payload);
        let want = behind + count * cache.floats * 4;
        if bytes.len() != want.next_multiple_of(8) {
            return false;
        }
        let numbers: &[u32] = cast_slice(&bytes[..4 * count]);
        let values: &[f32] = cast_slice(&bytes[behind..want]);
        let (turn, at_us) = caching.turn_at(last_answered);
        let now = Swept { turn, at_us, lowest: 0 };
        let mut refreshed = 0;
        for (&name, row) in numbers.iter().zip(values.chunks_exact(cache.floats)) {
            let Some(&key) = followed.keys.get((name & (u32::MAX >> 1)) as usize) else { return false };
            let version = if name >> 31 == 1 { CachedVersion::NoRow } else { CachedVersion::Row(version) };
            let touched = touched.is_some_and(|touched| touched.has(key));
            let known = cache.refresh(key, generation, touched, row, version, (&now, lowest));
            followed.gone += usize::from(!known);
            refreshed += u64::from(known && !touched);
        }
        followed.sent += count;
        if last {
            // This sweep began after the answers that had come when the sweep before was over.
            followed.swept = Swept { lowest, ..followed.next };
            followed.next = now;
        }
        self.counters.cache_refreshed.add(refreshed);
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
