//! One-sided pulls: the worker reads rows itself, without a request, in the images of a server on this host or over
//! RDMA.
//!
//! A row must prove itself: it has the right key, and the same version before and after. The worker requests rows that
//! it did not find, because only the owner knows that a key has no row. It reads nothing of a server that answered no
//! request of the last [`trust_time`], counted from when the request was sent: the server may have been replaced. It
//! reads no rows that unacknowledged own pushes touch (own_push_filter.rs). read_paths.rs says how it finds images and
//! regions.

use crate::error::WorkerError;
use crate::limits::{LEASE_PINGS, trust_time};
use crate::worker::in_flight::{LocalHits, PullPart};
use crate::worker::own_push_filter::OwnPushFilter;
use crate::worker::path_choice::{ALL_QUARTERS, ChoiceOf};
use crate::worker::peer::Peer;
use crate::worker::rdma_reads::RdmaTable;
use crate::worker::read_paths::ReadPathQuery;
use crate::worker::tables::TableId;
use crate::worker::{OneSided, Worker};
use gannet_core::{MappedShards, NO_CLOCK, NO_SLOT, Read, Segments};
use gannet_transport::{LinkError, Net, Stream};
use gannet_wire::frames::f16;
use gannet_wire::sharded_keys::Chunk;
use std::time::Duration;

/// How often a worker that only reads receives frames.
const RECEIVE_EVERY: Duration = Duration::from_millis(5);

/// What this worker can read of one server thread.
pub(crate) struct OneSidedReads {
    /// By table.
    pub(crate) tables: Vec<Option<ReadPath>>,
    pub(crate) query: Option<ReadPathQuery>,
    /// The server does not let this worker read over this link.
    pub(crate) refused: bool,
    /// The send time of the latest request that has been answered.
    last_answered: Duration,
    last_ping: Duration,
    /// For how long after `last_answered` the worker reads.
    trust: Duration,
    /// When the worker last asked what the server has registered since.
    pub(crate) last_asked: Duration,
    pub(crate) own_pushes: OwnPushFilter,
}

/// How the worker reads rows of a table.
pub(crate) enum ReadPath {
    /// In the server's images.
    Images(Box<MappedShards>),
    /// With RDMA READs.
    Rdma(Box<RdmaTable>),
}

impl OneSidedReads {
    pub(crate) fn new() -> OneSidedReads {
        OneSidedReads {
            tables: Vec::new(),
            query: None,
            refused: false,
            last_answered: Duration::ZERO,
            last_ping: Duration::ZERO,
            trust: Duration::ZERO,
            last_asked: Duration::ZERO,
            own_pushes: OwnPushFilter::new(),
        }
    }

    /// There is a link to a server whose leases have this time.
    pub(crate) fn begin(&mut self, lease: Option<Duration>) {
        self.trust = trust_time(lease);
    }

    /// The link is lost, and with it what was known of the server's memory. The next link may be to another server.
    pub(crate) fn lose(&mut self) {
        self.tables.clear();
        (self.query, self.refused, self.trust) = (None, false, Duration::ZERO);
    }

    /// Whether the server was the owner at this time.
    fn is_trusted(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_answered) < self.trust
    }

    /// A request that was sent at `begun` has been answered.
    pub(crate) fn note_answer(&mut self, begun: Duration) {
        self.last_answered = self.last_answered.max(begun);
    }

    /// The send time of the latest request that has been answered.
    pub(crate) fn last_answered(&self) -> Duration {
        self.last_answered
    }

    /// Learns from an answer where rows are.
    pub(crate) fn learn(&mut self, table: usize, keys: &[u64], slots: &[u32]) {
        if let Some(Some(ReadPath::Rdma(rdma))) = self.tables.get_mut(table) {
            rdma.learn(keys, slots);
        }
    }

    /// Whether the worker can read any table itself.
    pub(crate) fn is_on(&self) -> bool {
        self.tables.iter().any(Option::is_some)
    }

    /// How a table is read, if the server is believed now.
    fn fresh(&mut self, table: usize, now: Duration) -> Option<&mut ReadPath> {
        let is_trusted = self.is_trusted(now);
        self.tables.get_mut(table)?.as_mut().filter(|_| is_trusted)
    }

    /// What must be requested of a chunk whose rows were found in these slots.
    fn left_to_ask(
        &mut self,
        keys: &[u64],
        slots: Vec<u32>,
        spec: &PullSpec,
        with_slots: bool,
    ) -> Box<LocalHits> {
        let mut near = LocalHits { slots, with_slots, ..LocalHits::default() };
        let touched = self.own_pushes.open();
        for (place, (&key, &slot)) in keys.iter().zip(&near.slots).enumerate() {
            if slot == NO_SLOT || touched.is_some_and(|touched| touched.has(key)) {
                near.keys.push(key);
                near.places.push(place as u32);
            }
        }
        near.rows.resize(near.keys.len() * (spec.floats + usize::from(with_slots)), 0.0);
        if !spec.keep {
            near.slots = Vec::new();
        }
        Box::new(near)
    }
}

