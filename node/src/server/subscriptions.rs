//! Rows to which a session has subscribed: once a period, the server sends those that have changed.
//!
//! A sweep goes through a subscription in chunks, and remembers each chunk's snapshot version. Newer rows go out in a
//! frame. The last frame of a sweep says that the sweep is over, so the worker knows that all other rows are unchanged.
//! While the peer has not taken its earlier frames, the server skips sweeps. The next sweep sends all changes since.

use super::bulk::{RequestBuffers, RequestOutcome, refuse, shards};
use super::memory::SessionShare;
use super::tables::ServerTables;
use crate::error::Refusal;
use crate::frames::pull_newer::{bit, bit_words};
use crate::frames::{DeltaFrame, FrameKind, SubscribeFrame, SubscribedFrame};
use crate::limits::{FLUSH_BYTES, PART_KEYS_MAX, SUBSCRIBED_ROWS_MAX, SWEEP_ROWS, part_keys};
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{CachedVersion, NewerRow, Read, Segments, hash, shard_of};
use gannet_transport::{Frame, Full, Transmit};
use std::time::Duration;

/// Memory of a subscribed row, in bytes: its key and its bit.
const BYTES_A_ROW: usize = 9;

/// The subscribed rows of one table.
struct Subscription {
    table: u32,
    read: Read,
    every: Duration,
    /// The worker's number for these rows. A later one is of other rows.
    set: u32,
    keys: Vec<u64>,
    /// A bit a key: the worker knows that the key has no row.
    none: Vec<u64>,
    /// The snapshot version of each chunk that a sweep has visited.
    versions: Vec<u64>,
    /// How many keys a sweep has visited. The rows of the others are sent in any case.
    known: usize,
    /// The next chunk of a sweep under way, and the lowest clock when the sweep began.
    at: Option<(usize, Option<u64>)>,
    due: Duration,
}

/// The subscriptions of a session.
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    share: SessionShare,
}

impl Subscriptions {
    pub(super) fn new(share: SessionShare) -> Subscriptions {
        Subscriptions { all: Vec::new(), share }
    }

    /// When the next sweep is due.
    pub(super) fn due(&self) -> Duration {
        self.all.iter().map(|subscription| subscription.due).min().unwrap_or(Duration::MAX)
    }

    /// Adds rows to a subscription, or replaces its rows with these.
    pub(super) fn add(
        &mut self,
        frame: &Frame<'_>,
        tables: &mut ServerTables,
        now: Duration,
        transmit: &mut Transmit,
    ) -> RequestOutcome {
        let request = SubscribeFrame::decode(&frame.head)?;
        let SubscribeFrame { table, keys: count, period_ms, flags, set } = request;
        let (shards, _) = shards(&mut tables.all, table)?;
        let count = count as usize;
        let got = frame.payload.len();
        if got != count * 8 || period_ms == 0 {
            let text = format!(
                "a subscription of {count} rows every {period_ms} ms with {got} bytes of keys: it needs 8 bytes a key \
                 and a period above 0"
            );
            return refuse(Refusal::Malformed, text);
        }
        let keys: &[u64] = cast_slice(frame.payload);
        let (range, shard_count) = (shards.range(), shards.schema().shards);
        if keys.iter().any(|&key| !range.contains(&shard_of(hash(key), shard_count))) {
            return refuse(
                Refusal::WrongShard,
                "a subscription to a row whose shard this thread does not own",
            );
        }
        let known = self.all.iter().position(|subscription| subscription.table == table);
        let before = known.map_or(0, |at| self.all[at].keys.len());
        let remaining = if flags.anew { 0 } else { before };
        let others: usize =
            self.all.iter().map(|subscription| subscription.keys.len()).sum::<usize>() - before;
        let rows = remaining + count;
        let fits = count <= PART_KEYS_MAX && others + rows <= SUBSCRIBED_ROWS_MAX;
        if !fits || !self.share.resize((others + rows) * BYTES_A_ROW) {
            let text = format!(
                "{rows} rows: {SUBSCRIBED_ROWS_MAX} may be subscribed, while there is memory for keysets"
            );
            return refuse(Refusal::Limit, text);
        }
        transmit.reserve(0).ok_or(Full)?;
        let read = if flags.state { Read::State } else { Read::Weights };
        let every = Duration::from_millis(u64::from(period_ms));
        if remaining == 0 {
            self.all.retain(|subscription| subscription.table != table);
            self.all.push(Subscription {
                table,
                read,
                every,
                set,
                keys: Vec::new(),
                none: Vec::new(),
                versions: Vec::new(),
                known: 0,
                at: None,
                due: now + every,
            });
        }
        if let Some(subscription) = self.all.iter_mut().find(|subscription| subscription.table == table) {
            subscription.keys.extend_from_slice(keys);
            subscription.none.resize(bit_words(subscription.keys.len()), 0);
            (subscription.every, subscription.set) = (every, set);
        }
        let answer = SubscribedFrame { table, rows: rows as u32, period_ms, flags, set };
        Ok(transmit.send(answer.encode(frame.head.id))?)
    }

