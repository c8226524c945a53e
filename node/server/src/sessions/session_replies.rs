//! The replies that a session cannot give yet, because their requests wait for other workers.

use crate::peers::pusher::Pusher;
use crate::requests::steps::awaited::waits_message;
use crate::server_tables::ServerTables;
use crate::sessions::pending_replies::{PendingReply, WaitingRequest};
use gannet_transport::Transmit;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::WaitsFrame;
use std::collections::VecDeque;
use std::time::Duration;

/// The pending replies of a session, and the request that waits for other workers.
#[derive(Default)]
pub(crate) struct SessionReplies {
    /// Replies that wait for a step to be applied, and the replies behind them, in the order of their requests.
    pub(crate) pending: VecDeque<PendingReply>,
    /// The request at the front of the receive buffer waits for other workers: its table and id. The session handles
    /// no further frame.
    pub(crate) parked: Option<(u32, u64)>,
    /// The first request that waits for other workers, and since when.
    waiting: Option<WaitingRequest>,
}

impl SessionReplies {
    /// Records which request waits for other workers now, and since when.
    pub(crate) fn note_wait(&mut self, now: Duration) {
        let pending = self.pending.iter().find_map(PendingReply::waits_for);
        self.waiting = match pending.or(self.parked) {
            None => None,
            Some((table, id)) => match self.waiting.take().filter(|waiting| waiting.id == id) {
                None => Some(WaitingRequest { table, id, since: now, last_report: None }),
                same => same,
            },
        };
    }

    /// A request waits for other workers.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The table over which a request waits.
    pub(crate) fn waits_over(&self) -> Option<u32> {
        self.waiting.as_ref().map(|waiting| waiting.table)
    }

    /// Tells the peer, from time to time, whom its request waits for. `true`: the link has something to send.
    pub(crate) fn report_wait(
        &mut self,
        tables: &ServerTables,
        of: &Pusher,
        transmit: &mut Transmit,
        now: Duration,
    ) -> bool {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.is_due(now)) else { return false };
        waiting.last_report = Some(now);
        let Some(payload) = waits_message(tables, waiting.table, of) else { return false };
        transmit.send_copy(WaitsFrame {}.encode(waiting.id), &payload).is_ok()
    }
}
