//! Since when the coordinator answers this server.
//!
//! A coordinator that stood still has ended the leases of owners that live. They learn of it when it goes on, as this
//! server does. Each of them is in a call that has to fail first, or in its pause. So whoever hears of it first waits
//! until the others have had the time to get their leases again.

use crate::membership::Membership;
use crate::membership::role::Vacancy;
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

    /// Whether owners that live have had the time to get their leases again. `vacant`: for how long the answers have
    /// said that nobody has the lease ([`Vacancy::seen`]). If the coordinator answers so slowly that each pause could
    /// have ended leases, only that counts.
    fn gave_owners_time(self, vacant: Duration, now: Duration, lease: Duration) -> bool {
        // A call connects, and asks: each has the limit.
        let wanted = 2 * COORDINATOR_TIMEOUT + lease / 4;
        self.last.is_some() && (now.saturating_sub(self.since) >= wanted || vacant >= wanted)
    }
}

impl<N: Net> Membership<N> {
    /// Notes that the coordinator has answered.
    pub(crate) fn note_answer(&self) {
        self.answers.set(self.answers.get().with(self.net.now(), self.config.lease));
    }

    /// Whether the owner of a vacant place is dead, as far as can be known: it had the time to get its lease again.
    pub(crate) fn owner_had_time(&self, vacancy: Vacancy) -> bool {
        self.answers.get().gave_owners_time(vacancy.seen, self.net.now(), self.config.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(200);

    /// After how many pauses of this length a backup may take a place that nobody has.
    fn pauses_until_taken(pause: Duration, answered_before: Duration) -> u32 {
        let (mut answers, mut now) = (CoordinatorAnswers::default(), Duration::from_secs(10));
        let begun = now;
        while now < begun + answered_before {
            now += LEASE / 8;
            answers = answers.with(now, LEASE);
        }
        let mut vacancy = Vacancy { seen: Duration::ZERO, at: None, version: 1 };
        for pauses in 1..1000 {
            now += pause;
            answers = answers.with(now, LEASE);
            vacancy = vacancy.goes_on(now, LEASE);
            if answers.gave_owners_time(vacancy.seen, now, LEASE) {
                return pauses;
            }
        }
        panic!("nobody takes the place")
    }

    #[test]
    fn a_dead_owner_is_replaced_at_once_or_after_a_pause_of_the_coordinator_when_others_had_time() {
        let answered = Duration::from_secs(5);
        assert_eq!(pauses_until_taken(LEASE / 8, answered), 1);
        // One pause of a whole lease, and then answers: two seconds and a quarter of the lease.
        assert!(pauses_until_taken(LEASE / 8, Duration::ZERO) > 40);
        // Each pause could have ended leases.
        let slow = pauses_until_taken(LEASE * 4 / 5, answered);
        assert!((40..=60).contains(&slow), "{slow}");
    }
}
