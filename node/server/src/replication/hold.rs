//! Holds the frames of a session back until the backups have what was told before them.
//!
//! With synchronous replication that is each frame, in order. With asynchronous replication rows leave at once, and
//! acknowledgements of pushes and clocks are kept apart until they may leave.

use crate::replication::gate::ReplicationGate;
use gannet_transport::{Full, Head, Transmit};
use gannet_wire::frames::bulk::AckFrame;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::TickedFrame;
use std::collections::VecDeque;

/// The frames of a session that wait for backups.
#[derive(Default)]
pub(crate) struct ReplyHold {
    /// Places in the transmit queue, each with how many commands must be acknowledged before the frames up to there
    /// leave. Both ascend.
    marks: VecDeque<(u64, u64)>,
    /// The frames up to this place may leave.
    free: u64,
}

impl ReplyHold {
    /// Frames wait.
    pub(crate) fn is_holding(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether some of the frames that wait may leave now.
    pub(crate) fn is_free(&self, gate: ReplicationGate) -> bool {
        !gate.is_silent && self.marks.front().is_some_and(|&(_, of)| of <= gate.acknowledged)
    }

    /// Limits what the queue sends to what may leave now. The session calls it before each flush, so all frames that
    /// it has queued since the flush before are held until everything is acknowledged that was told until now.
    pub(crate) fn limit(&mut self, transmit: &mut Transmit, gate: ReplicationGate) {
        let ReplicationGate { acknowledged, is_silent, .. } = gate;
        // Frames behind others wait for them.
        let told = gate.told.max(self.marks.back().map_or(0, |&(_, of)| of));
        let place = transmit.place();
        if acknowledged >= told && !is_silent && self.marks.is_empty() {
            self.free = place;
            return;
        }
        match self.marks.back_mut() {
            Some((last, of)) if *of == told => *last = place,
            Some((last, _)) if *last == place => {}
            _ => self.marks.push_back((place, told)),
        }
        while let Some(&(place, of)) = self.marks.front()
            && of <= acknowledged
            && !is_silent
        {
            self.free = place;
            self.marks.pop_front();
        }
        transmit.limit(if self.marks.is_empty() { u64::MAX } else { self.free });
    }
}

/// The acknowledgements of a session with asynchronous replication that wait for backups. They leave in their order,
/// and later than the answers to requests behind them.
#[derive(Default)]
pub(crate) struct HeldAcks {
    /// Each with how many commands must be acknowledged before it leaves.
    acks: VecDeque<(u64, Head)>,
    /// The transmit queue has no room for the next.
    has_no_room: bool,
}

impl HeldAcks {
    /// Whether a reply is of a kind that is kept here.
    pub(crate) fn keeps(reply: &Head) -> bool {
        matches!(reply.kind, AckFrame::KIND | TickedFrame::KIND)
    }

    /// Keeps a reply that depends on this many commands.
    pub(crate) fn keep(&mut self, told: u64, reply: Head) {
        self.acks.push_back((told, reply));
    }

    pub(crate) fn len(&self) -> usize {
        self.acks.len()
    }

    /// Whether some of them may leave now, and there is room.
    pub(crate) fn is_free(&self, gate: ReplicationGate) -> bool {
        !self.has_no_room && self.may_leave(gate)
    }

    fn may_leave(&self, gate: ReplicationGate) -> bool {
        !gate.is_silent && self.acks.front().is_some_and(|&(told, _)| told <= gate.acknowledged)
    }

    /// Queues what may leave now. Returns whether the queue is full.
    pub(crate) fn release(&mut self, transmit: &mut Transmit, gate: ReplicationGate) -> bool {
        self.has_no_room = false;
        while self.may_leave(gate)
            && let Some(&(_, reply)) = self.acks.front()
        {
            match transmit.send(reply) {
                Ok(()) => self.acks.pop_front(),
                Err(Full) => {
                    self.has_no_room = true;
                    break;
                }
            };
        }
        self.has_no_room
    }
}
