//! The pipelined calls: many pulls and pushes under way, rows landing where they are used, values sent from where
//! they are.

use super::Worker;
use super::in_flight::{InFlightId, PullInFlight, PullPart, PushInFlight, Request, RequestWork};
use super::relayout::Relayout;
use super::tables::TableId;
use crate::error::WorkerError;
use crate::frames::pair;
use crate::frames::push_payload::KeysetRows;
use crate::limits::KEPT_PULLS_MAX;
use crate::sharded_keys::ShardedKeys;
use gannet_core::{Read, Schema, Segments, Write};
use gannet_transport::Net;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Buffers of finished pushes that are kept for [`Worker::spare`].
pub(super) const SPARE_MAX: usize = 16;

/// Names a pull under way, and afterwards its keysets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullId(InFlightId);

/// Names a push under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushId(InFlightId);

/// The name of a push of training data: whose turn it is to learn the data does not show in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataName {
    /// The piece of data (a task of a pass): what the shards remember pushes of.
    pub pusher: u64,
    /// The job: a later one's is larger, and what an earlier one left of the name is forgotten.
    pub incarnation: u64,
    /// Which batch of it, from 1.
    pub seq: u64,
    /// The step for the learning rate's schedule.
    pub clock: u64,
}

/// A pull's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    /// The rows, in cut order.
    pub values: Vec<f32>,
    /// Which own pushes are in the rows: all rows in ranges, in cut order. A lost link can make it differ between the
    /// rows of one pull.
    pub saw: Vec<SeenPushes>,
    /// Of a worker that keeps step: the clock that the worker furthest behind had at least. All pushes of steps below
    /// it, of all workers, are in the rows.
    pub lowest: Option<u64>,
}

/// Which own pushes some rows of a pull include.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPushes {
    /// The rows, by their places in cut order.
    pub rows: Range<u32>,
    /// The sequence number of the last own push to the table that they include: all up to it are in, none after it.
    pub seq: u64,
}

/// What the parts of a pull saw, as ranges of rows.
fn saw_of(laid: &Relayout, parts: &[PullPart]) -> Vec<SeenPushes> {
    let mut all: Vec<SeenPushes> = Vec::with_capacity(parts.len());
    for (chunk, part) in laid.chunks().iter().zip(parts).filter(|(chunk, _)| chunk.len > 0) {
        let (rows, seq) = (chunk.start..chunk.start + chunk.len, part.saw);
        match all.last_mut().filter(|last| last.seq == seq && last.rows.end == rows.start) {
            Some(last) => last.rows.end = rows.end,
            None => all.push(SeenPushes { rows, seq }),
        }
    }
    // Those that were cut anew stand behind the others.
    if !all.is_sorted_by_key(|saw| saw.rows.start) {
        all.sort_unstable_by_key(|saw| saw.rows.start);
    }
    all
}

/// The keysets of a finished pull.
pub(super) struct KeptKeysets {
    id: PullId,
    laid: Relayout,
    parts: Vec<PullPart>,
}

/// Floats that a pull answers for a row.
pub(super) fn read_floats(schema: &Schema, read: Read, segments: Segments) -> Result<usize, WorkerError> {
    let floats = schema.read_floats_of(read, segments);
    floats.map_err(|error| WorkerError::Call(format!("table {:?}: {error}", schema.name)))
}

impl<N: Net> Worker<N> {
    /// Cuts a batch by shard. `keys` should hold no key twice (a pull answers it twice, a push applies it twice).
    ///
    /// # Panics
    /// When the table is another worker's, or there are more than `u32::MAX` keys.
    pub fn cut(&self, table: TableId, keys: &[u64]) -> ShardedKeys {
        let mut cut = ShardedKeys::default();
        self.cut_into(table, keys, &mut cut);
        cut
    }

    /// [`Worker::cut`] into the memory of a cut that is used no more.
    ///
    /// # Panics
    /// As [`Worker::cut`].
    pub fn cut_into(&self, table: TableId, keys: &[u64], cut: &mut ShardedKeys) {
        let known = &self.tables[table.0];
        cut.fill(table.0, &known.schema, &known.owners, keys);
        cut.layout = self.layout;
    }

    /// [`Worker::cut_into`] of keys that the caller has sorted by shard: the run of shard `s` is
    /// `keys[starts[s]..starts[s + 1]]`. Nothing is sorted or allocated again.
    ///
    /// # Errors
    /// A key is not in the run of its shard.
    pub fn cut_sorted_into(
        &self,
        table: TableId,
        keys: &[u64],
        starts: &[u32],
        cut: &mut ShardedKeys,
    ) -> Result<(), WorkerError> {
        let known = &self.tables[table.0];
        cut.fill_sorted(table.0, &known.schema, &known.owners, (keys, starts))?;
        cut.layout = self.layout;
        Ok(())
    }

