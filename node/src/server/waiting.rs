//! What of a session waits for other workers: answers that come when a step has been applied, a request that stays where it is.

use super::bulk::{Pusher, Stop};
use super::dispatch::answer_refused;
use super::memory::Share;
use super::sums::Outcome;
use super::tables::Tables;
use crate::error::Refusal;
use crate::limits::WAITS_TOLD;
use crate::message;
use bytemuck::cast_slice;
use gannet_core::Applied;
use gannet_transport::{Frame, Head, Transmit};
use std::collections::VecDeque;
use std::time::Duration;

/// An answer that is due, or will be; they go in the order of their requests.
pub(super) enum Owed {
    /// To a push that is kept for its step.
    Push { id: u64, table: u32, step: u64, rows: u32, not_finite: u32 },
    /// To what came behind one.
    Ready(Head),
    /// A refusal of what came behind one; its head.
    Refused { head: Head, refusal: Refusal, text: String },
    /// A pull that waits for other workers, over this table. What comes behind it may still be heard, unless it changes rows.
    Pull { head: Head, keys: Vec<u64>, table: u32, _memory: Share },
}

/// What became of an answer.
pub(super) enum Settled {
    Given,
    /// Its step is not applied yet.
    Waits,
    /// There is no room for it.
    NoRoom,
}

impl Owed {
    /// A pull that must wait, out of the receive buffer, so that what comes behind it can be heard: a fence may be what it waits
    /// for. `None` for other requests, and when there is no memory for it (`share`): it then stays where it is.
    pub(super) fn pull(frame: &Frame<'_>, table: u32, mut share: Share) -> Option<Owed> {
        if frame.head.kind != message::PULL || !share.resize(frame.payload.len()) {
            return None;
        }
        let keys = cast_slice(frame.payload).to_vec();
        Some(Owed::Pull { head: frame.head, keys, table, _memory: share })
    }

    /// The table whose step it waits for, and its id.
    pub(super) fn waits_for(&self) -> Option<(u32, u64)> {
        match self {
            Owed::Push { id, table, .. } => Some((*table, *id)),
            Owed::Pull { head, table, .. } => Some((*table, head.id)),
            _ => None,
        }
    }

    /// Gives the answer if it has come due; a pull's is its session's to give.
    pub(super) fn settle(&self, tables: &Tables, pusher: &mut Pusher, transmit: &mut Transmit) -> Settled {
        let sent = match self {
            Owed::Pull { .. } => return Settled::Waits,
            Owed::Ready(head) => transmit.send(*head).is_ok(),
            Owed::Refused { head, refusal, text } => {
                answer_refused(head, *refusal, text.clone(), transmit).is_ok()
            }
            &Owed::Push { id, table, step, rows, not_finite } => {
                let (left, none) = (rows - not_finite, Applied { not_finite, ..Applied::default() });
                match tables.outcome(table, step, pusher) {
                    Outcome::Waits => return Settled::Waits,
                    Outcome::Applied => {
                        transmit.send(message::ack_head(id, Applied { applied: left, ..none }, 0)).is_ok()
                    }
                    Outcome::Late => {
                        let sent = transmit.send(message::ack_head(id, none, left)).is_ok();
                        tables.count_late(table, if sent { left } else { 0 });
                        sent
                    }
                    Outcome::Refused(refusal, text) => {
                        pusher.blocked |= refusal.asks_for_resend();
                        let head = Head::new(message::PUSH, 0, id, [0; 4]);
                        answer_refused(&head, refusal, text, transmit).is_ok()
                    }
                }
            }
        };
        if sent { Settled::Given } else { Settled::NoRoom }
    }
}

/// A request behind answers that wait for other workers waits too, unless they wait for what comes behind it.
pub(super) fn behind(owed: &VecDeque<Owed>, tables: &Tables, pusher: &Pusher) -> Stop {
    let pushes = owed.iter().filter_map(|owed| match owed {
        Owed::Push { table, step, .. } => Some((*table, *step)),
        _ => None,
    });
    let mut open = pushes.filter(|&(table, step)| !tables.is_past(table, step, pusher));
    match (open.next(), owed.iter().find_map(Owed::waits_for)) {
        (Some((_, step)), _) => Stop::Refused(
            Refusal::Malformed,
            format!("a request that would wait for pushes of step {step}, which was not said to be made"),
        ),
        (None, Some((table, _))) => Stop::Parked(table),
        (None, None) => Stop::Full,
    }
}

/// The table over which a pull waits: pushes, and what is said of them, stay behind it.
pub(super) fn pull_of(owed: &VecDeque<Owed>) -> Option<u32> {
    owed.iter().find_map(|owed| match owed {
        Owed::Pull { table, .. } => Some(*table),
        _ => None,
    })
}

/// A request that waits.
pub(super) struct Waiting {
    pub(super) table: u32,
    pub(super) id: u64,
    pub(super) since: Duration,
    /// When its peer was told of that.
    pub(super) told: Option<Duration>,
}

impl Waiting {
    /// Whether its peer is to be told now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.told.unwrap_or(self.since)) >= WAITS_TOLD
    }
}
