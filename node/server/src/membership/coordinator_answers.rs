//! Since when the coordinator answers this server.
//!
//! A coordinator that stood still has ended the leases of owners that live. They learn of it when it goes on, as this
//! server does. Each of them is in a call that has to fail first, or in its pause. So whoever hears of it first waits
//! until the others have had the time to get their leases again.

use crate::membership::Membership;
use gannet_transport::Net;
use gannet_wire::limits::COORDINATOR_TIMEOUT;
use std::time::Duration;

/// The times of answers of the coordinator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoordinatorAnswers {
    /// The last one.
    last: Option<Duration>,
    /// The first one behind the last time without answers in which leases may have ended.
    since: Duration,
}

impl CoordinatorAnswers {
    /// With an answer at `now`. An owner asks for more of its lease eight times in the lease. So its lease does not end
    /// in a time without answers that is shorter than three quarters of it.
    fn with(self, now: Duration, lease: Duration) -> CoordinatorAnswers {
        let goes_on = self.last.is_some_and(|last| now.saturating_sub(last) < lease / 4 * 3);
        CoordinatorAnswers { last: Some(now), since: if goes_on { self.since } else { now } }
    }

    /// Whether owners that live have had the time to get their leases again.
    fn are_known_to_owners(self, now: Duration, lease: Duration) -> bool {
        self.last.is_some() && now.saturating_sub(self.since) >= COORDINATOR_TIMEOUT + lease / 4
    }
}

impl<N: Net> Membership<N> {
    /// Notes that the coordinator has answered.
    pub(crate) fn note_answer(&self) {
        self.answers.set(self.answers.get().with(self.net.now(), self.config.lease));
    }

    /// Whether an owner without a lease is dead, as far as can be known: it had the time to get its lease again.
    pub(crate) fn owners_had_time(&self) -> bool {
        self.answers.get().are_known_to_owners(self.net.now(), self.config.lease)
    }
}
