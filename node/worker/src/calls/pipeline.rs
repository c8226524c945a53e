//! The pipelined calls: many pulls and pushes are in flight. Rows land where they are used, and values are sent from
//! where they are.

use crate::calls::cached_pulls::{cached_pull, push_cached, read_cached};
use crate::calls::clocks::{begin_step_push, count_step_push, note_lowest};
use crate::calls::cut_client::wait_for_other_links;
use crate::calls::one_sided::{begin_call, begin_reads, end_call, pull_spec, read_one_sided, reads_next};
use crate::calls::wire_type::narrow_push;
use crate::error::WorkerError;
use crate::links::keysets::RowNames;
use crate::requests::ids::{InFlightId, Request};
use crate::requests::in_flight::{PullInFlight, PullPart, PushInFlight, RequestWork};
use crate::requests::names::{DataName, PullId, Pulled, PushId, SeenPushes, TableId};
use crate::requests::push_rows::PushRows;
use crate::requests::relayout::Relayout;
use crate::tables::table::WorkerTable;
use crate::worker::Worker;
use gannet_core::{Read, Schema, Segments, Write};
use gannet_transport::Net;
use gannet_wire::sharded_keys::ShardedKeys;
use std::sync::Arc;
use std::time::Duration;

/// Which own pushes the parts of a pull include, as ranges of rows.
fn seen_pushes(laid: &Relayout, parts: &[PullPart]) -> Vec<SeenPushes> {
    let mut all: Vec<SeenPushes> = Vec::with_capacity(parts.len());
    for (chunk, part) in laid.chunks().iter().zip(parts).filter(|(chunk, _)| chunk.len > 0) {
        let (rows, seq) = (chunk.start..chunk.start + chunk.len, part.saw);
        match all.last_mut().filter(|last| last.seq == seq && last.rows.end == rows.start) {
            Some(last) => last.rows.end = rows.end,
            None => all.push(SeenPushes { rows, seq }),
        }
    }
    // Chunks that were cut again come after the others.
    if !all.is_sorted_by_key(|saw| saw.rows.start) {
        all.sort_unstable_by_key(|saw| saw.rows.start);
    }
    all
}

/// For each part of a push of changes to a table whose rows may die, when its rows were read. A push that follows no
/// pull says that it does not know.
fn changes_since(
    table: &WorkerTable,
    write: Write,
    laid: &Relayout,
    mut read_at: Vec<[u64; 2]>,
) -> Vec<[u64; 2]> {
    if table.eviction.is_none() || !matches!(write, Write::Change | Write::Damped) {
        return Vec::new();
    }
    read_at.resize(laid.chunks().len(), [0; 2]);
    read_at
}

/// Floats that a pull answers for a row.
pub(crate) fn read_floats(schema: &Schema, read: Read, segments: Segments) -> Result<usize, WorkerError> {
    let floats = schema.read_floats_of(read, segments);
    floats.map_err(|error| WorkerError::Call(format!("table {:?}: {error}", schema.name)))
}

impl<N: Net> Worker<N> {
    /// Cuts a batch by shard. A key should not repeat: a pull answers it twice, and a push applies it twice.
    /// [`ShardedKeys`] has an example.
    ///
    /// # Panics
    /// When the table is another worker's, or there are more than `u32::MAX` keys.
    pub fn cut(&self, table: TableId, keys: &[u64]) -> ShardedKeys {
        let mut cut = ShardedKeys::default();
        self.cut_into(table, keys, &mut cut);
        cut
    }

    /// [`Worker::cut`] into the memory of a cut that is no longer used.
    ///
    /// # Panics
    /// As [`Worker::cut`].
    pub fn cut_into(&self, table: TableId, keys: &[u64], cut: &mut ShardedKeys) {
        let known = &self.tables[table.0];
        cut.fill(table.0, &known.schema, &known.owners, keys);
        cut.layout = self.links.layout;
    }

    /// [`Worker::cut_into`] of keys that the caller has sorted by shard: those of shard `s` are
    /// `keys[starts[s]..starts[s + 1]]`. Nothing is sorted or allocated again.
    ///
    /// # Errors
    /// A key is not among those of its shard.
    pub fn cut_sorted_into(
        &self,
        table: TableId,
        keys: &[u64],
        starts: &[u32],
        cut: &mut ShardedKeys,
    ) -> Result<(), WorkerError> {
        let known = &self.tables[table.0];
        cut.fill_sorted(table.0, &known.schema, &known.owners, keys, starts)?;
        cut.layout = self.links.layout;
        Ok(())
    }

