//! Rows to which a session has subscribed: once a period, the server sends those that have changed.
//!
//! A sweep is a reading of the changes of the subscribed keys ([`WatchedKeys`]), in slices. The changed rows of a slice
//! go out in a frame. The last frame of a sweep says that the sweep is over, so the worker knows that all other rows
//! are unchanged. While the peer has not taken its earlier frames, the server skips sweeps. The next sweep sends all
//! changes since.

use crate::limits::{FLUSH_BYTES, SWEEP_ROWS};
use crate::peers::buffers::RequestBuffers;
use crate::peers::memory::SessionShare;
use crate::peers::outcome::{RequestOutcome, refuse};
use crate::requests::bulk::shards;
use crate::requests::steps::pushes;
use crate::server_tables::ServerTables;
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{ChangeSlice, Read, WatchedKeys, hash, shard_of};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::subscriptions::{DeltaFrame, SubscribeFrame, SubscribedFrame};
use gannet_wire::limits::{PART_KEYS_MAX, SUBSCRIBED_ROWS_MAX, part_keys};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// The subscribed rows of one table.
struct Subscription {
    table: u32,
    read: Read,
    every: Duration,
    /// The worker's number for these rows. A later one is of other rows.
    set: u32,
    watched: WatchedKeys,
    /// The lowest clock when the sweep under way began.
    lowest: Option<u64>,
    due: Duration,
}

/// The subscriptions of a session.
pub(crate) struct Subscriptions {
    all: Vec<Subscription>,
    share: SessionShare,
}

impl Subscriptions {
    pub(crate) fn new(share: SessionShare) -> Subscriptions {
        Subscriptions { all: Vec::new(), share }
    }

    /// When the next sweep is due.
    pub(crate) fn due(&self) -> Duration {
        self.all.iter().map(|subscription| subscription.due).min().unwrap_or(Duration::MAX)
    }

    /// Adds rows to a subscription, or replaces its rows with these.
    pub(crate) fn add(
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
        let (own, shard_count) = (shards.set(), shards.schema().shards);
        if keys.iter().any(|&key| !own.contains(shard_of(hash(key), shard_count))) {
            return refuse(
                Refusal::WrongShard,
                "a subscription to a row whose shard this thread does not own",
            );
        }
        let known = self.all.iter().position(|subscription| subscription.table == table);
        let before = known.map_or(0, |at| self.all[at].watched.len());
        let remaining = if flags.anew { 0 } else { before };
        let others: usize =
            self.all.iter().map(|subscription| subscription.watched.len()).sum::<usize>() - before;
        let rows = remaining + count;
        let fits = count <= PART_KEYS_MAX && others + rows <= SUBSCRIBED_ROWS_MAX;
        if !fits || !self.share.resize((others + rows) * WatchedKeys::BYTES_A_KEY) {
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
                watched: WatchedKeys::default(),
                lowest: None,
                due: now + every,
            });
        }
        if let Some(subscription) = self.all.iter_mut().find(|subscription| subscription.table == table) {
            subscription.watched.extend(keys);
            (subscription.every, subscription.set) = (every, set);
        }
        let answer = SubscribedFrame { table, rows: rows as u32, period_ms, flags, set };
        Ok(transmit.send(answer.encode(frame.head.id))?)
    }

    /// Whether no sweep is under way.
    pub(crate) fn is_between(&self) -> bool {
        self.all.iter().all(|subscription| subscription.watched.is_between_readings())
    }

    /// Skips the sweeps that are due.
    pub(crate) fn skip(&mut self, now: Duration) {
        self.all
            .iter_mut()
            .filter(|subscription| subscription.due <= now)
            .for_each(|subscription| subscription.due = now + subscription.every);
    }

    /// Sends the changes of the subscriptions that are due.
    pub(crate) fn sweep(
        &mut self,
        tables: &mut ServerTables,
        scratch: &mut RequestBuffers,
        transmit: &mut Transmit,
        now: Duration,
    ) {
        let mut visits = 0;
        for subscription in self.all.iter_mut().filter(|subscription| subscription.due <= now) {
            if subscription.watched.is_between_readings() {
                subscription.lowest = pushes::lowest_step(tables, subscription.table);
            }
            loop {
                if visits >= SWEEP_ROWS || transmit.queued_bytes() >= FLUSH_BYTES {
                    // The sweep goes on soon, behind the frames that are queued.
                    subscription.due = now + Duration::from_millis(1);
                    break;
                }
                let Some(sent) = subscription.send_slice(SWEEP_ROWS - visits, tables, scratch, transmit)
                else {
                    visits = SWEEP_ROWS;
                    continue;
                };
                visits += sent.visits;
                if sent.last {
                    subscription.due = now + subscription.every;
                    break;
                }
            }
        }
    }
}

impl Subscription {
    /// Sends the changes of the next slice, which visits about so many rows. `None` if the out queue is full.
    fn send_slice(
        &mut self,
        visits: usize,
        tables: &mut ServerTables,
        scratch: &mut RequestBuffers,
        transmit: &mut Transmit,
    ) -> Option<ChangeSlice> {
        let (shards, counters) = shards(&mut tables.all, self.table).ok()?;
        let floats = shards.schema().read_floats(self.read);
        let most = part_keys(floats).min(self.watched.len()).max(1);
        // Space for as many rows as there can be, behind their numbers.
        let before = (4 * most).next_multiple_of(8);
        let out = transmit.reserve(before + most * floats * 4)?;
        let changed = &mut scratch.changed;
        let rows = cast_slice_mut(&mut out[before..]);
        let slice = shards.read_changes(&mut self.watched, self.read, visits, rows, changed).ok()?;
        for (place, (number, has_row)) in out.chunks_exact_mut(4).zip(changed.iter()) {
            place.copy_from_slice(&(number | u32::from(!has_row) << 31).to_le_bytes());
        }
        let rows = changed.len();
        let behind = (4 * rows).next_multiple_of(8);
        out[4 * rows..behind].fill(0);
        out.copy_within(before..before + rows * floats * 4, behind);
        if rows > 0 || slice.last {
            let (table, sent_rows, set) = (self.table, rows as u32, self.set);
            let (version, last, lowest) = (slice.version, slice.last, self.lowest);
            let delta = DeltaFrame { table, rows: sent_rows, version, set, last, lowest };
            transmit.commit(delta.encode(0), behind + rows * floats * 4);
            counters.delta_rows.add(rows as u64);
        }
        Some(slice)
    }
}
