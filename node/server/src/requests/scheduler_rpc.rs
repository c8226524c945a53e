//! Requests to the scheduler, and for the data that it serves.

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use crate::peers::pusher::Pusher;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::scheduler::{
    BookFrame, BookedFrame, FedFrame, FeedFrame, JobTableFrame, JobTableNotedFrame,
};
use gannet_wire::limits::{FEED_BYTES_MAX, PLAN_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::data::DataRequest;
use gannet_wire::messages::jobs::{JobTableV3, SchedulerRequestV3};
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Answers a request to the scheduler, which is in thread 0.
pub(crate) fn answer_scheduler_request(
    frame: &Frame<'_>,
    scheduler: Option<&mut Schedulers>,
    session: u32,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    BookFrame::decode(&frame.head)?;
    let Some(scheduler) = scheduler else {
        return refuse(Refusal::Unknown, "the scheduler is in thread 0 of a server");
    };
    if frame.payload.len() > PLAN_BYTES_MAX {
        let bytes = frame.payload.len();
        return refuse(
            Refusal::Limit,
            format!("a request of {bytes} bytes to the scheduler: the limit is {PLAN_BYTES_MAX}"),
        );
    }
    let request = match control::open_as::<SchedulerRequestV3>(3, frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    // Space for the answer comes first: what the scheduler hands out must reach the worker.
    transmit.reserve(0).ok_or(Full)?;
    let reply = scheduler.answer(request, session, now);
    let reply = reply.map_err(|(refusal, text)| RequestFailure::Refused(refusal, text))?;
    send_answer(frame, BookedFrame {}, &control::seal(&reply), transmit)
}

/// Notes which rows a job's table has.
pub(crate) fn note_table(
    frame: &Frame<'_>,
    scheduler: Option<&mut Schedulers>,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    JobTableFrame::decode(&frame.head)?;
    let Some(scheduler) = scheduler else {
        return refuse(Refusal::Unknown, "the scheduler is in thread 0 of a server");
    };
    let request = match control::open_as::<JobTableV3>(3, frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    transmit.reserve(0).ok_or(Full)?;
    scheduler.note_table(request, now).map_err(|(refusal, text)| RequestFailure::Refused(refusal, text))?;
    transmit.commit(JobTableNotedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// Answers a request for bytes of the data. They go from the file straight into the out queue.
pub(crate) fn serve_data(
    frame: &Frame<'_>,
    scheduler: Option<&mut Schedulers>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    FeedFrame::decode(&frame.head)?;
    let Some(scheduler) = scheduler else {
        return refuse(Refusal::Unknown, "the scheduler is in thread 0 of a server");
    };
    let refused = |(refusal, text)| RequestFailure::Refused(refusal, text);
    let Some(request) = DataRequest::of(frame.payload) else {
        return refuse(Refusal::Malformed, "the payload is not a request for bytes of the data");
    };
    let data_server = scheduler.feeder().map_err(refused)?;
    if request == DataRequest::Offer {
        return send_answer(frame, FedFrame::default(), &control::seal(&data_server.offer()), transmit);
    }
    if request.bytes() > FEED_BYTES_MAX {
        let bytes = request.bytes();
        return refuse(
            Refusal::Limit,
            format!("a request for {bytes} bytes of the data: the limit is {FEED_BYTES_MAX}"),
        );
    }
    // A session asks only for its own worker, whom its hello named. The worker's rank is its pusher number less 1.
    let rank = pusher.pusher.checked_sub(1).and_then(|rank| u32::try_from(rank).ok());
    let Some(rank) = rank else {
        return refuse(Refusal::Unknown, "this session does not belong to a worker");
    };
    let incarnation = WorkerIncarnation { rank, incarnation: pusher.incarnation };
    let out = transmit.reserve(request.bytes()).ok_or(Full)?;
    let sent = scheduler.feed(incarnation, request, out).map_err(refused)?;
    transmit.commit(sent.encode(frame.head.id), sent.bytes.0);
    Ok(())
}
