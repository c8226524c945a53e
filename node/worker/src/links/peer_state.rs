//! The parts of a peer's state: its session, its clocks, the health of its link, and the numbers of its keysets.

use crate::limits::{BACKOFF, BACKOFF_ANSWERED, LINK_STANDS, REPORTS_STAND};
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
    /// When it last replied, or its reports of waits had come over one link for [`REPORTS_STAND`]. Zero: never.
    pub(crate) heard_at: Duration,
    /// When the first and the last report came of whom a request waits for, since the last reply over this link.
    reports: Option<(Duration, Duration)>,
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
            reports: None,
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

    /// The peer has reported whom a request waits for: it is at work as long as this link stands. A link that stands
    /// long shows that it is no server which reports a wait and then breaks each link.
    pub(crate) fn note_report(&mut self, now: Duration) {
        let first = self.reports.map_or(now, |(first, _)| first);
        self.reports = Some((first, now));
        self.wait_logged = false;
        if now.saturating_sub(first) >= REPORTS_STAND {
            (self.good_at, self.heard_at) = (now, now);
        }
    }

    /// When the peer was last at work, as far as this worker knows.
    pub(crate) fn worked_at(&self) -> Duration {
        self.reports.map_or(self.good_at, |(_, last)| last.max(self.good_at))
    }

    /// The link is lost. The time between its reports is no silence of the peer; all other time since the last reply
    /// stays silence.
    pub(crate) fn note_loss(&mut self) {
        if let Some((first, last)) = self.reports.take() {
            self.good_at += last.saturating_sub(first.max(self.good_at));
        }
    }

    /// The worker could hear nobody for this time.
    pub(crate) fn excuse(&mut self, slept: Duration, now: Duration) {
        let later = |at: Duration| now.min(at + slept);
        (self.good_at, self.linked_at) = (later(self.good_at), later(self.linked_at));
        self.heard_at = later(self.heard_at);
        self.reports = self.reports.map(|(first, last)| (later(first), later(last)));
        self.other_threads_at = self.other_threads_at.map(later);
    }

    /// The last link was made while requests waited, and it has answered none of them. A greeting alone is no progress.
    pub(crate) fn answered_nothing(&self) -> bool {
        self.linked_at > self.good_at
    }

    /// A reply has come.
    pub(crate) fn note_reply(&mut self, now: Duration) {
        (self.good_at, self.heard_at, self.reports, self.wait_logged) = (now, now, None, false);
        self.trouble.clear();
        self.backoff = match self.refused_for_now || self.stands(now) {
            true => BACKOFF.0,
            false => self.backoff.min(BACKOFF_ANSWERED),
        };
        self.refused_for_now = false;
    }

    /// The last link was made so long ago that its server does not break every link.
    pub(crate) fn stands(&self, now: Duration) -> bool {
        now.saturating_sub(self.linked_at) >= LINK_STANDS
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
