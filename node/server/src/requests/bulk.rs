//! Pulls, pushes and scans: the frames that move rows. The handlers read requests and write answers in place.

use crate::counters::table::TableCounters;
use crate::peers::buffers::RequestBuffers;
use crate::peers::keysets::{Keyset, Keysets};
use crate::peers::outcome::{BulkReply, RequestFailure, RequestOutcome, refuse};
use crate::peers::pusher::{Pusher, is_data};
use crate::replication::Replication;
use crate::requests::cached_pulls;
use crate::requests::steps::pushes::{admit_pull, store_push, stores_pushes};
use crate::server_tables::ServerTables;
use crate::steps::step::IncomingPush;
use crate::tables::table_list::{NO_SHARD, TableList};
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{Applied, PushError, PushName, PushOptions, ReadAt, Shards};
use gannet_transport::limits::padded;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::bulk::{AckFrame, PullFrame, PushFrame, RowsFrame, ScanFrame, ScannedFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::f16;
use gannet_wire::frames::push_payload::{KeysetPart, PushLayout, PushPayload, merge_keyset, run_ends};
use gannet_wire::frames::word::unpair;
use gannet_wire::limits::{PART_BYTES_MAX, PART_KEYS_MAX};
use gannet_wire::refusal::Refusal;

/// The shards of a table, and its counters.
pub(crate) fn shards(
    tables: &mut TableList,
    table: u32,
) -> Result<(&mut Shards, &TableCounters), RequestFailure> {
    if tables.get(table as usize).is_none() {
        return tables.refuse_number(table);
    }
    let known = &mut tables[table as usize];
    match &mut known.shards {
        Some(shards) => Ok((shards, &known.counters)),
        None => refuse(Refusal::WrongShard, NO_SHARD),
    }
}

/// Checks a request against the limits, and checks that its payload has the `bytes` that its head announces.
pub(crate) fn check_bulk_lengths(
    frame: &Frame<'_>,
    keys: usize,
    bytes: usize,
    answer: usize,
) -> RequestOutcome {
    let got = frame.payload.len();
    if keys > PART_KEYS_MAX || answer > PART_BYTES_MAX {
        let text = format!(
            "{keys} keys with an answer of {answer} bytes: the limits are {PART_KEYS_MAX} and {PART_BYTES_MAX}"
        );
        return refuse(Refusal::Limit, text);
    }
    if got != padded(bytes) {
        return refuse(Refusal::Malformed, format!("a payload of {got} bytes where {bytes} were announced"));
    }
    Ok(())
}

/// Answers a pull. The rows are written straight into the out queue. Weights that the worker takes as f16 are rounded
/// there, unless one of them does not fit: then all of the answer's are f32.
pub(crate) fn answer_pull(
    frame: &Frame<'_>,
    tables: &mut ServerTables,
    keysets: &mut Keysets,
    pusher: &Pusher,
    scratch: &mut RequestBuffers,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let request = PullFrame::decode(&frame.head)?;
    let admitted = |clock| admit_pull(tables, request.table, clock, pusher);
    let lowest = request.clock.map(admitted).transpose()?;
    if request.newer {
        return cached_pulls::answer_cached_pull(frame, &request, tables, keysets, lowest, scratch, transmit);
    }
    let found = &mut scratch.found;
    let (shards, counters) = shards(&mut tables.all, request.table)?;
    let count = request.keys as usize;
    let floats = shards.schema().read_floats_of(request.read, request.segments);
    let floats =
        floats.map_err(|error| RequestFailure::Refused(Refusal::of_pull(&error), error.to_string()))?;
    let rows = count * floats * 4;
    let bytes = rows + if request.slots { count * 4 } else { 0 };
    check_bulk_lengths(frame, count, count * 8, bytes)?;
    let keys: &[u64] = cast_slice(&frame.payload[..count * 8]);
    let (out, places) = transmit.reserve(bytes).ok_or(Full)?.split_at_mut(rows);
    let out: &mut [f32] = cast_slice_mut(out);
    // A worker that gets the slots needs no keyset.
    let keep = if request.slots { 0 } else { request.keep };
    let keyset = keep.checked_sub(1).and_then(|place| keysets.begin(place, request.table, count));
    let kept = if keyset.is_some() { request.keep } else { 0 };
    let pulled = match keyset {
        Some(keyset) => {
            keyset.keys.extend_from_slice(keys);
            shards.pull_segments(keys, request.read, request.segments, out, Some(&mut keyset.slots))
        }
        None if request.slots => {
            found.clear();
            shards.pull_segments(keys, request.read, request.segments, out, Some(found))
        }
        None => shards.pull_segments(keys, request.read, request.segments, out, None),
    };
    if let Err(error) = pulled {
        return refuse(Refusal::of_pull(&error), error.to_string());
    }
    if request.slots {
        places[..count * 4].copy_from_slice(cast_slice(found));
    }
    counters.pulled_rows.add(count as u64);
    let f16 = request.f16 && f16::fit_f16(out);
    if f16 {
        f16::narrow_in_place(out);
    }
    let mut answer = RowsFrame { f16, ..RowsFrame::to(&request, kept, lowest) };
    if request.versioned {
        (answer.versioned, answer.version) = (true, shards.snapshot_version());
    }
    transmit.commit(answer.encode(frame.head.id), if f16 { rows / 2 } else { bytes });
    Ok(())
}

/// The keyset that a push names, if it names one. The keyset must have this number of keys.
fn named_keyset<'a>(
    request: &PushFrame,
    keys: usize,
    keysets: &'a mut Keysets,
    pusher: &mut Pusher,
) -> Result<Option<&'a mut Keyset>, RequestFailure> {
    if request.keyset == 0 {
        return Ok(None);
    }
    let (session, place) = unpair(request.keyset);
    let own = session == pusher.session;
    let keyset = if own { keysets.get(place.wrapping_sub(1), request.table, keys) } else { None };
    if keyset.is_none() {
        pusher.blocked = true;
        return refuse(Refusal::NoKeyset, format!("keyset {:#x} is not kept here", request.keyset));
    }
    Ok(keyset)
}

