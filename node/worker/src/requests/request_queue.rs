//! The requests of one peer: the posted ones, which wait for their replies, and those that wait for credit.
//!
//! ```text
//! queue:  | posted | not yet posted |
//! ```

use crate::counters::WorkerCounters;
use crate::limits::{BATCHED_PULL_BYTES, BATCHED_PULLS_MAX, BUSY_REQUESTS, PING_TIME};
use crate::requests::ids::Request;
use crate::requests::in_flight::{InFlight, InFlightOwner};
use gannet_transport::{Head, Link, Stream};
use gannet_wire::frames;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{RefusedFrame, WelcomeFrame};
use gannet_wire::frames::sync::FenceFrame;
use std::collections::VecDeque;
use std::time::Duration;

impl Credit {
    /// What a welcome grants; 0 means no limit.
    pub(crate) fn of(grant: WelcomeFrame) -> Credit {
        let WelcomeFrame { credit_requests: frames, credit_bytes: bytes, silence_ms, lease_ms } = grant;
        let unless_none = |n: u64| if n == 0 { u64::MAX } else { n };
        let third = Duration::from_millis(unless_none(silence_ms) / 3);
        Credit {
            frames: usize::try_from(unless_none(frames)).unwrap_or(usize::MAX),
            bytes: unless_none(bytes),
            ping_after: third.min(PING_TIME),
            lease: (lease_ms > 0).then(|| Duration::from_millis(lease_ms)),
        }
    }
}

/// What the server lets this worker have under way on a link.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Credit {
    pub(crate) frames: usize,
    /// Bytes of requests and of their replies.
    pub(crate) bytes: u64,
    /// The worker pings over a link that has been silent for this long.
    pub(crate) ping_after: Duration,
    /// The time of the leases by which the server owns its shards.
    pub(crate) lease: Option<Duration>,
}

/// The queue of one peer's requests. A request leaves it when its reply has come.
#[derive(Default)]
pub(crate) struct RequestQueue {
    pub(crate) queue: VecDeque<Request>,
    /// Requests at the front of the queue that have been handed to the link.
    pub(crate) posted: usize,
    /// Bytes of the posted requests, replies included.
    posted_bytes: u64,
    /// Ids of the posted requests whose payload the link has not sent completely.
    pub(crate) unsent: VecDeque<u64>,
    pub(crate) credit: Credit,
    /// The credit is used up, and a request waits for it.
    short: bool,
}

impl RequestQueue {
    /// Whether the newest request, a pull, may wait for others: the server's thread has enough to do, and one system
    /// call then sends them all.
    pub(crate) fn may_wait(&self) -> bool {
        let unposted = self.queue.len() - self.posted;
        let small = self.queue.back().is_some_and(|request| request.bytes <= BATCHED_PULL_BYTES);
        small && self.posted >= BUSY_REQUESTS && unposted < BATCHED_PULLS_MAX
    }

    /// Lends the memory of the requests to their link.
    pub(crate) fn owner<'a>(&'a mut self, flights: &'a mut InFlight) -> InFlightOwner<'a> {
        InFlightOwner { flights, queue: &self.queue, unsent: &mut self.unsent }
    }