    /// A cut for the links that there are now.
    fn laid(&self, cut: Arc<ShardedKeys>) -> Relayout {
        let known = &self.tables[cut.table];
        Relayout::new(cut, self.layout, &known.schema, &known.owners)
    }

    /// Begins to pull the rows of a cut's keys into `values`, whose length is made right. With `keep` the servers
    /// keep the keys' slots, so that a push to the same cut can name the pull instead of sending keys.
    ///
    /// # Errors
    /// The cut is of another table; or what the wait for earlier flights brings when too much is under way.
    pub fn begin_pull(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        read: Read,
        values: Vec<f32>,
        keep: bool,
    ) -> Result<PullId, WorkerError> {
        self.begin_pull_segments(table, cut, read, Segments::ALL, values, keep)
    }

    /// [`Worker::begin_pull`] of some segments of each row: the others do not travel.
    ///
    /// # Errors
    /// As [`Worker::begin_pull`]; or rows of the table do not have these segments.
    pub fn begin_pull_segments(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        read: Read,
        segments: Segments,
        values: Vec<f32>,
        keep: bool,
    ) -> Result<PullId, WorkerError> {
        self.begin_pull_ahead(table, cut, (read, segments), values, keep, 0)
    }

    /// [`Worker::begin_pull_segments`] for a step that begins `ahead` steps after the one that this worker is in.
    /// Without [`Worker::join`] that means nothing.
    ///
    /// # Errors
    /// As [`Worker::begin_pull_segments`]; or the pull would wait for this worker's own steps.
    pub fn begin_pull_ahead(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        (read, segments): (Read, Segments),
        mut values: Vec<f32>,
        keep: bool,
        ahead: u64,
    ) -> Result<PullId, WorkerError> {
        self.check_table(table, &cut)?;
        let clock = self.pull_clock(table, ahead)?;
        let known = &self.tables[table.0];
        let (floats, saw) = (read_floats(&known.schema, read, segments)?, known.last_seq);
        let keys = cut.keys().len();
        values.resize(keys * floats, 0.0);
        let bytes = keys * (8 + 4 * floats);
        self.wait_for_room(bytes)?;
        let now = self.net.now();
        let wanted = self.wanted(table, read, segments, floats, keep, clock);
        if self.reads(&wanted) {
            self.keep_near(now)?;
        }
        let cached = self.cached_pull(table, (read, segments), clock)?;
        // Nothing from here on changes the links.
        let laid = self.laid(cut);
        let mut parts = Vec::with_capacity(laid.chunks().len());
        for chunk in laid.chunks() {
            let (keys, rows) = (&laid.keys()[chunk.floats(1)], &mut values[chunk.floats(floats)]);
            let near = match (self.read_near(chunk, keys, &wanted, rows, now)?, &cached) {
                (None, Some(asker)) => self.read_cached(table, chunk, keys, rows, asker),
                (near, _) => near,
            };
            // Rows that were read where they are bring their slots; those that the cache asks for have a keyset.
            let keep = keep && near.as_ref().is_none_or(|near| near.asked.is_some() && !near.keys.is_empty());
            let keep = if keep { self.peers[chunk.peer as usize].take_keyset() } else { 0 };
            let lowest = near.as_ref().and_then(|near| near.lowest);
            parts.push(PullPart { saw, keep, kept: 0, near, lowest });
        }
        let work = RequestWork::Pull(PullInFlight {
            laid: laid.clone(),
            read,
            segments,
            floats,
            values,
            parts,
            clock,
        });
        let id = self.launch(work, &laid, bytes, false)?;
        Ok(PullId(id))
    }

    /// Waits for a pull's rows.
    ///
    /// # Errors
    /// The pull has been taken before; a request was refused; a peer is lost for good.
    pub fn finish_pull(&mut self, id: PullId) -> Result<Pulled, WorkerError> {
        loop {
            match self.flights.get(id.0) {
                None => {
                    let told = WorkerError::Call("this pull has been finished, or refused, before".into());
                    return Err(self.refused.pop_front().unwrap_or(told));
                }
                Some(flight) if flight.left == 0 => break,
                Some(_) => self.pump(self.config.peer_timeout)?,
            }
        }
        let flight = self.flights.take(id.0.index).map(|flight| flight.work);
        let Some(RequestWork::Pull(PullInFlight { laid, values, parts, clock, .. })) = flight else {
            return Err(WorkerError::Call("this is no pull".into()));
        };
        let (saw, table) = (saw_of(&laid, &parts), laid.table());
        let last = self.tables[table].last_seq;
        self.tally.staleness.set(saw.iter().map(|saw| last.saturating_sub(saw.seq)).max().unwrap_or(0));
        let lowest = self.note_lowest(TableId(table), clock, &parts)?;
        let found = |part: &PullPart| part.near.as_ref().is_some_and(|near| !near.slots.is_empty());
        if parts.iter().any(|part| part.keep != 0 || found(part)) {
            if self.kept.len() == KEPT_PULLS_MAX
                && let Some(oldest) = self.kept.pop_front()
            {
                self.forget(&oldest);
            }
            self.kept.push_back(KeptKeysets { id, laid, parts });
        }
        Ok(Pulled { values, saw, lowest })
    }

