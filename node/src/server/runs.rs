//! Requests to the registry of runs, which thread 0 of a server with tables has.

use super::bulk::{RequestFailure, RequestOutcome, refuse};
use super::tables;
use crate::error::Refusal;
use crate::frames::control;
use crate::frames::{FrameKind, RunFrame, RunIsFrame};
use crate::limits::RUN_BYTES_MAX;
use crate::runs::{Registry, RunRequestV1};
use gannet_transport::{Frame, Full, Transmit};
use std::time::Duration;

/// Answers a request about a run.
pub(super) fn answer(
    frame: &Frame<'_>,
    runs: Option<&mut Registry>,
    session: u32,
    now: Duration,
    open: &[String],
    transmit: &mut Transmit,
) -> RequestOutcome {
    RunFrame::decode(&frame.head)?;
    let Some(runs) = runs else {
        return refuse(Refusal::Unknown, "the registry of runs is in thread 0 of a server that has tables");
    };
    if frame.payload.len() > RUN_BYTES_MAX {
        let bytes = frame.payload.len();
        return refuse(
            Refusal::Limit,
            format!("a request of {bytes} bytes about a run: the limit is {RUN_BYTES_MAX}"),
        );
    }
    let request = match control::open::<RunRequestV1>(frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    // Space for the answer comes first: a decision must reach the worker.
    transmit.reserve(0).ok_or(Full)?;
    let reply = runs.answer(request, session, now, open);
    let reply = reply.map_err(|(refusal, text)| RequestFailure::Refused(refusal, text))?;
    tables::answer(frame, RunIsFrame {}, &control::seal(&reply), transmit)
}
