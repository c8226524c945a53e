//! One-sided pulls: rows read where they are, in the images of a server on this host or in a server's memory over RDMA,
//! without asking it.
//!
//! What proves itself is believed (the row's key, the same version before and after); what is not found is asked for,
//! since only the owner knows that a key has no row. Nothing is read of a server that was not heard of within
//! [`LEASE`], counted from the sending of what it answered: it may have been replaced. Nor are rows that own pushes
//! touch which are not acknowledged (own_push_filter.rs). How images and regions come to be known: read_paths.rs.

use super::in_flight::{LocalHits, PullPart};
use super::own_push_filter::OwnPushFilter;
use super::peer::Peer;
use super::rdma_reads::RdmaTable;
use super::read_paths::ReadPathQuery;
use super::tables::TableId;
use super::{OneSided, Worker};
use crate::error::WorkerError;
use crate::limits::{LEASE, LEASE_PING};
use crate::sharded_keys::Chunk;
use gannet_core::{MappedShards, NO_CLOCK, NO_SLOT, Read, Segments};
use gannet_transport::{LinkError, Net, Stream};
use std::time::Duration;

/// How often a worker that only reads looks for what has come.
const NEAR_LOOK: Duration = Duration::from_millis(5);

/// What of one server thread this worker can read.
pub(super) struct OneSidedReads {
    /// By table.
    pub(super) tables: Vec<Option<ReadPath>>,
    pub(super) seeking: Option<ReadPathQuery>,
    /// The server lets nothing be read over this link.
    pub(super) refused: bool,
    /// When that was begun which was answered last.
    heard: Duration,
    pinged: Duration,
    /// When it was last asked what it has registered since.
    pub(super) asked_again: Duration,
    pub(super) stamps: OwnPushFilter,
}

/// How rows of a table are read.
pub(super) enum ReadPath {
    /// In its images.
    View(Box<MappedShards>),
    /// By READs.
    Far(Box<RdmaTable>),
}

impl OneSidedReads {
    pub(super) fn new() -> OneSidedReads {
        OneSidedReads {
            tables: Vec::new(),
            seeking: None,
            refused: false,
            heard: Duration::ZERO,
            pinged: Duration::ZERO,
            asked_again: Duration::ZERO,
            stamps: OwnPushFilter::new(),
        }
    }

    /// The link is gone, and with it what was known of the server's memory.
    pub(super) fn lose(&mut self) {
        self.tables.clear();
        (self.seeking, self.refused) = (None, false);
    }

    /// Something was answered that was begun then.
    pub(super) fn hear(&mut self, begun: Duration) {
        self.heard = self.heard.max(begun);
    }

    /// When that was begun of what was answered which was begun last.
    pub(super) fn heard(&self) -> Duration {
        self.heard
    }

    /// An answer says where rows are.
    pub(super) fn learn(&mut self, table: usize, keys: &[u64], slots: &[u32]) {
        if let Some(Some(ReadPath::Far(far))) = self.tables.get_mut(table) {
            far.learn(keys, slots);
        }
    }

    /// Whether any table is read where it is.
    pub(super) fn is_on(&self) -> bool {
        self.tables.iter().any(Option::is_some)
    }

    /// How a table is read, while what is read may be taken for current.
    fn fresh(&mut self, table: usize, now: Duration) -> Option<&mut ReadPath> {
        self.tables.get_mut(table)?.as_mut().filter(|_| now.saturating_sub(self.heard) < LEASE)
    }

    /// What is to be asked for of a chunk whose rows were found in these slots.
    fn left_to_ask(
        &mut self,
        keys: &[u64],
        slots: Vec<u32>,
        wanted: &PullSpec,
        with_slots: bool,
    ) -> Box<LocalHits> {
        let mut near = LocalHits { slots, with_slots, ..LocalHits::default() };
        let touched = self.stamps.open();
        for (place, (&key, &slot)) in keys.iter().zip(&near.slots).enumerate() {
            if slot == NO_SLOT || touched.is_some_and(|touched| touched.has(key)) {
                near.keys.push(key);
                near.places.push(place as u32);
            }
        }
        near.rows.resize(near.keys.len() * (wanted.floats + usize::from(with_slots)), 0.0);
        if !wanted.keep {
            near.slots = Vec::new();
        }
        Box::new(near)
    }
}

/// A clock that an image tells, unless it tells of none.
fn known(lowest: u64) -> Option<u64> {
    (lowest != NO_CLOCK).then_some(lowest)
}

/// What a pull wants of each row.
pub(super) struct PullSpec {
    pub(super) table: usize,
    pub(super) read: Read,
    pub(super) segments: Segments,
    /// Floats of a row's answer.
    pub(super) floats: usize,
    /// The slots will be pushed to.
    pub(super) keep: bool,
    /// Rows in images are read: see [`WorkerConfig::near_kept_bytes_min`](crate::WorkerConfig::near_kept_bytes_min).
    pub(super) images: bool,
    /// The worker furthest behind must have this clock.
    pub(super) least: u64,
}