    /// Lays a cut out for the present links.
    pub(crate) fn laid(&self, table: TableId, cut: Arc<ShardedKeys>) -> Relayout {
        let known = &self.tables[table.0];
        Relayout::new(cut, table.0, self.links.layout, &known.schema, &known.owners)
    }

    /// Begins to pull the rows of a cut's keys into `values`, which it resizes. With `keep` the servers keep the keys'
    /// slots, so that a push to the same cut can name the pull instead of sending keys. [`Worker`] has an example.
    ///
    /// A small pull is sent by the next call that waits or polls, if several requests of its link are unanswered. One
    /// system call then sends several.
    ///
    /// # Errors
    /// The cut is of another table; or the wait for earlier requests failed, when too many bytes are in flight.
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

    /// [`Worker::begin_pull`] of some segments of each row. The other segments do not travel.
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

    /// [`Worker::begin_pull_segments`] for the step that is `ahead` steps after the worker's present one. Before
    /// [`Worker::join`] that makes no difference.
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
        let clock = self.tables.pull_clock(table.0, ahead)?;
        let known = &self.tables[table.0];
        let (floats, saw) = (read_floats(&known.schema, read, segments)?, known.last_seq);
        let keys = cut.keys().len();
        values.resize(keys * floats, 0.0);
        let bytes = keys * (8 + 4 * floats);
        self.wait_for_budget(bytes)?;
        let now = self.links.net.now();
        let spec = pull_spec(self, table, read, segments, floats, keep, clock);
        // Only the owner knows which version rows have that may die.
        let versioned = keep && read == Read::State && self.tables[table.0].eviction.is_some();
        let may_read = !versioned && begin_reads(self, &spec, keys, now)?;
        let cached = cached_pull(self, table, read, segments, keys, clock)?;
        // Nothing below changes the links.
        let laid = self.laid(table, cut);
        let mut parts = Vec::with_capacity(laid.chunks().len());
        for chunk in laid.chunks() {
            let (keys, rows) = (&laid.keys()[chunk.floats(1)], &mut values[chunk.floats(floats)]);
            let near = match may_read && reads_next(self, &spec) {
                true => read_one_sided(self, chunk, keys, &spec, rows, now)?,
                false => None,
            };
            let near = match (near, &cached) {
                (None, Some(reader)) => read_cached(self, table, chunk, keys, rows, reader),
                (near, _) => near,
            };
            // Rows that were read one-sided have their slots. Rows that the cache requests get a keyset.
            let keep =
                keep && near.as_ref().is_none_or(|near| near.misses.is_some() && !near.keys.is_empty());
            let keep = if keep { self.links.peers[chunk.peer as usize].keysets.take() } else { 0 };
            let lowest = near.as_ref().and_then(|near| near.lowest);
            parts.push(PullPart { saw, keep, near, lowest, ..PullPart::default() });
        }
        let work = RequestWork::Pull(PullInFlight {
            laid: laid.clone(),
            read,
            segments,
            floats,
            f16: self.tables[table.0].rounds(read),
            values,
            parts,
            clock,
            versioned,
        });
        let id = self.launch(work, &laid, bytes, false)?;
        end_call(self);
        Ok(PullId(id))
    }

    /// Waits for a pull's rows. [`Worker`] has an example.
    ///
    /// # Errors
    /// The pull has been finished before; a request was refused; a peer is lost for good.
    pub fn finish_pull(&mut self, id: PullId) -> Result<Pulled, WorkerError> {
        loop {
            match self.links.flights.get(id.0) {
                None => {
                    let finished =
                        WorkerError::Call("this pull has been finished, or refused, before".into());
                    return Err(self.links.refused.pop_front().unwrap_or(finished));
                }
                Some(flight) if flight.left == 0 => break,
                Some(_) => self.pump(self.links.config.peer_timeout)?,
            }
        }
        let flight = self.links.flights.take(id.0.index).map(|flight| flight.work);
        let Some(RequestWork::Pull(mut pull)) = flight else {
            return Err(WorkerError::Call("this is no pull".into()));
        };
        pull.round();
        let PullInFlight { laid, values, parts, clock, .. } = pull;
        let (saw, table) = (seen_pushes(&laid, &parts), laid.table());
        let last = self.tables[table].last_seq;
        self.links
            .counters
            .staleness
            .set(saw.iter().map(|saw| last.saturating_sub(saw.seq)).max().unwrap_or(0));
        let lowest = note_lowest(self, TableId(table), clock, &parts)?;
        self.kept_pulls.keep(&mut self.links.peers, id, laid, parts);
        end_call(self);
        Ok(Pulled { values, saw, lowest })
    }

    /// Whether [`Worker::finish_pull`] would return at once.
    pub fn is_pulled(&self, id: PullId) -> bool {
        self.links.flights.get(id.0).is_none_or(|flight| flight.left == 0)
    }

    /// Begins to push `values`, rows in shard order: a vector, which becomes the worker's, or memory that the caller
    /// [lends](PushRows::lent) until the push is acknowledged. `keyset_of` names a finished pull of the same cut whose
    /// keysets were kept: the push then sends no keys. `seq` must be larger than that of every earlier push to this
    /// table. [`Worker::drain`] waits for the acknowledgement. [`Worker`] has an example.
    ///
    /// # Errors
    /// The cut is of another table, lengths or `seq` do not fit, or as [`Worker::begin_pull`].
    pub fn begin_push(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        write: Write,
        values: impl Into<PushRows>,
        keyset_of: Option<PullId>,
        seq: u64,
    ) -> Result<PushId, WorkerError> {
        self.begin_push_of(table, cut, write, values.into(), keyset_of, (seq, None))
    }

    /// [`Worker::begin_push`] under the name of the training data. A worker that trains the data again, another one or
    /// this one after a restart, pushes under the same name, and the shards do not apply it twice. Pushes of one split
    /// come in the order of `name.seq`.
    ///
    /// # Errors
    /// As [`Worker::begin_push`].
    pub fn begin_push_named(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        write: Write,
        values: impl Into<PushRows>,
        keyset_of: Option<PullId>,
        name: (u64, Option<DataName>),
    ) -> Result<PushId, WorkerError> {
        self.begin_push_of(table, cut, write, values.into(), keyset_of, name)
    }

    fn begin_push_of(
        &mut self,
        table: TableId,
        cut: Arc<ShardedKeys>,
        write: Write,
        mut values: PushRows,
        keyset_of: Option<PullId>,
        (seq, name): (u64, Option<DataName>),
    ) -> Result<PushId, WorkerError> {
        self.check_table(table, &cut)?;
        begin_call(self);
        let keys = cut.keys().len();
        let floats = self.check_push(table, write, keys, values.len(), seq)?;
        let bytes = keys * (8 + 4 * floats);
        let in_step = begin_step_push(self, table, bytes)?;
        self.wait_for_budget(bytes)?;
        if !in_step {
            wait_for_other_links(self, table, &cut)?;
        }
        // Nothing below changes the links.
        let laid = self.laid(table, cut);
        if in_step {
            count_step_push(self, &laid, floats)?;
        }
        let names = self.kept_pulls.handles_of(&mut self.links.peers, keyset_of, &laid);
        let RowNames { keysets, slots, some, read_at } = names;
        let since = changes_since(&self.tables[table.0], write, &laid, read_at);
        let cache = push_cached(self, table, &laid.cut, write, &values)?;
        for chunk in laid.chunks() {
            self.links.peers[chunk.peer as usize].near.own_pushes.begin(&laid.cut, chunk);
        }
        self.tables[table.0].last_seq = seq;
        // Whatever is sent again, by whichever cut, sends these bits.
        let f16 = narrow_push(self, table, write, laid.keys(), seq, &mut values);
        let work = RequestWork::Push(PushInFlight {
            laid: laid.clone(),
            write,
            floats,
            values,
            f16,
            seq,
            name: name.map(|name| (name.seq, [name.pusher, name.incarnation, name.clock])),
            keysets,
            slots,
            late: false,
            some,
            cache,
            since,
        });
        let id = self.launch(work, &laid, bytes, true)?;
        end_call(self);
        Ok(PushId(id))
    }

    /// Waits until a push is acknowledged in full. [`Worker`] has an example.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn finish_push(&mut self, id: PushId) -> Result<(), WorkerError> {
        self.tables.must_have_ticked("waiting for a push")?;
        while !self.is_acked(id) {
            self.pump(self.links.config.peer_timeout)?;
        }
        end_call(self);
        self.links.refused.pop_front().map_or(Ok(()), Err)
    }

    /// Whether a push has been acknowledged in full (or refused).
    pub fn is_acked(&self, id: PushId) -> bool {
        self.links.flights.get(id.0).is_none()
    }

    /// Sends and receives what it can, without waiting. Returns whether there was anything: then there may be more.
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn poll(&mut self) -> Result<bool, WorkerError> {
        let moved = self.receive()?;
        end_call(self);
        Ok(moved)
    }

    /// Waits until every push is acknowledged. [`Worker`] has an example.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn drain(&mut self) -> Result<(), WorkerError> {
        self.tables.must_have_ticked("waiting for pushes")?;
        while self.links.flights.pushes > 0 {
            self.pump(self.links.config.peer_timeout)?;
        }
        end_call(self);
        self.pump(Duration::ZERO)
    }

    /// A buffer of an acknowledged push, for the next one: with its old content, or new and empty.
    pub fn spare(&mut self) -> Vec<f32> {
        self.spare.take()
    }

    fn check_table(&self, table: TableId, cut: &ShardedKeys) -> Result<(), WorkerError> {
        match self.tables.get(table.0) {
            Some(known) if cut.are_for(table.0, known.schema.shards) => Ok(()),
            _ => Err(WorkerError::Call("the cut is of another table, or of another number of shards".into())),
        }
    }

    /// Checks a push of so many keys and floats. Returns the floats of a row.
    fn check_push(
        &self,
        table: TableId,
        write: Write,
        keys: usize,
        got: usize,
        seq: u64,
    ) -> Result<usize, WorkerError> {
        let known = &self.tables[table.0];
        let floats = known.schema.write_floats(write);
        if got != keys * floats {
            let want = keys * floats;
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
            && known.group.as_ref().is_some_and(|group| group.sync.mode.is_bsp())
        {
            return Err(WorkerError::Call(format!(
                "rows of table {:?} replaced or deleted in a synchronous step (--sync bsp): do it before the worker joins \
                 the table, or from a worker that does not join it",
                known.schema.name
            )));
        }
        Ok(floats)
    }

    /// Waits until `bytes` more may be in flight. One request always may be.
    fn wait_for_budget(&mut self, bytes: usize) -> Result<(), WorkerError> {
        while self.links.in_flight()
            && self.links.flights.bytes + bytes > self.links.config.in_flight_bytes_max
        {
            self.pump(self.links.config.peer_timeout)?;
        }
        Ok(())
    }

    /// Queues the parts of a request and sends what can be sent.
    fn launch(
        &mut self,
        work: RequestWork,
        laid: &Relayout,
        bytes: usize,
        push: bool,
    ) -> Result<InFlightId, WorkerError> {
        let now = self.links.net.now();
        let requested: Vec<u32> = match &work {
            RequestWork::Pull(pull) => {
                laid.chunks().iter().zip(&pull.parts).map(|(c, part)| part.requested(c.len)).collect()
            }
            _ => laid.chunks().iter().map(|chunk| chunk.len).collect(),
        };
        let requests = requested.iter().filter(|&&keys| keys > 0).count();
        let id = self.links.flights.add(work, requests, bytes, now);
        if requests == 0 && push {
            self.links.flights.take(id.index);
        }
        let row = bytes.checked_div(laid.keys().len()).unwrap_or(0) as u32;
        // All requests are queued before the first is sent: a link that is lost while it sends must find all that it
        // loses.
        let mut peers: Vec<u32> = Vec::new();
        for (number, (chunk, keys)) in laid.chunks().iter().zip(requested).enumerate() {
            if keys == 0 {
                continue;
            }
            let bytes = row * keys;
            let request = Request { index: id.index, chunk: number as u32, push, bytes };
            self.links.peers[chunk.peer as usize].enqueue(request, now);
            if !peers.contains(&chunk.peer) {
                peers.push(chunk.peer);
            }
        }
        let waits = |peer: &u32| !push && self.links.peers[*peer as usize].requests.may_wait();
        peers.retain(|peer| !waits(peer));
        for peer in peers {
            self.links.send(peer as usize)?;
        }
        Ok(id)
    }
}