/// The name by which shards remember a push, and the clock of its learning rates. Both are the worker's own, or those
/// that a push of data brings.
fn push_name(
    request: &PushFrame,
    named: Option<&[u64; 3]>,
    pusher: &Pusher,
) -> Result<(PushName, u64), RequestFailure> {
    let (seq, row) = (request.seq, request.row);
    let own = PushName { pusher: pusher.pusher, incarnation: pusher.incarnation, seq, row };
    let (name, clock) = match named {
        Some(&[of, incarnation, clock]) => (PushName { pusher: of, incarnation, ..own }, clock),
        None => (own, own.seq),
    };
    // Shards remember pushes of data apart from those of workers.
    if request.named != is_data(name.pusher) {
        return refuse(Refusal::Name, format!("pusher {:#x} is not a pusher of data", name.pusher));
    }
    Ok((name, clock))
}

/// Applies a whole push, or stores it until its step is applied.
pub(crate) fn answer_push(
    frame: &Frame<'_>,
    tables: &mut ServerTables,
    keysets: &mut Keysets,
    pusher: &mut Pusher,
    scratch: &mut RequestBuffers,
    transmit: &mut Transmit,
) -> Result<BulkReply, RequestFailure> {
    let request = PushFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    if pusher.blocked {
        return refuse(Refusal::Blocked, "an earlier push of this session was refused");
    }
    let stored = stores_pushes(tables, request.table, pusher);
    let ServerTables { all, checkpoints, backups, home, .. } = tables;
    let (shards, counters) = shards(all, request.table)?;
    let count = request.keys as usize;
    let layout = PushLayout::new(&request, frame.payload, shards.schema().write_floats(request.write));
    check_bulk_lengths(frame, count, layout.bytes(), layout.f32_bytes() + count * 12)?;
    // Space for the acknowledgement comes first: an applied push is always acknowledged.
    transmit.reserve(0).ok_or(Full)?;
    let PushPayload { name: named, since, bits, keys, slots, values } = layout.split(frame.payload);
    let since = since.map(|&[version, of]| ReadAt { version, here: of == home.incarnation });
    let keyset = named_keyset(&request, layout.in_keyset, keysets, pusher)?;
    let RequestBuffers { keys: merged, found, rows, .. } = scratch;
    let values = values.floats(rows);
    let (keys, keyset) = match keyset {
        Some(keyset) if request.some => {
            let kept = KeysetPart { keys: &keyset.keys, slots: &keyset.slots };
            merge_keyset(bits, count, kept, keys, merged, found);
            (&merged[..], None)
        }
        keyset => (keys, keyset),
    };
    let (name, clock) = push_name(&request, named, pusher)?;
    pusher.enter_table(request.table, shards)?;
    let is_behind = backups.replication.as_mut().is_some_and(Replication::is_full);
    if !stored && (is_behind || checkpoints.cuts.holds(request.table, &name, shards)) {
        return Err(RequestFailure::Parked(request.table));
    }
    if stored {
        let keys = keyset.map_or(keys, |keyset| &keyset.keys);
        let (write, name) = (request.write, request.named.then_some(name));
        let ends = name.map_or_else(Vec::new, |name| run_ends(keys, shards.schema().shards, name.row));
        let total = u64::from(request.total);
        return store_push(
            tables,
            request.table,
            &IncomingPush { write, keys, values, name, total, ends: &ends },
            since,
            pusher,
        );
    }
    let options = PushOptions { clock, total: u64::from(request.total), since };
    let hints = match keyset {
        Some(Keyset { keys, slots, .. }) => {
            let pushed = shards.push_at(&name, options, request.write, keys, Some(slots), values);
            return acknowledge(pushed, frame, pusher, counters);
        }
        None if request.slots => {
            found.clear();
            found.extend_from_slice(slots);
            true
        }
        None => request.some,
    };
    let slots = if hints { Some(&mut found[..]) } else { None };
    let pushed = shards.push_at(&name, options, request.write, keys, slots, values);
    acknowledge(pushed, frame, pusher, counters)
}

