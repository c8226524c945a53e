//! Replies to a worker's requests: the checks of each reply, and what the request's flight takes from it.

use crate::cache::following::Delta;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::reads::one_sided::OneSidedReads;
use crate::requests::ids::Request;
use crate::requests::in_flight::{InFlight, LinkAnswer, PullInFlight, RequestWork};
use crate::requests::request_queue::RequestQueue;
use gannet_core::Applied;
use gannet_transport::Frame;
use gannet_wire::frames::answer_to;
use gannet_wire::frames::bulk::{AckFrame, RowsFrame};
use gannet_wire::frames::declare::{FrameError, FrameKind};
use gannet_wire::frames::session::RefusedFrame;
use gannet_wire::frames::sync::{TickFrame, TickedFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{RefusedV1, WaitsV2};
use gannet_wire::refusal::Refusal;
use std::sync::Arc;

/// What a frame from the server did.
pub(crate) enum ReplyResult {
    /// It completed a part of this flight, perhaps the last.
    Part(u32),
    /// The server refused the request, and would refuse it again.
    Refused { request: Request, refusal: Refusal, text: String },
    /// The next reply waits for other workers.
    Waits,
    /// It is no reply: rows to which the worker subscribes have changed.
    Delta(Box<Delta>),
}

/// What the handling of a reply needs of its peer.
pub(crate) struct ReplyContext<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) session_epoch: u64,
    /// That of the server.
    pub(crate) incarnation: u64,
    pub(crate) clocks: &'a mut Vec<(u64, u64)>,
    pub(crate) near: &'a mut OneSidedReads,
}

impl ReplyContext<'_> {
    fn nonsense(&self, what: String) -> WorkerError {
        WorkerError::Protocol { peer: self.name.clone(), what }
    }

    fn unreadable(&self, error: FrameError) -> WorkerError {
        self.nonsense(error.to_string())
    }
}

/// Reads the server's report of the workers for which a request waits.
pub(crate) fn read_waits(frame: &Frame<'_>, posted: usize, peer: &Arc<str>) -> Result<WaitsV2, WorkerError> {
    let nonsense = |what| WorkerError::Protocol { peer: peer.clone(), what };
    if posted == 0 {
        return Err(nonsense("a report that a request waits, but none was sent".into()));
    }
    control::open_as(2, frame.payload).map_err(|error| nonsense(error.to_string()))
}

/// Handles a reply. Returns which of the posted requests it answers.
pub(crate) fn reply(
    frame: &Frame<'_>,
    context: ReplyContext<'_>,
    flights: &mut InFlight,
    requests: &RequestQueue,
    counters: &WorkerCounters,
) -> Result<(usize, ReplyResult), WorkerError> {
    let head = &frame.head;
    let Some(at) = requests.answered_by(head, flights) else {
        return Err(context.nonsense(format!(
            "an answer (kind {}) to request {:#x}, which is not the next",
            head.kind, head.id
        )));
    };
    let request = requests.queue[at];
    if requests.unsent.contains(&head.id) {
        return Err(context
            .nonsense(format!("an answer (kind {}) to a request that has not all been sent", head.kind)));
    }
    let kind = flights.kind(request.index).unwrap_or(0);
    if head.kind == RefusedFrame::KIND {
        return Ok((at, refused_reply(frame, request, &context, flights)?));
    }
    if head.kind != answer_to(kind) {
        return Err(context.nonsense(format!("kind {} in answer to kind {kind}", head.kind)));
    }
    let Some(flight) = flights.at(request.index) else {
        return Err(context.nonsense("an answer to a request that is not in flight".into()));
    };
    match &mut flight.work {
        RequestWork::Pull(pull) if pull.asks_newer(request.chunk as usize) => {
            counters.cache_same.add(take_newer_rows(frame, pull, request.chunk as usize, &context)?);
            counters.bytes_received.add(u64::from(head.len));
        }
        RequestWork::Pull(pull) => {
            take_rows(frame, pull, request.chunk as usize, context)?;
            counters.bytes_received.add(u64::from(head.len));
        }
        RequestWork::Push(push) => {
            let ack = AckFrame::decode(head).map_err(|error| context.unreadable(error))?;
            let (applied, late) = (ack.applied(), ack.late);
            counters.pushed.count(&applied);
            counters.late_rows.add(u64::from(late));
            push.late |= late > 0;
            let dropped = (push.laid.table(), applied.not_finite);
            let Applied { duplicate, not_finite, not_admitted, refused, .. } = applied;
            if late > 0 || duplicate > 0 || not_finite > 0 || not_admitted > 0 || refused > 0 {
                push.doubt(request.chunk as usize);
            }
            flights.count_not_finite(dropped.0, dropped.1);
        }
        RequestWork::Control(control) => {
            if let (Some(table), Some(tick)) = (control.table, control.frame.get::<TickFrame>()) {
                let left = TickedFrame::decode(head).map_err(|error| context.unreadable(error))?.left;
                context.clocks.resize(context.clocks.len().max(table + 1), (0, 0));
                context.clocks[table] = (tick.clock, left);
            }
            control.answers[request.chunk as usize] = Some(LinkAnswer {
                head: *head,
                payload: frame.payload.to_vec(),
                epoch: context.session_epoch,
            })
        }
    }
    Ok((at, ReplyResult::Part(request.index)))
}