impl<S: Stream> Peer<S> {
    /// Reads what can be read of a chunk's rows; `None`: nothing can, now.
    fn read_near(
        &mut self,
        keys: &[u64],
        wanted: &PullSpec,
        values: &mut [f32],
        now: Duration,
        timeout: Duration,
    ) -> Result<Option<Box<LocalHits>>, WorkerError> {
        let Peer { link: Some(link), near, .. } = self else { return Ok(None) };
        let &PullSpec { table, read, segments, .. } = wanted;
        let (slots, lowest, with_slots) = match near.fresh(table, now) {
            None => return Ok(None),
            Some(ReadPath::View(_)) if !wanted.images => return Ok(None),
            Some(ReadPath::View(view)) => {
                // Before the rows: they have what it speaks of.
                let lowest = view.lowest();
                if lowest < wanted.least {
                    return Ok(None);
                }
                let (mut slots, lowest) = (Vec::with_capacity(keys.len()), known(lowest));
                match view.pull(keys, read, segments, values, &mut slots) {
                    // All are there, and nothing is under way to them.
                    Ok(0) if !near.stamps.any() => {
                        let slots = if wanted.keep { slots } else { Vec::new() };
                        return Ok(Some(Box::new(LocalHits { slots, lowest, ..LocalHits::default() })));
                    }
                    Ok(_) => (slots, lowest, false),
                    Err(_) => return Ok(None),
                }
            }
            Some(ReadPath::Far(far)) => {
                let peer = link.peer().clone();
                let Some(reader) = link.stream_mut().reader() else { return Ok(None) };
                let slots = far.read(reader, keys, wanted, values, timeout);
                let lowest = known(far.lowest);
                (slots.map_err(|source| LinkError::Io { peer, source })?, lowest, true)
            }
        };
        let mut part = near.left_to_ask(keys, slots, wanted, with_slots);
        part.lowest = lowest;
        Ok(Some(part))
    }
}

impl<N: Net> Worker<N> {
    /// Whether [`Worker::begin_pull`] of such rows reads any of them where they are now, without asking their servers.
    pub fn is_near(&self, table: TableId, read: Read, keep: bool) -> bool {
        let floats = self.schema(table).read_floats(read);
        self.reads(&self.wanted(table, read, Segments::ALL, floats, keep, None))
    }

    pub(super) fn wanted(
        &self,
        table: TableId,
        read: Read,
        segments: Segments,
        floats: usize,
        keep: bool,
        clock: Option<u64>,
    ) -> PullSpec {
        let always = self.config.one_sided == OneSided::Always;
        let images = always || !keep || 4 * floats >= self.config.near_kept_bytes_min;
        let least = self.least(table, clock);
        PullSpec { table: table.0, read, segments, floats, keep, images, least }
    }

    /// Whether any rows of such a pull are read without asking.
    pub(super) fn reads(&self, wanted: &PullSpec) -> bool {
        let linked = self.peers.iter().filter(|peer| peer.link.is_some());
        linked.flat_map(|peer| peer.near.tables.get(wanted.table)).flatten().any(|reach| match reach {
            ReadPath::View(_) => wanted.images,
            ReadPath::Far(_) => true,
        })
    }

    /// Before rows are read: takes in what has come, and sees to it that leases do not run out.
    pub(super) fn keep_near(&mut self, now: Duration) -> Result<(), WorkerError> {
        for number in 0..self.peers.len() {
            let Peer { link, near, .. } = &mut self.peers[number];
            let quiet = now.saturating_sub(near.heard.max(near.pinged)) >= LEASE_PING;
            if link.is_some() && near.is_on() && quiet {
                near.pinged = now;
                self.ping(number, now)?;
            }
        }
        if self.in_flight() || now >= self.next_near_look {
            self.next_near_look = now + NEAR_LOOK;
            self.poll()?;
            self.seek_again(now)?;
        }
        Ok(())
    }

    /// Reads what can be read of a chunk's rows into `values`.
    pub(super) fn read_near(
        &mut self,
        chunk: &Chunk,
        keys: &[u64],
        wanted: &PullSpec,
        values: &mut [f32],
        now: Duration,
    ) -> Result<Option<Box<LocalHits>>, WorkerError> {
        let (number, timeout) = (chunk.peer as usize, self.config.stall_timeout);
        let near = match self.peers[number].read_near(keys, wanted, values, now, timeout) {
            Ok(Some(near)) => near,
            Ok(None) => return Ok(None),
            Err(error) => return self.lose(number, error, now).map(|()| None),
        };
        let asked = near.keys.len() as u64;
        // READs take their time: what was read when the lease was over is not for current.
        if self.net.now().saturating_sub(self.peers[number].near.heard) >= LEASE {
            return Ok(None);
        }
        self.tally.near_rows.add(keys.len() as u64 - asked);
        self.tally.near_asked_rows.add(asked);
        Ok(Some(near))
    }

    /// A whole small pull at once, from one thread's images and in the order of the keys: `false` when it must be asked
    /// for.
    pub(super) fn pull_near(
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
        let (now, clock) = (self.net.now(), self.pull_clock(table, 0)?);
        let least = self.least(table, clock);
        self.keep_near(now)?;
        let Peer { link: Some(_), near, .. } = &mut self.peers[owner as usize] else { return Ok(false) };
        if near.stamps.any() {
            return Ok(false);
        }
        let Some(ReadPath::View(view)) = near.fresh(table.0, now) else { return Ok(false) };
        let lowest = view.lowest();
        if lowest < least {
            return Ok(false);
        }
        self.near_slots.clear();
        let whole = matches!(view.pull(keys, read, segments, out, &mut self.near_slots), Ok(0));
        self.tally.near_rows.add(if whole { keys.len() as u64 } else { 0 });
        if whole {
            self.note_lowest(table, clock, &[PullPart { lowest: known(lowest), ..PullPart::default() }])?;
        }
        Ok(whole)
    }
}
