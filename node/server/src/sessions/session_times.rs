//! When a session last made progress, and when it has been too slow or silent for too long.

use crate::limits::{FRAME_TIME, FRAME_TIME_PRESSED, STALL_TIME};
use crate::sessions::end::SessionEnd;
use std::sync::Arc;
use std::time::Duration;

/// The times of a session's last progress, on the clock of its thread, and what its peer has left unread since.
pub(crate) struct SessionTimes {
    /// Bytes were received or sent.
    pub(crate) moved: Duration,
    /// Bytes were received.
    pub(crate) received: Duration,
    /// No partial frame was in the receive buffer, or the session handled a frame, or the server caused the delay.
    whole: Duration,
    /// The peer had read every answer of the batch before.
    drained: Duration,
    /// Bytes of the batch of answers that began to wait at `drained` and still wait.
    unsent_bytes: usize,
}

impl SessionTimes {
    pub(crate) fn new(now: Duration) -> SessionTimes {
        SessionTimes { moved: now, received: now, whole: now, drained: now, unsent_bytes: 0 }
    }

    /// Takes the delay since the last turn on the server: it had no memory for this session.
    pub(crate) fn excuse_no_memory(&mut self, now: Duration) {
        (self.whole, self.received) = (now, now);
    }

    /// Takes the delay since the last turn on the server: the peer's request waits for other workers.
    pub(crate) fn excuse_wait(&mut self, now: Duration) {
        (self.received, self.whole, self.moved) = (now, now, now);
    }

    /// The peer cannot read answers that wait for backups.
    pub(crate) fn excuse_hold(&mut self, now: Duration) {
        (self.drained, self.moved) = (now, now);
    }

    /// No partial frame waits for its end, or the session has handled a frame.
    pub(crate) fn note_whole(&mut self, now: Duration) {
        self.whole = now;
    }

    /// Counts a flush that found `before` bytes of answers in the queue and left `left`.
    ///
    /// A slow peer is timed by batches of answers. A batch is all bytes that wait when the batch before has been sent.
    /// Answers that come later do not extend the time of the batch before them.
    pub(crate) fn note_flush(&mut self, before: usize, left: usize, now: Duration) {
        self.unsent_bytes = self.unsent_bytes.saturating_sub(before - left);
        if self.unsent_bytes == 0 {
            (self.unsent_bytes, self.drained) = (left, now);
        }
    }

    /// Why the session must end now, if it must. `partial`: the peer has sent a part of a frame. `unread`: the peer has
    /// not read all answers. `silence`: how long a peer may send nothing. `pressed`: other sessions wait for the memory
    /// that this one holds.
    pub(crate) fn overdue(
        &self,
        peer: &Arc<str>,
        partial: bool,
        unread: bool,
        silence: Duration,
        pressed: bool,
        now: Duration,
    ) -> Option<SessionEnd> {
        let over = |since: Duration, limit: Duration| now.saturating_sub(since) > limit;
        let frame_time = if pressed { FRAME_TIME_PRESSED } else { FRAME_TIME };
        if (partial || unread) && over(self.moved, STALL_TIME) {
            return Some(SessionEnd::Stalled(peer.clone(), STALL_TIME.as_secs()));
        }
        if partial && over(self.whole, frame_time) || unread && over(self.drained, frame_time) {
            return Some(SessionEnd::Stalled(peer.clone(), frame_time.as_secs()));
        }
        over(self.received, silence).then(|| SessionEnd::Silent(peer.clone(), silence.as_secs()))
    }
}
