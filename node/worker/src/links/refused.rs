//! The error of a refusal, in words.

use crate::error::WorkerError;
use gannet_transport::Head;
use gannet_wire::frames::bulk::{PullFrame, PushFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::AllocateFrame;
use gannet_wire::frames::scheduler::BookFrame;
use gannet_wire::frames::session::{HelloFrame, KnockFrame, ProveFrame, RefusedFrame};
use gannet_wire::frames::sync::JoinFrame;
use gannet_wire::frames::tables::{ConfirmFrame, IdentifyFrame, OpenTableFrame};
use gannet_wire::frames::vectors::VectorFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::RefusedV1;
use gannet_wire::refusal::Refusal;
use std::sync::Arc;

/// The error of a refusal frame.
pub(crate) fn refusal_error(peer: &Arc<str>, kind: u16, head: &Head, payload: &[u8]) -> WorkerError {
    let code = match RefusedFrame::decode(head) {
        Ok(RefusedFrame { code, .. }) => code,
        Err(error) => return WorkerError::Protocol { peer: peer.clone(), what: error.to_string() },
    };
    let text =
        control::open::<RefusedV1>(payload).map_or_else(|error| error.to_string(), |refused| refused.text);
    let what = match kind {
        HelloFrame::KIND | KnockFrame::KIND | ProveFrame::KIND => "the connection",
        OpenTableFrame::KIND => "to open the table",
        IdentifyFrame::KIND => "to say what it holds of the table",
        ConfirmFrame::KIND => "to have the table confirmed",
        JoinFrame::KIND => "to let this worker keep step with the others",
        PullFrame::KIND => "a pull",
        PushFrame::KIND => "a push",
        BookFrame::KIND => "a request to the scheduler",
        AllocateFrame::KIND => "an incarnation",
        VectorFrame::KIND => "a program on its vectors",
        _ => "a request",
    };
    WorkerError::Refused { peer: peer.clone(), what: what.into(), refusal: Refusal::of(code), text }
}
