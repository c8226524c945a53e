//! How a worker subscribes to rows that its servers then keep fresh in its cache.

use crate::cache::following::Delta;
use crate::cache::swept::Swept;
use crate::error::WorkerError;
use crate::requests::ids::Request;
use crate::requests::in_flight::{ControlInFlight, RequestWork};
use crate::requests::names::TableId;
use crate::worker::Worker;
use bytemuck::cast_slice;
use gannet_core::{CachedVersion, Read, hash, shard_of};
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::subscriptions::{DeltaFrame, SubscribeFlags, SubscribeFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::frames::word::clock_word;
use gannet_wire::limits::{PART_KEYS_MAX, SUBSCRIBED_ROWS_MAX};
use std::time::Duration;

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
