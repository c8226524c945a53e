//! Synchronous steps on a link: what the open step has pushed to its peer, and for whom its requests wait.

use crate::error::WorkerError;
use crate::limits::STEP_CREDIT_MIN;
use crate::links::peer::Peer;
use crate::requests::in_flight::{InFlight, RequestWork};
use crate::tables::table::Tables;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::TickFrame;

/// A worker for which a request waits, as its server last reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AwaitedWorker {
    /// The table of the worker that waits.
    pub(crate) table: usize,
    pub(crate) rank: u32,
    pub(crate) pusher: u64,
    pub(crate) incarnation: u64,
}

impl<S> Peer<S> {
    /// Counts a push of the open step. Returns what the step has pushed, if that is more than half of the credit.
    pub(crate) fn count_step_push(&mut self, bytes: u64) -> Option<(usize, u64)> {
        let (pushed, credit) = (&mut self.steps.pushed, &self.requests.credit);
        *pushed = (pushed.0 + 1, pushed.1 + bytes);
        let over = pushed.0 > credit.frames / 2 || pushed.1 > credit.bytes / 2;
        (over && self.link.is_some() && pushed.0 > 1).then_some(*pushed)
    }

    /// Counts again which requests of the open step go over a new link. A server acknowledges a step only when it has
    /// all of it, so a step that exceeds the link's credit would wait for ever. That can happen when one thread now
    /// owns the shards of several.
    pub(crate) fn recount_step(
        &mut self,
        tables: &Tables,
        flights: &mut InFlight,
    ) -> Result<(), WorkerError> {
        self.check_credit(tables)?;
        let mut step: (usize, u64) = (0, 0);
        let credit = &self.requests.credit;
        for request in &self.requests.queue {
            match flights.at(request.index).map(|flight| &flight.work) {
                Some(RequestWork::Push(push)) if tables[push.laid.table()].is_bsp() => {
                    step = (step.0 + 1, step.1 + u64::from(request.bytes));
                    if step.0 > 1 && (step.0 >= credit.frames || step.1 > credit.bytes) {
                        return Err(too_large(step.0, step.1));
                    }
                }
                Some(RequestWork::Control(control)) if control.kind() == TickFrame::KIND => step = (0, 0),
                _ => {}
            }
        }
        self.steps.pushed = if tables.is_in_step() { step } else { (0, 0) };
        Ok(())
    }

    /// Refuses a link on which no synchronous step can be made.
    pub(crate) fn check_credit(&self, tables: &Tables) -> Result<(), WorkerError> {
        let frames = self.requests.credit.frames;
        if self.link.is_some() && frames < STEP_CREDIT_MIN && tables.is_any_bsp() {
            let name = &self.name;
            return Err(WorkerError::Call(format!(
                "a job in synchronous steps (--sync bsp) needs {STEP_CREDIT_MIN} requests in flight, and {name} allows \
                 {frames}: start it with --credit-requests {STEP_CREDIT_MIN} or more"
            )));
        }
        Ok(())
    }

    /// For whom the next reply waits. A worker whose link was lost may wait for itself, until a server has its last
    /// step. It asks nobody whether it is dead.
    pub(crate) fn awaited(&self, tables: &Tables) -> Option<AwaitedWorker> {
        let waits = self.steps.waits.as_ref()?;
        let table = self.session.tables.iter().position(|&table| table == waits.table)?;
        let own = tables[table].group.as_ref().map(|group| group.sync.rank);
        let (rank, pusher, incarnation) = (waits.rank, waits.pusher, waits.incarnation);
        (own != Some(rank)).then_some(AwaitedWorker { table, rank, pusher, incarnation })
    }
}

/// The error of a step with more in flight than the credit allows.
pub(crate) fn too_large(requests: usize, bytes: u64) -> WorkerError {
    WorkerError::Call(format!(
        "a synchronous step pushes {requests} requests of {bytes} bytes to one server thread, which is more than half \
         of what may be under way: a smaller --batch, more servers or threads, or a larger --credit-requests of theirs helps"
    ))
}