    /// Whether [`Worker::finish_pull`] would return at once.
    pub fn is_pulled(&self, id: PullId) -> bool {
        self.flights.get(id.0).is_none_or(|flight| flight.left == 0)
    }

    /// Begins to push `values`, rows in cut order. `keyset_of` names a finished pull of the same cut that was kept: its
    /// keys are then not sent. `seq` must be larger than that of every push to this table before; its acknowledgement
    /// is waited for by [`Worker::drain`].
    ///
    /// # Errors
    /// The cut is of another table, lengths or `seq` do not fit, or as [`Worker::begin_pull`].
    pub fn begin_push(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        write: Write,
        values: Vec<f32>,
        keyset_of: Option<PullId>,
        seq: u64,
    ) -> Result<PushId, WorkerError> {
        self.begin_push_named(table, cut, write, values, keyset_of, (seq, None))
    }

    /// [`Worker::begin_push`] under the name of the data that was learned, so that whoever learns it again, another
    /// worker or this one after its death, pushes under the same name and is not applied twice. Parts of one name
    /// come in the order of `name.seq`.
    ///
    /// # Errors
    /// As [`Worker::begin_push`].
    pub fn begin_push_named(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        write: Write,
        values: Vec<f32>,
        keyset_of: Option<PullId>,
        (seq, name): (u64, Option<DataName>),
    ) -> Result<PushId, WorkerError> {
        self.check_table(table, &cut)?;
        let known = &self.tables[table.0];
        let floats = known.schema.write_floats(write);
        let keys = cut.keys().len();
        if values.len() != keys * floats {
            let (got, want) = (values.len(), keys * floats);
            return Err(WorkerError::Call(format!(
                "a push of {keys} keys carries {got} floats, but needs {want}"
            )));
        }
        if seq <= known.last_seq {
            let last = known.last_seq;
            return Err(WorkerError::Call(format!(
                "push {seq} after push {last}: sequence numbers must grow"
            )));
        }
        if matches!(write, Write::Row | Write::Delete)
            && known.group.as_ref().is_some_and(|group| group.member.mode.is_bsp())
        {
            return Err(WorkerError::Call(format!(
                "rows of table {:?} replaced or deleted in a synchronous step (--sync bsp): do it before the worker joins \
                 the table, or from a worker that does not join it",
                known.schema.name
            )));
        }
        let bytes = keys * (8 + 4 * floats);
        let in_step = self.begin_step_push(table, bytes)?;
        self.wait_for_room(bytes)?;
        // Nothing from here on changes the links.
        let laid = self.laid(cut);
        if in_step {
            self.count_step_push(&laid, floats)?;
        }
        let (keysets, slots, some) = self.handles_of(keyset_of, &laid);
        let cache = self.push_cached(table, &laid.cut, write, &values)?;
        for chunk in laid.chunks() {
            self.peers[chunk.peer as usize].near.stamps.begin(&laid.cut, chunk);
        }
        self.tables[table.0].last_seq = seq;
        let work = RequestWork::Push(PushInFlight {
            laid: laid.clone(),
            write,
            floats,
            values,
            seq,
            name: name.map(|name| (name.seq, [name.pusher, name.incarnation, name.clock])),
            keysets,
            slots,
            late: false,
            some,
            cache,
        });
        let id = self.launch(work, &laid, bytes, true)?;
        Ok(PushId(id))
    }

