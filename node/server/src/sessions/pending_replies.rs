//! The replies of a session that wait for other workers: to pushes whose step is not applied, and to requests that
//! cannot be answered yet.

use crate::limits::{ASIDE_BYTES_SPARE, WAITS_REPORT_EVERY};
use crate::peers::kinds::leaves_at_once;
use crate::peers::memory::SessionShare;
use crate::peers::outcome::RequestFailure;
use crate::peers::pusher::Pusher;
use crate::replication::hold::HeldAcks;
use crate::requests::steps::pushes::{count_late, is_past, is_synchronous, outcome};
use crate::server_tables::ServerTables;
use crate::sessions::send::{answer_refused, send_reply};
use crate::steps::step_sums::KeepOutcome;
use bytemuck::cast_slice_mut;
use gannet_core::Applied;
use gannet_transport::{Frame, Head, Transmit};
use gannet_wire::frames::bulk::{AckFrame, PullFrame, PushFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::{LeaveFrame, TickFrame};
use gannet_wire::refusal::Refusal;
use std::collections::VecDeque;
use std::time::Duration;

/// A reply that is due, or will be. Replies go out in the order of their requests.
pub(crate) enum PendingReply {
    /// The reply to a push that waits for its step.
    Push { id: u64, table: u32, step: u64, rows: u32, dropped: Applied },
    /// The reply to a request behind such a push.
    Ready(Head),
    /// The refusal of a request behind such a push, with the request's head.
    Refused { head: Head, refusal: Refusal, text: String },
    /// A request that waits for other workers over this table, or behind one that does. Later requests may still be
    /// read, except those that change rows and must stay behind a pull.
    Request { head: Head, payload: Vec<u64>, bytes: usize, table: u32, memory: SessionShare },
}

/// What became of a pending reply.
pub(crate) enum ReplyOutcome {
    Given,
    /// Its step is not applied yet.
    Waits,
    /// The out queue has no space for it.
    NoRoom,
}

impl PendingReply {
    /// Copies a request that must wait out of the receive buffer, so that the frames behind it can be read: it may wait
    /// for a fence among them. Returns `None` for pushes, ticks and leaves. Also returns `None` if there is no memory:
    /// neither in `share`, nor in the few bytes that each session may use besides. The request then stays in the
    /// receive buffer. `pending`: the replies that already wait.
    pub(crate) fn request(
        frame: &Frame<'_>,
        table: u32,
        mut share: SessionShare,
        pending: &VecDeque<PendingReply>,
    ) -> Option<PendingReply> {
        let (head, bytes) = (frame.head, frame.payload.len());
        let copied_bytes = || pending.iter().map(PendingReply::spare_bytes).sum::<usize>() + bytes;
        if keeps_its_place(head.kind) || !(share.resize(bytes) || copied_bytes() <= ASIDE_BYTES_SPARE) {
            return None;
        }
        let mut payload = vec![0u64; bytes.div_ceil(8)];
        cast_slice_mut(&mut payload)[..bytes].copy_from_slice(frame.payload);
        Some(PendingReply::Request { head, payload, bytes, table, memory: share })
    }

    /// Bytes of a copied request that no budget counts.
    fn spare_bytes(&self) -> usize {
        match self {
            PendingReply::Request { bytes, memory, .. } if memory.bytes() == 0 => *bytes,
            _ => 0,
        }
    }

    /// The table over which it waits, and its request's id.
    pub(crate) fn waits_for(&self) -> Option<(u32, u64)> {
        match self {
            PendingReply::Push { id, table, .. } => Some((*table, *id)),
            PendingReply::Request { head, table, .. } => Some((*table, head.id)),
            _ => None,
        }
    }

    /// Whether the reply waits for backups with the answers to other requests, also with asynchronous replication.
    pub(crate) fn waits_for_backups(&self) -> bool {
        match self {
            PendingReply::Ready(reply) => !HeldAcks::keeps(reply),
            PendingReply::Request { head, .. } => !leaves_at_once(head.kind),
            PendingReply::Push { .. } | PendingReply::Refused { .. } => false,
        }
    }

    /// Sends the reply if it is due. The session itself answers a request that waits.
    pub(crate) fn settle(
        &self,
        tables: &ServerTables,
        pusher: &mut Pusher,
        transmit: &mut Transmit,
        acks: &mut HeldAcks,
    ) -> ReplyOutcome {
        let mut send = |reply: Head| send_reply(reply, tables, transmit, acks).is_ok();
        let sent = match self {
            PendingReply::Request { .. } => return ReplyOutcome::Waits,
            PendingReply::Ready(head) => send(*head),
            PendingReply::Refused { head, refusal, text } => {
                answer_refused(head.kind, head.id, *refusal, text.clone(), transmit).is_ok()
            }
            &PendingReply::Push { id, table, step, rows, dropped: none } => {
                let left = rows - none.not_finite - none.refused;
                match outcome(tables, table, step, pusher) {
                    KeepOutcome::Waits => return ReplyOutcome::Waits,
                    KeepOutcome::Applied => {
                        send(AckFrame::new(Applied { applied: left, ..none }, 0).encode(id))
                    }
                    KeepOutcome::Late => {
                        let sent = send(AckFrame::new(none, left).encode(id));
                        count_late(tables, table, if sent { left } else { 0 });
                        sent
                    }
                    KeepOutcome::Refused(refusal, text) => {
                        pusher.blocked |= refusal.asks_for_resend();
                        answer_refused(PushFrame::KIND, id, refusal, text, transmit).is_ok()
                    }
                }
            }
        };
        if sent { ReplyOutcome::Given } else { ReplyOutcome::NoRoom }
    }
}

/// A request behind replies that wait for other workers waits too, unless those replies wait for something behind it.
pub(crate) fn pending_outcome(
    pending: &VecDeque<PendingReply>,
    tables: &ServerTables,
    pusher: &Pusher,
) -> RequestFailure {
    let pushes = pending.iter().filter_map(|pending| match pending {
        PendingReply::Push { table, step, .. } => Some((*table, *step)),
        _ => None,
    });
    let mut unfinished = pushes.filter(|&(table, step)| !is_past(tables, table, step, pusher));
    match (unfinished.next(), pending.iter().find_map(PendingReply::waits_for)) {
        (Some((_, step)), _) => RequestFailure::Refused(
            Refusal::Malformed,
            format!(
                "this worker never announced step {step}: a request cannot wait for the pushes of that step"
            ),
        ),
        (None, Some((table, _))) => RequestFailure::Parked(table),
        (None, None) => RequestFailure::Full,
    }
}

/// Refuses a request of a synchronous step if there is no memory for it while it waits. It must not stay in the receive
/// buffer: it may wait for a fence that comes behind it.
pub(crate) fn no_memory(tables: &ServerTables, table: u32, kind: u16) -> Option<RequestFailure> {
    let refused = !keeps_its_place(kind) && is_synchronous(tables, table);
    refused.then(|| {
        let text = "there is no memory for the keys of pulls that wait for other workers: start the server with a \
                    larger --keyset-memory";
        RequestFailure::Refused(Refusal::Limit, text.into())
    })
}

/// Requests that stay in the receive buffer while they wait: pushes, ticks and leaves.
fn keeps_its_place(kind: u16) -> bool {
    matches!(kind, PushFrame::KIND | TickFrame::KIND | LeaveFrame::KIND)
}

/// The table over which a pull waits, if this kind of request must stay behind the pull.
pub(crate) fn before(kind: u16, pending: &VecDeque<PendingReply>) -> Option<u32> {
    let pull = |pending: &PendingReply| match pending {
        PendingReply::Request { head, table, .. } if head.kind == PullFrame::KIND => Some(*table),
        _ => None,
    };
    pending.iter().find_map(pull).filter(|_| keeps_its_place(kind))
}

/// A request that waits.
pub(crate) struct WaitingRequest {
    pub(crate) table: u32,
    pub(crate) id: u64,
    pub(crate) since: Duration,
    /// When the server last reported to the peer that the request waits.
    pub(crate) last_report: Option<Duration>,
}

impl WaitingRequest {
    /// Whether to tell the peer now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_report.unwrap_or(self.since)) >= WAITS_REPORT_EVERY
    }
}