/// The clock in an image, if it has one.
fn known(lowest: u64) -> Option<u64> {
    (lowest != NO_CLOCK).then_some(lowest)
}

/// What a pull wants of each row.
pub(crate) struct PullSpec {
    pub(crate) table: usize,
    pub(crate) read: Read,
    pub(crate) segments: Segments,
    /// Floats of a row's answer.
    pub(crate) floats: usize,
    /// The rows will be pushed back.
    pub(crate) keep: bool,
    /// The slowest worker must have this clock.
    pub(crate) least: u64,
}

impl PullSpec {
    fn choice(&self) -> ChoiceOf {
        ChoiceOf::reads(self.table, self.keep)
    }
}

/// How a worker gets the rows of a table ([`Worker::read_path_choice`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadPathChoice {
    /// Whether the worker can read any rows without a request.
    pub readable: bool,
    /// The share of the chunks of a pull that it reads now, from 0 to 1.
    pub share: f32,
    /// Whether the choice was measured at least once, or the configuration makes it.
    pub settled: bool,
}

impl<S: Stream> Peer<S> {
    /// Reads what it can of a chunk's rows. `None`: it can read none now.
    fn read_one_sided(
        &mut self,
        keys: &[u64],
        spec: &PullSpec,
        values: &mut [f32],
        now: Duration,
        timeout: Duration,
    ) -> Result<Option<Box<LocalHits>>, WorkerError> {
        let Peer { link: Some(link), near, .. } = self else { return Ok(None) };
        let &PullSpec { table, read, segments, .. } = spec;
        let (slots, lowest, with_slots) = match near.fresh(table, now) {
            None => return Ok(None),
            Some(ReadPath::Images(images)) => {
                // Read before the rows, so they include all pushes below that clock.
                let lowest = images.lowest();
                if lowest < spec.least {
                    return Ok(None);
                }
                let (mut slots, lowest) = (Vec::with_capacity(keys.len()), known(lowest));
                match images.pull(keys, read, segments, values, &mut slots) {
                    // All rows were found, and no own push is in flight.
                    Ok(0) if !near.own_pushes.any() => {
                        let slots = if spec.keep { slots } else { Vec::new() };
                        return Ok(Some(Box::new(LocalHits { slots, lowest, ..LocalHits::default() })));
                    }
                    Ok(_) => (slots, lowest, false),
                    Err(_) => return Ok(None),
                }
            }
            Some(ReadPath::Rdma(rdma)) => {
                let peer = link.peer().clone();
                let Some(reader) = link.stream_mut().reader() else { return Ok(None) };
                let slots = rdma.read(reader, keys, spec, values, timeout);
                let lowest = known(rdma.lowest);
                (slots.map_err(|source| LinkError::Io { peer, source })?, lowest, true)
            }
        };
        let mut part = near.left_to_ask(keys, slots, spec, with_slots);
        part.lowest = lowest;
        Ok(Some(part))
    }
}

impl<N: Net> Worker<N> {
    /// How [`Worker::begin_pull`] now gets the rows of a table that will be pushed back, or not (`kept`).
    pub fn read_path_choice(&self, table: TableId, kept: bool) -> ReadPathChoice {
        let of = ChoiceOf::reads(table.0, kept);
        let readable = self.is_readable(table.0);
        let share = match self.config.one_sided {
            _ if !readable => 0.0,
            OneSided::Always => 1.0,
            _ => f32::from(self.paths.quarters(of)) / f32::from(ALL_QUARTERS),
        };
        let settled = self.config.one_sided != OneSided::Auto || self.paths.is_settled(of);
        ReadPathChoice { readable, share, settled }
    }

    pub(crate) fn pull_spec(
        &self,
        table: TableId,
        read: Read,
        segments: Segments,
        floats: usize,
        keep: bool,
        clock: Option<u64>,
    ) -> PullSpec {
        let least = self.least(table, clock);
        PullSpec { table: table.0, read, segments, floats, keep, least }
    }

    /// Whether some rows of the table can be read without a request.
    fn is_readable(&self, table: usize) -> bool {
        let linked = self.peers.iter().filter(|peer| peer.link.is_some());
        linked.flat_map(|peer| peer.near.tables.get(table)).flatten().next().is_some()
    }

