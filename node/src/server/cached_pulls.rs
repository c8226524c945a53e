//! Conditional pulls: the answer leaves out rows that the worker has cached and that have not changed.

use super::bulk::{RequestBuffers, RequestFailure, RequestOutcome, check_lengths, refuse, shards};
use super::keysets::Keysets;
use super::tables::ServerTables;
use crate::error::Refusal;
use crate::frames::pull_newer::{self, PullNewerPayload, told_bytes};
use crate::frames::{FrameKind, PullFrame, RowsFrame};
use crate::limits::{PART_BYTES_MAX, PART_KEYS_MAX};
use bytemuck::cast_slice_mut;
use gannet_transport::{Frame, Full, Transmit};

/// Answers a pull with the rows that are newer than the worker's cached ones.
pub(super) fn pull(
    frame: &Frame<'_>,
    request: &PullFrame,
    tables: &mut ServerTables,
    keysets: &mut Keysets,
    lowest: Option<u64>,
    scratch: &mut RequestBuffers,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let incarnation = tables.incarnation;
    let (shards, tally) = shards(&mut tables.all, request.table)?;
    let count = request.keys as usize;
    let floats = shards.schema().read_floats_of(request.read, request.segments);
    let floats =
        floats.map_err(|error| RequestFailure::Refused(Refusal::of_pull(&error), error.to_string()))?;
    let (told_bytes, rows) = (told_bytes(count), count * floats * 4);
    if count > PART_KEYS_MAX || rows > PART_BYTES_MAX {
        return check_lengths(frame, count, frame.payload.len(), rows);
    }
    let Some(asked) = PullNewerPayload::of(frame.payload, count) else {
        let got = frame.payload.len();
        return refuse(
            Refusal::Malformed,
            format!("a payload of {got} bytes for what is newer of {count} keys"),
        );
    };
    let RequestBuffers { held, told, found, .. } = scratch;
    asked.held(incarnation, held);
    told.clear();
    let out = transmit.reserve(told_bytes + rows).ok_or(Full)?;
    let (before, out) = out.split_at_mut(told_bytes);
    let keyset = request.keep.checked_sub(1).and_then(|place| keysets.begin(place, request.table, count));
    let kept = if keyset.is_some() { request.keep } else { 0 };
    let slots = match keyset {
        Some(keyset) => {
            keyset.keys.extend_from_slice(asked.keys);
            &mut keyset.slots
        }
        None => {
            found.clear();
            found
        }
    };
    let what = (request.read, request.segments);
    let pulled = shards.pull_newer(asked.keys, held, what, cast_slice_mut(out), slots, told);
    let (rows, stamp) = match pulled {
        Ok(pulled) => pulled,
        Err(error) => return refuse(Refusal::of_pull(&error), error.to_string()),
    };
    pull_newer::tell(told, before);
    tally.pulled_rows.add(rows as u64);
    tally.spared_rows.add((count - rows) as u64);
    let answer = RowsFrame { version: stamp, ..RowsFrame::to(request, kept, lowest) };
    transmit.commit(answer.encode(frame.head.id), told_bytes + rows * floats * 4);
    Ok(())
}