/// Answers a push that was applied or refused.
fn acknowledge(
    pushed: Result<Applied, PushError>,
    frame: &Frame<'_>,
    pusher: &mut Pusher,
    counters: &TableCounters,
) -> Result<BulkReply, RequestFailure> {
    match pushed {
        Ok(applied) => {
            counters.count(&applied);
            Ok(BulkReply::Now(AckFrame::new(applied, 0).encode(frame.head.id)))
        }
        Err(error) => {
            let refusal = Refusal::of_push(&error);
            pusher.blocked |= refusal.asks_for_resend();
            refuse(refusal, error.to_string())
        }
    }
}

/// Answers a page of a shard's rows: the keys, then their floats.
pub(crate) fn scan(
    frame: &Frame<'_>,
    tables: &mut TableList,
    scratch: &mut RequestBuffers,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let ScanFrame { table, most, shard, from } = ScanFrame::decode(&frame.head)?;
    let (shards, counters) = shards(tables, table)?;
    if !shards.set().contains(shard) {
        return refuse(
            Refusal::WrongShard,
            format!("this thread does not own shard {shard}, only {}", shards.set()),
        );
    }
    let floats = shards.schema().floats();
    let most = (most as usize).clamp(1, gannet_wire::limits::part_keys(floats));
    let out = transmit.reserve(most * (8 + 4 * floats)).ok_or(Full)?;
    let RequestBuffers { keys, rows, .. } = scratch;
    keys.clear();
    rows.clear();
    let next = shards.scan(shard, from, most, keys, rows).map_or(u64::MAX, u64::from);
    let bytes = keys.len() * 8 + rows.len() * 4;
    out[..keys.len() * 8].copy_from_slice(cast_slice(keys));
    out[keys.len() * 8..bytes].copy_from_slice(cast_slice(rows));
    let page = ScannedFrame { rows: keys.len() as u32, floats: floats as u32, next };
    counters.scanned_rows.add(keys.len() as u64);
    transmit.commit(page.encode(frame.head.id), bytes);
    Ok(())
}
