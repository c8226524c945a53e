//! Rows read where they are, in the images of a server on this host, without asking it.
//!
//! What proves itself is believed (core's `View`: the row's key, the same version before and after); what is not found is
//! asked for, since only the owner knows that a key has no row. Nothing is read of a server that was not heard of within
//! [`LEASE`], counted from the sending of what it answered: it may have been replaced. Nor are rows that own pushes touch
//! which are not acknowledged (stamps.rs).

use super::Worker;
use super::flights::{ControlFlight, NearPart, Request, Work};
use super::peer::Peer;
use super::stamps::Stamps;
use super::tables::TableId;
use crate::control::{self, ImagesV1};
use crate::cut::Chunk;
use crate::error::WorkerError;
use crate::limits::{IMAGES_PER_REQUEST, LEASE, LEASE_PING};
use crate::message::{self, pair};
use crate::partition::share;
use gannet_core::{NO_SLOT, Read, Schema, Segments, View};
use gannet_transport::{Net, Stream};
use std::fs::File;
use std::ops::Range;
use std::time::Duration;

/// How often a worker that only reads looks for what has come.
const NEAR_LOOK: Duration = Duration::from_millis(5);

/// One server thread's images, as far as this worker has them.
pub(super) struct Near {
    /// By table.
    views: Vec<Option<View>>,
    /// The table whose images are being asked for.
    seeking: Option<Seeking>,
    /// The server gives no images on this link.
    refused: bool,
    /// When that was begun which was answered last.
    heard: Duration,
    pinged: Duration,
    pub(super) stamps: Stamps,
}

struct Seeking {
    table: usize,
    shards: Range<u32>,
    files: Vec<(File, u64)>,
}

impl Near {
    pub(super) fn new() -> Near {
        Near {
            views: Vec::new(),
            seeking: None,
            refused: false,
            heard: Duration::ZERO,
            pinged: Duration::ZERO,
            stamps: Stamps::new(),
        }
    }

    /// The link is gone, and with it what was known of its images.
    pub(super) fn lose(&mut self) {
        self.views.clear();
        (self.seeking, self.refused) = (None, false);
    }

    /// Something was answered that was begun then.
    pub(super) fn hear(&mut self, begun: Duration) {
        self.heard = self.heard.max(begun);
    }

    /// Whether pushes are noted.
    pub(super) fn is_on(&self) -> bool {
        self.views.iter().any(Option::is_some)
    }

    /// The view of a table, while what it shows may be taken for current.
    fn fresh(&mut self, table: usize, now: Duration) -> Option<&mut View> {
        self.views.get_mut(table)?.as_mut().filter(|_| now.saturating_sub(self.heard) < LEASE)
    }

    /// Reads what can be read of a chunk into `values`; `None`: nothing can, now.
    fn read(
        &mut self,
        keys: &[u64],
        wanted: &Wanted,
        values: &mut [f32],
        now: Duration,
    ) -> Option<Box<NearPart>> {
        let &Wanted { table, read, segments, floats, keep } = wanted;
        let mut slots = Vec::with_capacity(keys.len());
        let view = self.fresh(table, now)?;
        let missed = view.pull(keys, read, segments, values, &mut slots).ok()?;
        let mut near = NearPart { slots, ..NearPart::default() };
        if missed > 0 || self.stamps.any() {
            let stamps = self.stamps.any().then_some(&self.stamps);
            for (place, (&key, &slot)) in keys.iter().zip(&near.slots).enumerate() {
                if slot == NO_SLOT || stamps.is_some_and(|stamps| stamps.is_open(key)) {
                    near.keys.push(key);
                    near.places.push(place as u32);
                }
            }
            near.rows.resize(near.keys.len() * floats, 0.0);
        }
        if !keep {
            near.slots = Vec::new();
        }
        Some(Box::new(near))
    }
}

impl<S: Stream> Peer<S> {
    /// The shards of a table that this peer owns.
    fn shards(&self, schema: &Schema, servers: u32) -> Range<u32> {
        share(share(0..schema.shards, self.server, servers), self.thread, self.threads)
    }
}

/// What a pull wants of each row.
pub(super) struct Wanted {
    pub(super) table: usize,
    pub(super) read: Read,
    pub(super) segments: Segments,
    /// Floats of a row's answer.
    pub(super) floats: usize,
    /// The slots will be pushed to.
    pub(super) keep: bool,
}

