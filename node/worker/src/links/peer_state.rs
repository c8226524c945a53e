//! The parts of a peer's state: its session, its clocks, the health of its link, and the numbers of its keysets.

use crate::limits::BACKOFF;
use gannet_wire::limits::KEYSETS_MAX;
use gannet_wire::messages::control::WaitsV2;
use std::time::Duration;

/// The session that the server opened for the current link, or for the last one.
#[derive(Default)]
pub(crate) struct PeerSession {
    pub(crate) number: u32,
    /// The incarnation of the server.
    pub(crate) incarnation: u64,
    /// Counts this peer's links from 1.
    pub(crate) epoch: u64,
    /// The transport of the link; empty before the first one.
    pub(crate) transport: &'static str,
    /// The server's number of each of the worker's tables.
    pub(crate) tables: Vec<u32>,
}

/// Where the worker and this peer are in synchronous steps.
#[derive(Default)]
pub(crate) struct PeerSteps {
    /// By table: the worker's clock that this peer has acknowledged, and how many workers had left by then.
    pub(crate) clocks: Vec<(u64, u64)>,
    /// Requests and bytes pushed to this peer since then.
    pub(crate) pushed: (usize, u64),
    /// The workers for which the peer's next reply waits, as its last report said.
    pub(crate) waits: Option<WaitsV2>,
}

/// When the link last worked, and when the worker tries again.
pub(crate) struct PeerHealth {
    /// When the last reply came, or the first of the requests that wait was made.
    pub(crate) good_at: Duration,
    pub(crate) linked_at: Duration,
    /// When it last replied, or reported whom a request waits for. Zero: never.
    pub(crate) heard_at: Duration,
    /// When the server came back with another number of threads, for the first time since it was heard of. Thread 0 has
    /// it.
    pub(crate) other_threads_at: Option<Duration>,
    /// When the worker next tries to connect.
    pub(crate) attempt_at: Duration,
    pub(crate) backoff: Duration,
    /// Attempts to connect since there was a link.
    pub(crate) attempts: usize,
    /// The last failure; empty once a reply has come.
    pub(crate) trouble: String,
    /// The last link ended because the server refused a request for now. No reply has come since.
    pub(crate) refused_for_now: bool,
    pub(crate) wait_logged: bool,
    /// When the log last reported a lost link.
    pub(crate) loss_logged: Option<Duration>,
}

impl PeerHealth {
    pub(crate) fn new(now: Duration) -> PeerHealth {
        PeerHealth {
            good_at: now,
            linked_at: now,
            heard_at: Duration::ZERO,
            other_threads_at: None,
            attempt_at: now,
            backoff: BACKOFF.0,
            attempts: 0,
            trouble: String::from("no connection yet"),
            refused_for_now: false,
            wait_logged: false,
            loss_logged: None,
        }
    }

    /// The peer is at work: it replied, or it reported whom a request waits for.
    pub(crate) fn note_report(&mut self, now: Duration) {
        (self.good_at, self.heard_at, self.wait_logged) = (now, now, false);
    }

    /// The last link was made while requests waited, and it has answered none of them. A greeting alone is no progress.
    pub(crate) fn answered_nothing(&self) -> bool {
        self.linked_at > self.good_at
    }

    /// A reply has come.
    pub(crate) fn note_reply(&mut self, now: Duration) {
        self.note_report(now);
        self.trouble.clear();
        self.refused_for_now = false;
        self.backoff = BACKOFF.0;
    }
}

/// The numbers under which a server keeps the keysets of one link.
#[derive(Default)]
pub(crate) struct KeysetNumbers {
    free: Vec<u32>,
    last: u32,
}

impl KeysetNumbers {
    /// A free number, from 1; 0 when all are in use.
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        if self.last as usize == KEYSETS_MAX {
            return 0;
        }
        self.last += 1;
        self.last
    }

    /// Returns a number; 0 is none.
    pub(crate) fn release(&mut self, number: u32) {
        if number != 0 {
            self.free.push(number);
        }
    }
}