/// Handles a refusal. If the worker must resend the push, the link ends: the worker then resends this push and all
/// later requests, in order.
fn refused_reply(
    frame: &Frame<'_>,
    request: Request,
    context: &ReplyContext<'_>,
    flights: &mut InFlight,
) -> Result<ReplyResult, WorkerError> {
    let refusal =
        Refusal::of(RefusedFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?.code);
    let text = control::open::<RefusedV1>(frame.payload).map(|refused| refused.text);
    let text = text.unwrap_or_else(|error| error.to_string());
    if request.push && refusal.asks_for_resend() || refusal == Refusal::Moved {
        let what = format!("push {:#x}", frame.head.id);
        return Err(WorkerError::Refused { peer: context.name.clone(), what, refusal, text });
    }
    if let Some(RequestWork::Push(push)) = flights.at(request.index).map(|flight| &flight.work) {
        push.doubt(request.chunk as usize);
    }
    Ok(ReplyResult::Refused { request, refusal, text })
}

/// Takes the rows of a part of a pull that requested only rows newer than the worker's. Returns how many are unchanged.
fn take_newer_rows(
    frame: &Frame<'_>,
    pull: &mut PullInFlight,
    chunk: usize,
    context: &ReplyContext<'_>,
) -> Result<u64, WorkerError> {
    let rows = RowsFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?;
    let Some(same) = pull.settle_newer(chunk, frame.payload, rows.version, rows.lowest) else {
        return Err(context.nonsense(format!("{} bytes of rows that do not fit the request", frame.head.len)));
    };
    let part = &mut pull.parts[chunk];
    let kept = part.keep != 0 && rows.kept == part.keep;
    part.kept = if kept { context.session_epoch } else { 0 };
    Ok(same)
}

/// Takes the rows of a part of a pull.
fn take_rows(
    frame: &Frame<'_>,
    pull: &mut PullInFlight,
    chunk: usize,
    context: ReplyContext<'_>,
) -> Result<(), WorkerError> {
    let rows = RowsFrame::decode(&frame.head).map_err(|error| context.unreadable(error))?;
    if rows.f16 && !pull.asks_f16(chunk) {
        return Err(context.nonsense("rows as f16, which were not asked for so".into()));
    }
    let bytes = pull.answer_floats(chunk) * if rows.f16 { 2 } else { 4 };
    if frame.head.len as usize != bytes.next_multiple_of(8) {
        return Err(context.nonsense(format!("{} bytes of rows where {bytes} were expected", frame.head.len)));
    }
    let part = &mut pull.parts[chunk];
    let kept = part.keep != 0 && rows.kept == part.keep;
    part.kept = if kept { context.session_epoch } else { 0 };
    if pull.versioned {
        if !rows.versioned {
            return Err(context.nonsense("rows without their version".into()));
        }
        pull.parts[chunk].read_at = [rows.version, context.incarnation];
    }
    if let Some((keys, slots)) = pull.found(chunk) {
        context.near.learn(pull.laid.table(), keys, slots);
    }
    if rows.f16 {
        pull.widen(chunk);
    }
    pull.settle(chunk, rows.lowest);
    Ok(())
}
