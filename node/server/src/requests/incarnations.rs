//! Requests for a new incarnation.

use crate::limits::INCARNATION_NAMED_MAX;
use crate::peers::outcome::{RequestOutcome, refuse};
use crate::places::incarnations::{CounterError, Incarnations};
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::{AllocateFrame, AllocatedFrame};
use gannet_wire::refusal::Refusal;

/// Answers a request for an incarnation, or for the highest one that is known here. `is_owner`: whether this server
/// may hand out numbers.
pub(crate) fn answer_incarnation_request(
    frame: &Frame<'_>,
    incarnations: Option<&mut Incarnations>,
    scheduler: Option<&Schedulers>,
    is_owner: RequestOutcome,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let Some(incarnations) = incarnations else {
        return refuse(Refusal::Unknown, "incarnations are handed out by thread 0 of a server");
    };
    let AllocateFrame { floor, look } = AllocateFrame::decode(&frame.head)?;
    if floor >= INCARNATION_NAMED_MAX {
        let text = format!("an incarnation above {floor}: incarnations are below {INCARNATION_NAMED_MAX}");
        return refuse(Refusal::Malformed, text);
    }
    // Space for the answer comes first: a number that is handed out must reach the worker.
    transmit.reserve(0).ok_or(Full)?;
    let known_to_jobs = scheduler.map_or(0, Schedulers::highest_incarnation);
    let incarnation = match look {
        true => incarnations.highest().max(known_to_jobs),
        _ if incarnations.looks_only => {
            let text = "this is a scheduler, which hands out no incarnations: name the servers in --ps-hosts";
            return refuse(Refusal::Mismatch, text);
        }
        _ if is_owner.is_err() => return is_owner,
        _ => match incarnations.allocate(floor.max(known_to_jobs)) {
            Ok(number) => number,
            Err(error @ CounterError::Exhausted(_)) => return refuse(Refusal::Limit, error.to_string()),
            Err(error) => return refuse(Refusal::NoSpace, error.to_string()),
        },
    };
    let hands_out = !incarnations.looks_only && (is_owner.is_ok() || !look);
    let answer = AllocatedFrame { incarnation, hands_out };
    transmit.commit(answer.encode(frame.head.id), 0);
    Ok(())
}