    /// Posts as many requests as the credit allows, and sends them. `true`: the link accepted bytes. `tables` are the
    /// server's numbers of the worker's tables.
    pub(crate) fn post<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        tables: &[u32],
        flights: &mut InFlight,
        counters: &WorkerCounters,
    ) -> Result<bool, gannet_transport::LinkError> {
        let mut moved = false;
        loop {
            while self.posted < self.queue.len() {
                let request = self.queue[self.posted];
                let sum = self.posted_bytes + u64::from(request.bytes);
                if self.posted > 0 && (self.posted >= self.credit.frames || sum > self.credit.bytes) {
                    counters.credit_waits.add(u64::from(!std::mem::replace(&mut self.short, true)));
                    break;
                }
                let (head, bytes) =
                    flights.head(request, |table| tables.get(table).copied().unwrap_or(u32::MAX));
                if link.transmit().post(head, bytes, request.id(), &self.owner(flights)).is_err() {
                    break;
                }
                if bytes > 0 {
                    self.unsent.push_back(request.id());
                }
                (self.posted, self.posted_bytes, self.short) = (self.posted + 1, sum, false);
                counters.frames_sent.add(1);
                counters.bytes_sent.add(bytes as u64);
            }
            if !link.can_send() {
                return Ok(moved);
            }
            moved = true;
            // A link that has sent everything may have room for more requests.
            if !link.flush(&mut self.owner(flights))? || self.posted == self.queue.len() {
                return Ok(moved);
            }
        }
    }

    /// Which of the posted requests this reply answers. Replies come in the order of the requests. But with
    /// asynchronous replication the acknowledgements of pushes and clocks, in their order, come later than other
    /// replies. A refusal may come at any time. `None`: the reply breaks that.
    pub(crate) fn answered_by(&self, reply: &Head, flights: &InFlight) -> Option<usize> {
        let at = self.queue.iter().take(self.posted).position(|request| request.id() == reply.id)?;
        let is_apart = |at: usize| flights.kind(self.queue[at].index).is_some_and(frames::is_acknowledged);
        let is_next = || (0..at).all(|before| is_apart(before) != is_apart(at));
        (reply.kind == RefusedFrame::KIND || is_next()).then_some(at)
    }

    /// Removes a posted request: its reply has come.
    pub(crate) fn finish(&mut self, at: usize) {
        if let Some(request) = self.queue.remove(at) {
            self.posted_bytes -= u64::from(request.bytes);
        }
        self.posted -= 1;
    }

    /// The link is lost. No request is posted any longer. Requests that concern only that link end here.
    pub(crate) fn lose_link(&mut self, flights: &mut InFlight) {
        (self.posted, self.posted_bytes, self.short) = (0, 0, false);
        self.unsent.clear();
        self.queue.retain(|request| {
            let of_this_link = flights.kind(request.index).is_some_and(frames::is_of_link);
            if of_this_link {
                flights.take(request.index);
            }
            !of_this_link
        });
    }

    /// Sorts the queue into the order in which a new link must send it: fences, then pushes and the clocks that end
    /// their steps, then the other requests.
    pub(crate) fn reorder(&mut self, flights: &InFlight) {
        let place = |request: &Request| match flights.kind(request.index) {
            Some(FenceFrame::KIND) => 0,
            Some(kind) if frames::is_ordered(kind) => 1,
            _ => 2,
        };
        self.queue.make_contiguous().sort_by_key(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::in_flight::ControlInFlight;
    use crate::requests::in_flight::RequestWork;
    use gannet_wire::frames::any_head;
    use gannet_wire::frames::session::PingFrame;
    use gannet_wire::frames::sync::TickFrame;
    use gannet_wire::frames::unsent::UnsentFrame;

    /// A server that answers in another order than it must is not believed: rows would land at the wrong place, and a
    /// push would count as acknowledged that is not.
    #[test]
    fn acknowledgements_come_in_their_order_and_so_do_other_replies() {
        let (mut flights, mut requests) = (InFlight::new(Default::default()), RequestQueue::default());
        let (tick, ping) = (TickFrame { table: 0, clock: 1, skip: false }, PingFrame {});
        for is_tick in [true, false, true, false, false] {
            let frame = if is_tick { UnsentFrame::new(&tick) } else { UnsentFrame::new(&ping) };
            let control = RequestWork::Control(ControlInFlight { frame, ..ControlInFlight::default() });
            let index = flights.add(control, 1, 0, Duration::ZERO).index;
            requests.queue.push_back(Request { index, chunk: 0, push: false, bytes: 0 });
        }
        requests.posted = 4;
        let ids: Vec<u64> = requests.queue.iter().map(Request::id).collect();
        let answered = |requests: &RequestQueue, kind: u16, of: usize| {
            requests.answered_by(&any_head(kind, 0, ids[of], [0; 4]), &flights)
        };
        let by = |requests: &RequestQueue, of: usize| answered(requests, 0, of);
        let all: Vec<_> = (0..5).map(|of| by(&requests, of)).collect();
        assert_eq!(all, [Some(0), Some(1), None, None, None], "the last is not posted");
        assert_eq!(answered(&requests, RefusedFrame::KIND, 2), Some(2));
        requests.finish(1);
        assert_eq!((by(&requests, 3), by(&requests, 2)), (Some(2), None));
        requests.finish(0);
        assert_eq!((by(&requests, 2), by(&requests, 0)), (Some(0), None));
    }
}