    /// Whether no sweep is under way.
    pub(super) fn is_between(&self) -> bool {
        self.all.iter().all(|subscription| subscription.at.is_none())
    }

    /// Skips the sweeps that are due.
    pub(super) fn skip(&mut self, now: Duration) {
        self.all
            .iter_mut()
            .filter(|subscription| subscription.due <= now)
            .for_each(|subscription| subscription.due = now + subscription.every);
    }

    /// Sends the changes of the subscriptions that are due.
    pub(super) fn sweep(
        &mut self,
        tables: &mut ServerTables,
        scratch: &mut RequestBuffers,
        transmit: &mut Transmit,
        now: Duration,
    ) {
        let mut rows = 0;
        for subscription in self.all.iter_mut().filter(|subscription| subscription.due <= now) {
            if subscription.at.is_none() {
                let lowest = tables.lowest(subscription.table);
                subscription.at = Some((0, lowest));
            }
            while let Some((chunk, lowest)) = subscription.at {
                if rows >= SWEEP_ROWS || transmit.queued_bytes() >= FLUSH_BYTES {
                    // The sweep goes on soon, behind the frames that are queued.
                    subscription.due = now + Duration::from_millis(1);
                    break;
                }
                rows +=
                    subscription.send_chunk(chunk, lowest, tables, scratch, transmit).unwrap_or(SWEEP_ROWS);
                if subscription.at.is_none() {
                    subscription.due = now + subscription.every;
                }
            }
        }
    }
}

impl Subscription {
    /// Sends the changes of a chunk. Returns how many rows were compared, or `None` if the out queue is full.
    fn send_chunk(
        &mut self,
        chunk: usize,
        lowest: Option<u64>,
        tables: &mut ServerTables,
        scratch: &mut RequestBuffers,
        transmit: &mut Transmit,
    ) -> Option<usize> {
        let (shards, counters) = shards(&mut tables.all, self.table).ok()?;
        let floats = shards.schema().read_floats(self.read);
        let most = part_keys(floats);
        let (from, end) = (chunk * most, self.keys.len().min((chunk + 1) * most));
        let keys = &self.keys[from.min(end)..end];
        let version = self.versions.get(chunk).copied().unwrap_or(0);
        let RequestBuffers { cached, changes, found, .. } = scratch;
        let cached_version = |i: usize| match (i < self.known, bit(&self.none, i)) {
            (false, _) => CachedVersion::Nothing,
            (_, true) => CachedVersion::NoRowAt(version),
            _ => CachedVersion::Row(version),
        };
        cached.clear();
        cached.extend((from..end).map(cached_version));
        changes.clear();
        found.clear();
        // Space for all rows of the chunk, behind their numbers.
        let before = (4 * keys.len()).next_multiple_of(8);
        let out = transmit.reserve(before + keys.len() * floats * 4)?;
        let what = (self.read, Segments::ALL);
        let rows = cast_slice_mut(&mut out[before..]);
        let (rows, version) = shards.pull_newer(keys, cached, what, rows, found, changes).ok()?;
        let mut numbers = 0;
        for (i, newer) in (from..end).zip(&*changes) {
            let gone = u32::from(*newer == NewerRow::NoRow);
            if *newer != NewerRow::Same {
                out[4 * numbers..4 * numbers + 4].copy_from_slice(&(i as u32 | gone << 31).to_le_bytes());
                self.none[i / 64] = (self.none[i / 64] & !(1 << (i % 64))) | (u64::from(gone) << (i % 64));
                numbers += 1;
            }
        }
        let behind = (4 * rows).next_multiple_of(8);
        out[4 * rows..behind].fill(0);
        out.copy_within(before..before + rows * floats * 4, behind);
        self.versions.resize(self.versions.len().max(chunk + 1), 0);
        (self.versions[chunk], self.known) = (version, self.known.max(end));
        let last = end == self.keys.len();
        self.at = (!last).then_some((chunk + 1, lowest));
        if rows > 0 || last {
            let (table, sent_rows, set) = (self.table, rows as u32, self.set);
            let delta = DeltaFrame { table, rows: sent_rows, version, set, last, lowest };
            transmit.commit(delta.encode(0), behind + rows * floats * 4);
            counters.delta_rows.add(rows as u64);
        }
        Some(keys.len())
    }
}