impl<N: Net> Worker<N> {
    /// Whether rows of any server are read where they are now, without asking it.
    pub fn is_near(&self) -> bool {
        self.peers.iter().any(|peer| peer.link.is_some() && peer.near.is_on())
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
        }
        Ok(())
    }

    /// Reads what can be read of a chunk's rows into `values`.
    pub(super) fn read_near(
        &mut self,
        chunk: &Chunk,
        keys: &[u64],
        wanted: &Wanted,
        values: &mut [f32],
        now: Duration,
    ) -> Option<Box<NearPart>> {
        let peer = &mut self.peers[chunk.peer as usize];
        peer.link.as_ref()?;
        let near = peer.near.read(keys, wanted, values, now)?;
        let asked = near.keys.len() as u64;
        self.tally.near_rows.add(keys.len() as u64 - asked);
        self.tally.near_asked_rows.add(asked);
        Some(near)
    }

    /// A whole small pull at once, from one thread's images and in the order of the keys: `false` when it must be asked for.
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
        let now = self.net.now();
        self.keep_near(now)?;
        let Peer { link: Some(_), near, .. } = &mut self.peers[owner as usize] else { return Ok(false) };
        if near.stamps.any() {
            return Ok(false);
        }
        let Some(view) = near.fresh(table.0, now) else { return Ok(false) };
        self.near_slots.clear();
        let whole = matches!(view.pull(keys, read, segments, out, &mut self.near_slots), Ok(0));
        self.tally.near_rows.add(if whole { keys.len() as u64 } else { 0 });
        Ok(whole)
    }

    /// Asks for the images of the next table that this link's server may give, if it is on this host.
    pub(super) fn seek(&mut self, number: usize) -> Result<(), WorkerError> {
        let servers = self.config.servers.len() as u32;
        let peer = &mut self.peers[number];
        let Some(link) = &peer.link else { return Ok(()) };
        if peer.near.refused || peer.near.seeking.is_some() || !link.stream().is_near() {
            return Ok(());
        }
        let next = (0..self.tables.len().min(peer.tables.len()))
            .filter(|&table| peer.near.views.get(table).is_none_or(Option::is_none))
            .map(|table| (table, peer.shards(&self.tables[table].schema, servers)))
            .find(|(_, shards)| !shards.is_empty());
        let Some((table, shards)) = next else { return Ok(()) };
        peer.near.seeking = Some(Seeking { table, shards, files: Vec::new() });
        self.ask_images(number)
    }

    fn ask_images(&mut self, number: usize) -> Result<(), WorkerError> {
        let Some(Seeking { table, shards, files }) = &self.peers[number].near.seeking else { return Ok(()) };
        let first = shards.start + files.len() as u32;
        let words = [0, pair(first, (shards.end - first).min(IMAGES_PER_REQUEST)), 0, 0];
        let (table, now) = (Some(*table), self.net.now());
        let control =
            ControlFlight { kind: message::IMAGES, table, words, payloads: Vec::new(), answers: vec![None] };
        let id = self.flights.add(Work::Control(control), 1, 0, now);
        self.peers[number].enqueue(Request { place: id.place, chunk: 0, push: false, bytes: 0 }, now);
        self.send(number)
    }

    /// Images have been given: maps them once all of a table's are there.
    pub(super) fn take_images(&mut self, number: usize, control: &ControlFlight) -> Result<(), WorkerError> {
        let peer = &mut self.peers[number];
        let (Some(link), Some(Some((_, answer)))) = (&mut peer.link, control.answers.first()) else {
            return Ok(());
        };
        let Some(seeking) = &mut peer.near.seeking else { return Ok(()) };
        let nonsense = |what: String| WorkerError::Protocol { peer: peer.name.clone(), what };
        let ImagesV1 { incarnations } = control::open(answer).map_err(|error| nonsense(error.to_string()))?;
        for &incarnation in &incarnations {
            let given = link.stream_mut().take_given();
            let given = given.map_err(|error| nonsense(format!("an image that cannot be taken: {error}")))?;
            let file = given.ok_or_else(|| nonsense("an image that was announced and not given".into()))?;
            seeking.files.push((File::from(file), incarnation));
        }
        if incarnations.is_empty() || seeking.files.len() > seeking.shards.len() {
            return Err(nonsense(format!("{} images", incarnations.len())));
        }
        if seeking.files.len() < seeking.shards.len() {
            return self.ask_images(number);
        }
        let Some(Seeking { table, shards, files }) = peer.near.seeking.take() else { return Ok(()) };
        let name = &self.tables[table].schema.name;
        match View::open(&self.tables[table].schema, shards.start, files) {
            Ok(view) => {
                tracing::debug!(peer = %peer.name, table = name, ?shards, "rows are read where they are");
                let views = peer.near.views.len().max(table + 1);
                peer.near.views.resize_with(views, || None);
                peer.near.views[table] = Some(view);
                peer.near.stamps.begin_tracking();
            }
            Err(error) => {
                tracing::warn!(peer = %peer.name, table = name, %error, "images cannot be mapped: rows are asked for");
                peer.near.refused = true;
            }
        }
        self.seek(number)
    }

    /// The server gives no images: rows are asked for.
    pub(super) fn images_refused(&mut self, number: usize, text: &str) {
        let peer = &mut self.peers[number];
        tracing::info!(peer = %peer.name, why = text, "rows are asked for: the server gives no images");
        (peer.near.refused, peer.near.seeking) = (true, None);
    }
}
