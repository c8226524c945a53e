//! Conditional pulls: the answer leaves out rows that the worker has cached and that have not changed.

use crate::peers::buffers::RequestBuffers;
use crate::peers::keysets::Keysets;
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::requests::bulk::{check_bulk_lengths, shards};
use crate::server_tables::ServerTables;
use bytemuck::cast_slice_mut;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::bulk::{PullFrame, RowsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::pull_newer;
use gannet_wire::frames::pull_newer::{PullNewerPayload, change_bytes};
use gannet_wire::limits::{PART_BYTES_MAX, PART_KEYS_MAX};
use gannet_wire::refusal::Refusal;

/// Answers a pull with the rows that are newer than the worker's cached ones.
pub(crate) fn answer_cached_pull(
    frame: &Frame<'_>,
    request: &PullFrame,
    tables: &mut ServerTables,
    keysets: &mut Keysets,
    lowest: Option<u64>,
    scratch: &mut RequestBuffers,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let incarnation = tables.home.incarnation;
    let (shards, counters) = shards(&mut tables.all, request.table)?;
    let count = request.keys as usize;
    let floats = shards.schema().read_floats_of(request.read, request.segments);
    let floats =
        floats.map_err(|error| RequestFailure::Refused(Refusal::of_pull(&error), error.to_string()))?;
    let (change_bytes, rows) = (change_bytes(count), count * floats * 4);
    if count > PART_KEYS_MAX || rows > PART_BYTES_MAX {
        return check_bulk_lengths(frame, count, frame.payload.len(), rows);
    }
    let Some(payload) = PullNewerPayload::of(frame.payload, count) else {
        let got = frame.payload.len();
        return refuse(
            Refusal::Malformed,
            format!("a payload of {got} bytes for what is newer of {count} keys"),
        );
    };
    let RequestBuffers { cached, changes, found, .. } = scratch;
    payload.held(incarnation, cached);
    changes.clear();
    let out = transmit.reserve(change_bytes + rows).ok_or(Full)?;
    let (change_words, out) = out.split_at_mut(change_bytes);
    let keyset = request.keep.checked_sub(1).and_then(|place| keysets.begin(place, request.table, count));
    let kept = if keyset.is_some() { request.keep } else { 0 };
    let slots = match keyset {
        Some(keyset) => {
            keyset.keys.extend_from_slice(payload.keys);
            &mut keyset.slots
        }
        None => {
            found.clear();
            found
        }
    };
    let what = (request.read, request.segments);
    let pulled = shards.pull_newer(payload.keys, cached, what, cast_slice_mut(out), slots, changes);
    let (rows, version) = match pulled {
        Ok(pulled) => pulled,
        Err(error) => return refuse(Refusal::of_pull(&error), error.to_string()),
    };
    pull_newer::write_changes(changes, change_words);
    counters.pulled_rows.add(rows as u64);
    counters.spared_rows.add((count - rows) as u64);
    let answer = RowsFrame { version, ..RowsFrame::to(request, kept, lowest) };
    transmit.commit(answer.encode(frame.head.id), change_bytes + rows * floats * 4);
    Ok(())
}