    /// Waits until a push is acknowledged in full.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn finish_push(&mut self, id: PushId) -> Result<(), WorkerError> {
        self.must_have_ticked("waiting for a push")?;
        while !self.is_acked(id) {
            self.pump(self.config.peer_timeout)?;
        }
        self.refused.pop_front().map_or(Ok(()), Err)
    }

    /// Whether a push has been acknowledged in full (or refused).
    pub fn is_acked(&self, id: PushId) -> bool {
        self.flights.get(id.0).is_none()
    }

    /// Moves what can be moved, without waiting.
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn poll(&mut self) -> Result<(), WorkerError> {
        self.wait(Duration::ZERO)?;
        self.pump(Duration::ZERO)
    }

    /// Waits until every push is acknowledged.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn drain(&mut self) -> Result<(), WorkerError> {
        self.must_have_ticked("waiting for pushes")?;
        while self.flights.pushes > 0 {
            self.pump(self.config.peer_timeout)?;
        }
        self.pump(Duration::ZERO)
    }

    /// A buffer of a push that has been acknowledged, for the next one: as that push left it, or new and empty.
    pub fn spare(&mut self) -> Vec<f32> {
        self.spare.pop().unwrap_or_default()
    }

    fn check_table(&self, table: TableId, cut: &ShardedKeys) -> Result<(), WorkerError> {
        if cut.table != table.0 || table.0 >= self.tables.len() {
            return Err(WorkerError::Call("the cut is of another table".into()));
        }
        Ok(())
    }

    /// Waits until `bytes` more may be under way; one flight always may.
    fn wait_for_room(&mut self, bytes: usize) -> Result<(), WorkerError> {
        while self.in_flight() && self.flights.bytes + bytes > self.config.in_flight_bytes_max {
            self.pump(self.config.peer_timeout)?;
        }
        Ok(())
    }

    pub(super) fn in_flight(&self) -> bool {
        self.peers.iter().any(|peer| !peer.queue.is_empty())
    }

    /// Queues a flight's parts and sends what can be sent.
    fn launch(
        &mut self,
        work: RequestWork,
        laid: &Relayout,
        bytes: usize,
        push: bool,
    ) -> Result<InFlightId, WorkerError> {
        let now = self.net.now();
        let asked: Vec<u32> = match &work {
            RequestWork::Pull(pull) => {
                laid.chunks().iter().zip(&pull.parts).map(|(c, part)| part.asked(c.len)).collect()
            }
            _ => laid.chunks().iter().map(|chunk| chunk.len).collect(),
        };
        let requests = asked.iter().filter(|&&keys| keys > 0).count();
        let id = self.flights.add(work, requests, bytes, now);
        if requests == 0 && push {
            self.flights.take(id.index);
        }
        let (mut last, row) = (None, bytes.checked_div(laid.keys().len()).unwrap_or(0) as u32);
        for (number, (chunk, keys)) in laid.chunks().iter().zip(asked).enumerate() {
            if keys == 0 {
                continue;
            }
            let bytes = row * keys;
            let request = Request { index: id.index, chunk: number as u32, push, bytes };
            self.peers[chunk.peer as usize].enqueue(request, now);
            if last.is_some_and(|last| last != chunk.peer) {
                self.send(last.unwrap_or_default() as usize)?;
            }
            last = Some(chunk.peer);
        }
        match last {
            Some(last) => self.send(last as usize).map(|()| id),
            None => Ok(id),
        }
    }

    /// For each part of a push to this cut the keyset that stands for its keys, or the slots where this worker found
    /// its rows; the pull's keysets are used up. Their places are free at once: what takes them over comes after the
    /// push on the same link. Of a pull through the cache a keyset is of the rows that were asked for: with the keys
    /// of the others.
    #[allow(clippy::type_complexity)]
    fn handles_of(
        &mut self,
        pull: Option<PullId>,
        laid: &Relayout,
    ) -> (Vec<u64>, Vec<Vec<u32>>, Vec<Option<KeysetRows>>) {
        let found = pull.and_then(|pull| self.kept.iter().rposition(|kept| kept.id == pull));
        let Some(mut kept) = found.and_then(|at| self.kept.remove(at)) else {
            return (vec![0; laid.chunks().len()], Vec::new(), Vec::new());
        };
        let same = kept.laid.is_as(laid);
        let name = |(chunk, part): (&crate::Chunk, &PullPart)| {
            let peer = &self.peers[chunk.peer as usize];
            let valid = same && part.kept == peer.epoch && peer.link.is_some();
            if valid { pair(peer.session, part.keep) } else { 0 }
        };
        let names: Vec<u64> = match same {
            true => laid.chunks().iter().zip(&kept.parts).map(name).collect(),
            false => vec![0; laid.chunks().len()],
        };
        self.forget(&kept);
        let some = |((chunk, part), name): ((&crate::Chunk, &PullPart), &u64)| {
            let near =
                part.near.as_ref().filter(|near| *name != 0 && near.keys.len() < chunk.len as usize)?;
            Some(KeysetRows::new(&laid.keys()[chunk.floats(1)], &near.places))
        };
        let some = match same && kept.parts.iter().any(|part| part.near.is_some()) {
            true => laid.chunks().iter().zip(&kept.parts).zip(&names).map(some).collect(),
            false => Vec::new(),
        };
        let found = |part: &mut PullPart| part.near.take().map_or_else(Vec::new, |near| near.slots);
        let slots = match same && kept.parts.iter().any(|part| part.near.is_some()) {
            true => kept.parts.iter_mut().map(found).collect(),
            false => Vec::new(),
        };
        (names, slots, some)
    }

    fn forget(&mut self, kept: &KeptKeysets) {
        for (chunk, part) in kept.laid.chunks().iter().zip(&kept.parts) {
            self.peers[chunk.peer as usize].give_keyset(part.keep);
        }
    }
}