    /// Before a pull: whether it may read rows without a request. The choice of paths counts the pull.
    pub(crate) fn begin_reads(
        &mut self,
        spec: &PullSpec,
        rows: usize,
        now: Duration,
    ) -> Result<bool, WorkerError> {
        if !self.is_readable(spec.table) {
            return Ok(false);
        }
        if self.config.one_sided == OneSided::Auto {
            self.paths.enter(now);
            self.paths.begin_pull(spec.choice(), rows, now);
        }
        self.keep_leases(now)?;
        Ok(true)
    }

    /// Whether the next chunk of such a pull is read.
    pub(crate) fn reads_next(&mut self, spec: &PullSpec) -> bool {
        self.config.one_sided == OneSided::Always || self.paths.reads_next(spec.choice())
    }

    /// A call of the program that moves rows begins.
    pub(crate) fn begin_call(&mut self) {
        if self.paths.is_timed() {
            self.paths.enter(self.net.now());
        }
    }

    /// A call of the program that moved rows ends. While a choice of paths is measured, the program's own time does not
    /// count.
    pub(crate) fn end_call(&mut self) {
        if self.paths.is_timed() && !self.in_flight() {
            self.paths.leave(self.net.now());
        }
    }

    /// Before rows are read: receives frames, and pings servers that would not be believed any longer.
    pub(crate) fn keep_leases(&mut self, now: Duration) -> Result<(), WorkerError> {
        for number in 0..self.peers.len() {
            let Peer { link, near, .. } = &mut self.peers[number];
            let quiet =
                now.saturating_sub(near.last_answered.max(near.last_ping)) >= near.trust / LEASE_PINGS;
            if link.is_some() && near.is_on() && quiet {
                near.last_ping = now;
                self.ping(number, now)?;
            }
        }
        if self.in_flight() || now >= self.next_receive {
            self.next_receive = now + RECEIVE_EVERY;
            self.receive()?;
            self.refresh_read_paths(now)?;
        }
        Ok(())
    }

    /// Reads what it can of a chunk's rows into `values`.
    pub(crate) fn read_one_sided(
        &mut self,
        chunk: &Chunk,
        keys: &[u64],
        spec: &PullSpec,
        values: &mut [f32],
        now: Duration,
    ) -> Result<Option<Box<LocalHits>>, WorkerError> {
        let (number, timeout) = (chunk.peer as usize, self.config.stall_timeout);
        let near = match self.peers[number].read_one_sided(keys, spec, values, now, timeout) {
            Ok(Some(near)) => near,
            Ok(None) => return Ok(None),
            Err(error) => return self.lose(number, error, now).map(|()| None),
        };
        let requested = near.keys.len() as u64;
        // READs take time: rows that were read when that time was over may be stale.
        if !self.peers[number].near.is_trusted(self.net.now()) {
            return Ok(None);
        }
        self.counters.near_rows.add(keys.len() as u64 - requested);
        self.counters.near_requested_rows.add(requested);
        Ok(Some(near))
    }

    /// Answers a whole small pull from one thread's images, in the order of the keys. Returns `false` if it must be
    /// requested.
    pub(crate) fn pull_one_sided(
        &mut self,
        table: TableId,
        keys: &[u64],
        read: Read,
        segments: Segments,
        out: &mut [f32],
    ) -> Result<bool, WorkerError> {
        let Some(&owner) = self.tables[table.0].owners.first() else { return Ok(false) };
        if !self.tables[table.0].one_owner || !self.peers[owner as usize].near.is_on() {
            return Ok(false);
        }
        let of = ChoiceOf::reads(table.0, false);
        let always = self.config.one_sided == OneSided::Always;
        if !always && !self.paths.would_read(of) {
            return Ok(false);
        }
        let (now, clock) = (self.net.now(), self.pull_clock(table, 0)?);
        self.paths.enter(now);
        let least = self.least(table, clock);
        self.keep_leases(now)?;
        let Peer { link: Some(_), near, .. } = &mut self.peers[owner as usize] else { return Ok(false) };
        if near.own_pushes.any() {
            return Ok(false);
        }
        let Some(ReadPath::Images(images)) = near.fresh(table.0, now) else { return Ok(false) };
        let lowest = images.lowest();
        if lowest < least {
            return Ok(false);
        }
        self.found_slots.clear();
        // The server was the owner when the pull began, so its rows have all that was acknowledged before.
        let whole = matches!(images.pull(keys, read, segments, out, &mut self.found_slots), Ok(0));
        self.counters.near_rows.add(if whole { keys.len() as u64 } else { 0 });
        if whole {
            if !always {
                self.paths.reads_next(of);
                self.paths.begin_pull(of, keys.len(), now);
            }
            if self.rounds(table, read) {
                f16::round(out);
            }
            self.end_call();
            self.note_lowest(table, clock, &[PullPart { lowest: known(lowest), ..PullPart::default() }])?;
        }
        Ok(whole)
    }
}
