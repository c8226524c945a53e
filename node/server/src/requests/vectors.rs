//! Programs on tables of vectors. A request runs on one shard, so that other sessions have their turn in between.

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::peers::pusher::Pusher;
use crate::requests::bulk::shards;
use crate::server_tables::ServerTables;
use gannet_core::limits::PROGRAM_SUMS_MAX;
use gannet_core::{PushName, Shards};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::vectors::{VectorDoneFrame, VectorFrame};
use gannet_wire::limits::PART_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{VectorDoneV1, VectorV1};
use gannet_wire::refusal::Refusal;
use gannet_wire::vectors;

/// Bytes of an answer beside its sums.
const ANSWER_HEAD_BYTES: usize = 64;

const _: () = assert!(PROGRAM_SUMS_MAX * 8 + ANSWER_HEAD_BYTES <= PART_BYTES_MAX);

/// Runs a program and answers its sums.
pub(crate) fn run_vector_program(
    frame: &Frame<'_>,
    tables: &mut ServerTables,
    pusher: &mut Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let VectorFrame { table } = VectorFrame::decode(&frame.head)?;
    let request: VectorV1 = match control::open(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    pusher.must_have_incarnation()?;
    if pusher.blocked {
        return refuse(Refusal::Blocked, "an earlier push of this session was refused");
    }
    let ServerTables { all, checkpoints, .. } = tables;
    let (shards, _) = shards(all, table)?;
    pusher.enter_table(table, shards)?;
    let (shard, sums) = (request.shard, request.sums.len());
    let Pusher { pusher, incarnation, .. } = *pusher;
    let name = PushName { pusher, incarnation, seq: request.seq, row: 0 };
    let Some(program) = vectors::vector_program(request) else {
        return refuse(Refusal::Malformed, "the program has steps or sums that this server does not know");
    };
    if sums > PROGRAM_SUMS_MAX {
        return refuse(Refusal::Limit, format!("{sums} sums, {PROGRAM_SUMS_MAX} are the limit"));
    }
    if checkpoints.cuts.holds(table, &name, shards) {
        return Err(RequestFailure::Parked(table));
    }
    // Space for the answer comes first: a program that has run is always answered.
    transmit.reserve(sums * 8 + ANSWER_HEAD_BYTES).ok_or(Full)?;
    let sums = Shards::run_program(shards, shard, &name, &program);
    let sums = sums.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
    let done = control::seal(&VectorDoneV1 { sums });
    Ok(transmit.send_copy(VectorDoneFrame {}.encode(frame.head.id), &done)?)
}
