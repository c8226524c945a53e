//! Requests in flight: each pull, push and control request, with the memory that it lends and that its answer fills.

use crate::cache::misses::{CacheMisses, NewerAnswer};
use crate::cache::rows::RowCache;
use crate::counters::WorkerCounters;
use crate::requests::ids::{InFlightId, Request};
use crate::requests::push_rows::PushRows;
use crate::requests::relayout::Relayout;
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{NewerRow, Read, Segments, Write};
use gannet_transport::{Head, Owner, Parts};
use gannet_wire::frames;
use gannet_wire::frames::bulk::{PullFrame, PushFrame, RowsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::f16;
use gannet_wire::frames::pull_newer::read_reply;
use gannet_wire::frames::push_payload::{KeysetRows, PushPayload, PushValues};
use gannet_wire::frames::sync::{FenceFrame, TickFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::frames::word::unpair;
use gannet_wire::sharded_keys::Chunk;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A part of a pull.
#[derive(Debug, Default)]
pub(crate) struct PullPart {
    /// The last own push that the answer includes.
    pub(crate) saw: u64,
    /// The number of the keyset to keep, plus 1; 0 for none.
    pub(crate) keep: u32,
    /// The epoch of the link whose server kept it; 0 if none did.
    pub(crate) kept: u64,
    /// The rows that were read without a request.
    pub(crate) near: Option<Box<LocalHits>>,
    /// The clock of the slowest worker, as the owner reported it.
    pub(crate) lowest: Option<u64>,
    /// The owner answered all its rows as f16.
    pub(crate) f16: bool,
    /// Of which version the rows are, and which incarnation of the server has said so. 0: nobody did.
    pub(crate) read_at: [u64; 2],
}

/// What was read of a part without a request, and what must be requested.
#[derive(Debug, Default)]
pub(crate) struct LocalHits {
    /// For each key of the chunk, where its row was found; `NO_SLOT` where it was not.
    pub(crate) slots: Vec<u32>,
    /// The keys to request, their positions in the chunk, and where the answer lands. Empty: there is no request.
    pub(crate) keys: Vec<u64>,
    pub(crate) places: Vec<u32>,
    pub(crate) rows: Vec<f32>,
    /// The answer says where the rows are, behind the rows.
    pub(crate) with_slots: bool,
    /// The clock of the slowest worker, from before the rows were read.
    pub(crate) lowest: Option<u64>,
    /// The rows that the cache did not have, if the pull goes through one. Of those only rows that are newer than the
    /// cached ones are sent.
    pub(crate) misses: Option<Box<CacheMisses>>,
}

impl PullPart {
    /// How many rows of a chunk of `len` keys are requested.
    pub(crate) fn requested(&self, len: u32) -> u32 {
        self.near.as_ref().map_or(len, |near| near.keys.len() as u32)
    }
}

pub(crate) struct PullInFlight {
    pub(crate) laid: Relayout,
    pub(crate) read: Read,
    pub(crate) segments: Segments,
    pub(crate) floats: usize,
    /// The rows are weights that are rounded to f16, however they come.
    pub(crate) f16: bool,
    pub(crate) values: Vec<f32>,
    pub(crate) parts: Vec<PullPart>,
    /// The step that it is for.
    pub(crate) clock: Option<u64>,
    /// The answers say the version of their rows: a push of changes will name it.
    pub(crate) versioned: bool,
}

impl PullInFlight {
    /// The answer to a part has landed: moves rows that were requested singly to their places. `lowest` is the clock of
    /// the slowest worker, as the answer reports it.
    pub(crate) fn settle(&mut self, chunk: usize, lowest: Option<u64>) {
        let before = self.parts[chunk].near.as_ref().and_then(|near| near.lowest);
        self.parts[chunk].lowest = lowest.min(before.or(lowest));
        let Some(near) = &mut self.parts[chunk].near else { return };
        let floats = self.floats;
        let values = &mut self.values[self.laid.chunks()[chunk].floats(floats)];
        for (&place, row) in near.places.iter().zip(near.rows.chunks_exact(floats)) {
            values[place as usize * floats..][..floats].copy_from_slice(row);
        }
        near.rows = Vec::new();
    }

    /// The answer to a request for newer rows: copies the rows to their places and into the cache. Returns how many
    /// rows had not changed, or `None` if the answer cannot be read.
    pub(crate) fn settle_newer(
        &mut self,
        chunk: usize,
        payload: &[u8],
        version: u64,
        lowest: Option<u64>,
    ) -> Option<u64> {
        let (floats, range) = (self.floats, self.laid.chunks()[chunk].floats(self.floats));
        let (values, part) = (&mut self.values[range], &mut self.parts[chunk]);
        let near = part.near.as_mut()?;
        let misses = near.misses.as_ref()?;
        let (newer, rows) = read_reply(payload, near.keys.len(), floats)?;
        let mut rows = rows.chunks_exact(floats);
        for (&place, newer) in near.places.iter().zip(&newer) {
            if *newer != NewerRow::Same {
                values[place as usize * floats..][..floats].copy_from_slice(rows.next()?);
            }
        }
        misses.fill(&near.keys, &near.places, values, &NewerAnswer { newer: &newer, version, lowest });
        part.lowest = lowest.min(near.lowest.or(lowest));
        Some(newer.iter().filter(|newer| **newer == NewerRow::Same).count() as u64)
    }

    /// Whether a part requests only newer rows.
    pub(crate) fn asks_newer(&self, chunk: usize) -> bool {
        self.parts[chunk].near.as_ref().is_some_and(|near| near.misses.is_some())
    }

    /// Whether the answer to a part may be f16.
    pub(crate) fn asks_f16(&self, chunk: usize) -> bool {
        let near = self.parts[chunk].near.as_ref();
        self.f16 && !near.is_some_and(|near| near.with_slots || near.misses.is_some())
    }

    /// The memory for the requested rows of a part, and for their slots if the answer has them.
    fn landing(&mut self, chunk: usize) -> &mut [f32] {
        let range = self.laid.chunks()[chunk].floats(self.floats);
        match &mut self.parts[chunk].near {
            Some(near) => &mut near.rows[..],
            None => &mut self.values[range],
        }
    }

    /// The rows of a part have landed as f16: makes f32 of them.
    pub(crate) fn widen(&mut self, chunk: usize) {
        f16::widen_in_place(self.landing(chunk));
        self.parts[chunk].f16 = self.parts[chunk].near.is_none();
    }

    /// All rows have come: rounds those that did not come as f16.
    pub(crate) fn round(&mut self) {
        if self.f16 {
            for (chunk, _) in self.laid.chunks().iter().zip(&self.parts).filter(|(_, part)| !part.f16) {
                f16::round(&mut self.values[chunk.floats(self.floats)]);
            }
        }
    }

    /// Floats of the answer to a part; a slot counts as one.
    pub(crate) fn answer_floats(&self, chunk: usize) -> usize {
        let part = &self.parts[chunk];
        let with_slots = part.near.as_ref().is_some_and(|near| near.with_slots);
        part.requested(self.laid.chunks()[chunk].len) as usize * (self.floats + usize::from(with_slots))
    }

    /// The requested keys, and the slots that the answer reports for their rows.
    pub(crate) fn found(&self, chunk: usize) -> Option<(&[u64], &[u32])> {
        let near = self.parts[chunk].near.as_ref().filter(|near| near.with_slots)?;
        Some((&near.keys, cast_slice(near.rows.get(near.keys.len() * self.floats..)?)))
    }
}

pub(crate) struct PushInFlight {
    pub(crate) laid: Relayout,
    pub(crate) write: Write,
    pub(crate) floats: usize,
    /// The values; if `f16` is set, gradients as f16 in the first half of this memory.
    pub(crate) values: PushRows,
    pub(crate) f16: bool,
    pub(crate) seq: u64,
    /// The name for the shards, if it is not this worker's name with `seq`: its seq, and pusher, incarnation and clock
    /// as they travel.
    pub(crate) name: Option<(u64, [u64; 3])>,
    /// For each part the keyset that replaces its keys; 0 for none.
    pub(crate) keysets: Vec<u64>,
    /// For each part, where a pull found its rows: hints, which the server checks. Empty for none.
    pub(crate) slots: Vec<Vec<u32>>,
    /// Some of its rows arrived after their step had been applied without them.
    pub(crate) late: bool,
    /// For each part whose keyset covers only some of its rows: which rows, a bit each, and the keys of the others.
    pub(crate) some: Vec<Option<KeysetRows>>,
    /// The cache, which must forget rows that the push did not change as expected.
    pub(crate) cache: Option<Arc<RowCache>>,
    /// For each part, of which version the rows are from which its changes were computed, and which incarnation of the
    /// server has said so. Empty: rows of the table do not die.
    pub(crate) since: Vec<[u64; 2]>,
}

impl PushInFlight {
    fn slots(&self, chunk: usize) -> &[u32] {
        self.slots.get(chunk).map_or(&[], Vec::as_slice)
    }

    fn some(&self, chunk: usize) -> Option<&KeysetRows> {
        self.some.get(chunk).and_then(Option::as_ref).filter(|_| self.keysets[chunk] != 0)
    }

    /// The payload of a part.
    #[inline]
    fn payload(&self, chunk: usize) -> PushPayload<'_> {
        let part = &self.laid.chunks()[chunk];
        let range = part.floats(self.floats);
        let values = match self.f16 {
            true => PushValues::F16(&cast_slice(&self.values[..])[range]),
            false => PushValues::F32(&self.values[range]),
        };
        let (name, since) = (self.name.as_ref().map(|(_, name)| name), self.since.get(chunk));
        let payload = PushPayload { name, since, values, ..PushPayload::default() };
        match (self.keysets[chunk], self.some(chunk)) {
            (0, _) => {
                PushPayload { keys: &self.laid.keys()[part.floats(1)], slots: self.slots(chunk), ..payload }
            }
            (_, Some(some)) => PushPayload { bits: &some.bits, keys: &some.others, ..payload },
            _ => payload,
        }
    }

    /// The server did not apply a part as the worker did: the cache forgets its rows.
    pub(crate) fn doubt(&self, chunk: usize) {
        if let Some(cache) = &self.cache {
            self.laid.keys()[self.laid.chunks()[chunk].floats(1)].iter().for_each(|&key| cache.forget(key));
        }
    }
}

/// A request that moves no rows: one for each link that it goes to, or a single one.
#[derive(Default)]
pub(crate) struct ControlInFlight {
    pub(crate) frame: UnsentFrame,
    /// The worker's number of the table that it is about.
    pub(crate) table: Option<usize>,
    pub(crate) payloads: Vec<Vec<u8>>,
    /// Answers by part.
    pub(crate) answers: Vec<Option<LinkAnswer>>,
    /// A server's threads changed: all links must be requested again.
    pub(crate) again: bool,
}

/// The answer to a part of a control request.
#[derive(Clone)]
pub(crate) struct LinkAnswer {
    pub(crate) head: Head,
    pub(crate) payload: Vec<u8>,
    /// The epoch of the link over which it came.
    pub(crate) epoch: u64,
}

impl ControlInFlight {
    pub(crate) fn kind(&self) -> u16 {
        self.frame.kind()
    }
}

pub(crate) enum RequestWork {
    Pull(PullInFlight),
    Push(PushInFlight),
    Control(ControlInFlight),
}

pub(crate) struct InFlightRequest {
    pub(crate) work: RequestWork,
    /// Parts not yet answered.
    pub(crate) left: u32,
    pub(crate) bytes: usize,
    /// A part was refused for good.
    pub(crate) failed: bool,
    generation: u32,
    begun: Duration,
}

impl InFlightRequest {
    /// No call waits for its answer.
    pub(crate) fn is_unawaited(&self) -> bool {
        let unawaited = |kind| frames::is_of_link(kind) || matches!(kind, TickFrame::KIND | FenceFrame::KIND);
        matches!(&self.work, RequestWork::Control(control) if unawaited(control.kind()))
    }

    /// Whether rows or gradients of a part travel as f16.
    pub(crate) fn is_f16(&self, chunk: usize) -> bool {
        match &self.work {
            RequestWork::Pull(pull) => pull.asks_f16(chunk),
            RequestWork::Push(push) => push.f16,
            RequestWork::Control(_) => false,
        }
    }

    /// How many requests were begun from this one to `next`. The higher the number, the older the request.
    pub(crate) fn age(&self, next: u32) -> u32 {
        next.wrapping_sub(self.generation)
    }

    /// When the request was begun.
    pub(crate) fn begun(&self) -> Duration {
        self.begun
    }
}

/// All requests in flight, by index.
pub(crate) struct InFlight {
    entries: Vec<Option<InFlightRequest>>,
    free: Vec<u32>,
    pub(crate) next_generation: u32,
    /// Bytes in flight, requests and answers.
    pub(crate) bytes: usize,
    /// Pushes not wholly acknowledged.
    pub(crate) pushes: usize,
    pulls: usize,
    /// By table: rows of pushes that servers dropped, because a value was not finite.
    not_finite: Vec<u64>,
    counters: Arc<WorkerCounters>,
}

impl InFlight {
    pub(crate) fn new(counters: Arc<WorkerCounters>) -> InFlight {
        let (entries, free, not_finite) = (Vec::new(), Vec::new(), Vec::new());
        InFlight { entries, free, next_generation: 0, bytes: 0, pushes: 0, pulls: 0, not_finite, counters }
    }

    /// Counts rows of a push to this table that a server has dropped.
    pub(crate) fn count_not_finite(&mut self, table: usize, rows: u32) {
        if rows > 0 {
            self.not_finite.resize(self.not_finite.len().max(table + 1), 0);
            self.not_finite[table] += u64::from(rows);
        }
    }

    /// How many rows of pushes to this table the servers have dropped.
    pub(crate) fn not_finite_rows(&self, table: usize) -> u64 {
        self.not_finite.get(table).copied().unwrap_or(0)
    }

    /// Publishes what is in flight now in the counters.
    fn publish(&self) {
        self.counters.bytes.set(self.bytes as u64);
        self.counters.pulls.set(self.pulls as u64);
        self.counters.pushes.set(self.pushes as u64);
    }

    pub(crate) fn add(&mut self, work: RequestWork, parts: usize, bytes: usize, now: Duration) -> InFlightId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.next_generation = self.next_generation.wrapping_add(1);
        self.bytes += bytes;
        self.pushes += usize::from(matches!(work, RequestWork::Push(_)));
        self.pulls += usize::from(matches!(work, RequestWork::Pull(_)));
        self.publish();
        self.entries[index as usize] = Some(InFlightRequest {
            work,
            left: parts as u32,
            bytes,
            failed: false,
            generation: self.next_generation,
            begun: now,
        });
        InFlightId { index, generation: self.next_generation }
    }

    /// The request, unless it has been taken.
    pub(crate) fn get(&self, id: InFlightId) -> Option<&InFlightRequest> {
        self.entries.get(id.index as usize)?.as_ref().filter(|flight| flight.generation == id.generation)
    }

    pub(crate) fn at(&mut self, index: u32) -> Option<&mut InFlightRequest> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Whether a push to this table that is not acknowledged in full has rows on a link that is not marked in `has`.
    pub(crate) fn has_push_elsewhere(&self, table: usize, has: &[bool]) -> bool {
        let elsewhere =
            |chunk: &Chunk| chunk.len > 0 && !has.get(chunk.peer as usize).is_some_and(|&has| has);
        self.entries.iter().flatten().filter(|flight| flight.left > 0).any(|flight| match &flight.work {
            RequestWork::Push(push) => push.laid.table() == table && push.laid.chunks().iter().any(elsewhere),
            _ => false,
        })
    }

    fn here(&self, index: u32) -> Option<&InFlightRequest> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(crate) fn take(&mut self, index: u32) -> Option<InFlightRequest> {
        let flight = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.bytes -= flight.bytes;
        self.pushes -= usize::from(matches!(flight.work, RequestWork::Push(_)));
        self.pulls -= usize::from(matches!(flight.work, RequestWork::Pull(_)));
        self.publish();
        Some(flight)
    }

    /// Records the time of a request whose last answer has come.
    pub(crate) fn time(&self, index: u32, now: Duration) {
        let Some(flight) = self.here(index) else { return };
        let took = now.saturating_sub(flight.begun);
        match flight.work {
            RequestWork::Pull(_) => self.counters.pull_took.observe(took, 1),
            RequestWork::Push(_) => self.counters.push_took.observe(took, 1),
            RequestWork::Control(_) => {}
        }
    }

    /// Head and payload bytes of a request. `table`: the number of a table on the link.
    pub(crate) fn head(&self, request: Request, table: impl Fn(usize) -> u32) -> (Head, usize) {
        let flight = self.here(request.index).expect("a queued request has its flight");
        let (id, chunk) = (request.id(), request.chunk as usize);
        match &flight.work {
            RequestWork::Pull(pull) => {
                let keys = pull.parts[chunk].requested(pull.laid.chunks()[chunk].len);
                let (table, read, keep) = (table(pull.laid.table()), pull.read, pull.parts[chunk].keep);
                let slots = pull.parts[chunk].near.as_ref().is_some_and(|near| near.with_slots);
                let (segments, clock, f16) = (pull.segments, pull.clock, pull.asks_f16(chunk));
                let misses = pull.parts[chunk].near.as_ref().and_then(|near| near.misses.as_ref());
                let (newer, plain) = (misses.is_some(), keys as usize * 8);
                let bytes = misses.map_or(plain, |misses| misses.cached.bytes());
                let versioned = pull.versioned;
                let frame =
                    PullFrame { table, keys, read, keep, segments, slots, newer, clock, f16, versioned };
                (frame.encode(id), bytes)
            }
            RequestWork::Push(push) => {
                let payload = push.payload(chunk);
                let frame = PushFrame {
                    table: table(push.laid.table()),
                    keys: push.laid.chunks()[chunk].len,
                    write: push.write,
                    seq: push.name.map_or(push.seq, |(seq, _)| seq),
                    row: push.laid.chunks()[chunk].row,
                    total: push.laid.keys().len() as u32,
                    keyset: push.keysets[chunk],
                    slots: !payload.slots.is_empty(),
                    named: payload.name.is_some(),
                    some: push.some(chunk).is_some(),
                    f16: push.f16,
                    since: payload.since.is_some(),
                };
                (frame.encode(id), payload.bytes())
            }
            RequestWork::Control(control) => {
                let head = control.frame.head(id, control.table.map(table));
                (head, control.payloads.get(chunk).map_or(0, Vec::len))
            }
        }
    }

    /// The request's kind.
    pub(crate) fn kind(&self, index: u32) -> Option<u16> {
        Some(match &self.here(index)?.work {
            RequestWork::Pull(_) => PullFrame::KIND,
            RequestWork::Push(_) => PushFrame::KIND,
            RequestWork::Control(control) => control.kind(),
        })
    }
}

