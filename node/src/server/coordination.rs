//! Requests to the coordinator that thread 0 of a scheduler keeps.

use super::bulk::{RequestOutcome, refuse};
use super::tables::{self, ServerTables};
use crate::coordinator::messages::CoordinatorRequestV1;
use crate::error::Refusal;
use crate::frames::control;
use crate::frames::{CoordinateFrame, CoordinatedFrame, FrameKind};
use crate::limits::COORDINATOR_REQUEST_BYTES;
use gannet_transport::{Frame, Full, Transmit};

impl ServerTables {
    /// Answers a request to the coordinator.
    pub(super) fn answer_coordinate(&self, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
        CoordinateFrame::decode(&frame.head)?;
        let Some(coordinator) = &self.coordinator else {
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
            Ok(reply) => tables::answer(frame, CoordinatedFrame {}, &control::seal(&reply), transmit),
            Err(error) => refuse(Refusal::NoSpace, error.0),
        }
    }
}
