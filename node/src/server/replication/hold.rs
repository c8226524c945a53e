//! Holds the frames of a session back until the backups have what was told before them.

use super::ReplicationGate;
use gannet_transport::Transmit;
use std::collections::VecDeque;

/// The frames of a session that wait for backups.
#[derive(Default)]
pub(in crate::server) struct ReplyHold {
    /// Places in the transmit queue, each with how many commands must be acknowledged before the frames up to there
    /// leave. Both ascend.
    marks: VecDeque<(u64, u64)>,
    /// The frames up to this place may leave.
    free: u64,
}

impl ReplyHold {
    /// Frames wait.
    pub(in crate::server) fn is_holding(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether some of the frames that wait may leave now.
    pub(in crate::server) fn is_free(&self, gate: ReplicationGate) -> bool {
        !gate.is_silent && self.marks.front().is_some_and(|&(_, of)| of <= gate.acknowledged)
    }

    /// Limits what the queue sends to what may leave now. The session calls it before each flush, so all frames that
    /// it has queued since the flush before are held until everything is acknowledged that was told until now.
    pub(in crate::server) fn limit(&mut self, transmit: &mut Transmit, gate: ReplicationGate) {
        let ReplicationGate { told, acknowledged, is_silent } = gate;
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
