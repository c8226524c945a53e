//! What becomes of a request: an answer, a wait, or a refusal.

use gannet_core::Applied;
use gannet_transport::{Frame, Full, Head, Transmit};
use gannet_wire::frames::declare::{FrameError, FrameKind};
use gannet_wire::refusal::Refusal;

/// The outcome of handling a request.
pub(crate) type RequestOutcome = Result<(), RequestFailure>;

/// Why a request has no answer yet, or is refused.
pub(crate) enum RequestFailure {
    /// The out queue has no space for the answer. The request stays in the receive buffer.
    Full,
    /// The request waits for other workers that keep step over this table. It stays in the receive buffer.
    Parked(u32),
    /// The request is refused.
    Refused(Refusal, String),
}

impl From<Full> for RequestFailure {
    fn from(_: Full) -> RequestFailure {
        RequestFailure::Full
    }
}

impl From<FrameError> for RequestFailure {
    fn from(error: FrameError) -> RequestFailure {
        RequestFailure::Refused(Refusal::Malformed, error.to_string())
    }
}

/// A refusal with this text.
pub(crate) fn refuse<T>(refusal: Refusal, text: impl Into<String>) -> Result<T, RequestFailure> {
    Err(RequestFailure::Refused(refusal, text.into()))
}

/// An answer that has no payload.
pub(crate) enum BulkReply {
    Now(Head),
    /// The answer goes out when the step of this push has been applied.
    Later {
        table: u32,
        step: u64,
        rows: u32,
        /// Rows of it that are not kept.
        dropped: Applied,
    },
}

/// Queues a control answer: its head and its payload.
pub(crate) fn send_answer(
    frame: &Frame<'_>,
    reply: impl FrameKind,
    payload: &[u8],
    transmit: &mut Transmit,
) -> RequestOutcome {
    Ok(transmit.send_copy(reply.encode(frame.head.id), payload)?)
}