/// Lends the memory of the requests in flight to one link.
pub(crate) struct InFlightOwner<'a> {
    pub(crate) flights: &'a mut InFlight,
    pub(crate) queue: &'a VecDeque<Request>,
    /// Posted requests whose payload has not all gone, oldest first.
    pub(crate) unsent: &'a mut VecDeque<u64>,
}

impl Owner for InFlightOwner<'_> {
    fn parts<'a>(&'a self, token: u64, parts: &mut Parts<'a>) {
        let (chunk, index) = unpair(token);
        let Some(flight) = self.flights.here(index) else { return };
        match &flight.work {
            RequestWork::Pull(pull) => match &pull.parts[chunk as usize].near {
                Some(near) => match &near.misses {
                    None => parts.push(cast_slice(&near.keys)),
                    Some(misses) => {
                        parts.push(misses.cached.before());
                        parts.push(cast_slice(&near.keys));
                        misses.cached.behind().into_iter().for_each(|part| parts.push(part));
                    }
                },
                None => {
                    let chunk = &pull.laid.chunks()[chunk as usize];
                    parts.push(cast_slice(&pull.laid.keys()[chunk.floats(1)]));
                }
            },
            RequestWork::Push(push) => {
                push.payload(chunk as usize).for_each_part(|part| parts.push(part));
            }
            RequestWork::Control(control) => parts.push(&control.payloads[chunk as usize]),
        }
    }

    fn sent(&mut self, token: u64) {
        let first = self.unsent.pop_front();
        debug_assert_eq!(first, Some(token));
    }

    fn place(&mut self, head: &Head) -> Option<&mut [u8]> {
        let mut requests = self.queue.iter().filter(|_| head.kind == RowsFrame::KIND);
        let request = requests.find(|request| request.id() == head.id)?;
        let RequestWork::Pull(pull) = &mut self.flights.at(request.index)?.work else { return None };
        if pull.asks_newer(request.chunk as usize) {
            return None;
        }
        let place: &mut [u8] = cast_slice_mut(pull.landing(request.chunk as usize));
        // f16 land in the second half, from which their floats fill all of it.
        let from = if RowsFrame::announces_f16(head) { place.len() / 2 } else { 0 };
        let place = &mut place[from..];
        (place.len().next_multiple_of(8) == head.len as usize).then_some(place)
    }
}
