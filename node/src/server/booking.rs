//! What is asked of the scheduler.

use super::bulk::{Handled, Stop, refuse};
use super::tables;
use crate::control;
use crate::error::Refusal;
use crate::limits::PLAN_BYTES_MAX;
use crate::message;
use crate::scheduler::{AskV1, Scheduler};
use gannet_transport::{Frame, Full, Transmit};
use std::time::{Duration, SystemTime};

/// Answers a request to the scheduler, which is in thread 0.
pub(super) fn answer(
    frame: &Frame<'_>,
    scheduler: Option<&mut Scheduler>,
    session: u32,
    now: Duration,
    transmit: &mut Transmit,
) -> Handled {
    let Some(scheduler) = scheduler else {
        return refuse(Refusal::Unknown, "the scheduler is in thread 0 of a server");
    };
    if frame.payload.len() > PLAN_BYTES_MAX {
        let bytes = frame.payload.len();
        return refuse(
            Refusal::Limit,
            format!("{bytes} bytes for the scheduler; {PLAN_BYTES_MAX} are possible"),
        );
    }
    let ask = match control::open::<AskV1>(frame.payload) {
        Ok(ask) => ask,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    // Room for the answer first: what is given out is told.
    transmit.reserve(0).ok_or(Full)?;
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let told = scheduler.answer(ask, session, now, wall.as_nanos() as u64);
    let told = told.map_err(|(refusal, text)| Stop::Refused(refusal, text))?;
    tables::answer(frame, message::BOOKED, &control::seal(&told), transmit)
}
