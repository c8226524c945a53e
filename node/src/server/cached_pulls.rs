//! Pulls of what is newer than what the worker holds, and pushes that name a keyset for some of their rows.

use super::bulk::{RequestBuffers, RequestFailure, RequestOutcome, check_lengths, refuse, shards};
use super::keysets::{Keyset, Keysets};
use super::tables::ServerTables;
use crate::error::Refusal;
use crate::limits::{PART_BYTES_MAX, PART_KEYS_MAX};
use crate::message::{self, PullFrame};
use crate::pull_newer::{PullNewerFrame, bit, told_bytes};
use bytemuck::cast_slice_mut;
use gannet_core::NO_SLOT;
use gannet_transport::{Frame, Full, Head, Transmit};

/// Answers a pull with those rows that are newer than what the worker holds.
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
    let Some(asked) = PullNewerFrame::of(frame.payload, count) else {
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
    crate::pull_newer::tell(told, before);
    tally.pulled_rows.add(rows as u64);
    tally.spared_rows.add((count - rows) as u64);
    let words = [frame.head.words[0], u64::from(kept), stamp, message::clock_word(lowest)];
    let bytes = told_bytes + rows * floats * 4;
    transmit.commit(Head::new(message::ROWS, frame.head.aux, frame.head.id, words), bytes);
    Ok(())
}

/// The keys of a push of so many rows, and where they may be: of those whose bit is set from the keyset, of the others from the push.
pub(super) fn merge(
    bits: &[u64],
    count: usize,
    keyset: &Keyset,
    others: &[u64],
    (keys, slots): (&mut Vec<u64>, &mut Vec<u32>),
) {
    keys.clear();
    slots.clear();
    let mut kept = keyset.keys.iter().zip(&keyset.slots);
    let mut others = others.iter();
    for i in 0..count {
        let (&key, &slot) = match bit(bits, i).then(|| kept.next()).flatten() {
            Some(kept) => kept,
            // As many as there are bits that are not set: the lengths were checked.
            None => (others.next().unwrap_or(&0), &NO_SLOT),
        };
        keys.push(key);
        slots.push(slot);
    }
}
