//! Requests to the coordinator that thread 0 of a scheduler keeps.

use crate::limits::COORDINATOR_REQUEST_BYTES;
use crate::peers::outcome::{RequestOutcome, refuse, send_answer};
use crate::server_tables::ServerTables;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::coordinator::{CoordinateFrame, CoordinatedFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::messages::control;
use gannet_wire::messages::coordinator::CoordinatorRequestV1;
use gannet_wire::refusal::Refusal;

/// Answers a request to the coordinator.
pub(crate) fn answer_coordinate(
    tables: &ServerTables,
    frame: &Frame<'_>,
    transmit: &mut Transmit,
) -> RequestOutcome {
    CoordinateFrame::decode(&frame.head)?;
    let Some(coordinator) = &tables.coordinator else {
        let text = "no coordinator is here: --coordinator names a `gannet scheduler`";
        return refuse(Refusal::Unknown, text);
    };
    if frame.payload.len() > COORDINATOR_REQUEST_BYTES {
        let bytes = frame.payload.len();
        let text = format!("a request of {bytes} bytes: the limit is {}", COORDINATOR_REQUEST_BYTES);
        return refuse(Refusal::Limit, text);
    }
    let request = match control::open::<CoordinatorRequestV1>(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    transmit.reserve(0).ok_or(Full)?;
    match request.ask(&**coordinator) {
        Ok(reply) => send_answer(frame, CoordinatedFrame {}, &control::seal(&reply), transmit),
        Err(error) => refuse(Refusal::NoSpace, error.0),
    }
}
