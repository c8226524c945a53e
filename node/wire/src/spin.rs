//! Decides whether a thread that waits for a small frame polls or sleeps. Polling saves the time of waking up. It pays
//! if the frame comes soon, and if nobody else needs the core: the peer itself may be waiting for it.
//!
//! A poll is fruitless if it ends without a frame, or if the thread lost its core meanwhile. After a fruitless poll the
//! thread sleeps at once for the next wait, after two in a row for three waits, then seven, and so on.

use crate::limits::{CORE_LOST, SPIN_SKIPS_LOG_MAX};
use std::time::Duration;

/// The decision of one thread, from wait to wait.
pub struct Spin {
    /// The longest poll.
    max: Duration,
    /// When the present poll ends. `None`: the thread does not poll.
    until: Option<Duration>,
    looked: Duration,
    /// Fruitless polls in a row.
    fruitless: u32,
    /// Waits without a poll that are still to come.
    skips: u32,
}

impl Spin {
    /// Polls of at most `max`. With 0 the thread always sleeps.
    pub fn new(max: Duration) -> Spin {
        Spin { max, until: None, looked: Duration::ZERO, fruitless: 0, skips: 0 }
    }

    /// A wait for a small frame begins. If the thread still polls, a frame has come during that poll.
    pub fn begin(&mut self, now: Duration) {
        if self.until.take().is_some() {
            self.fruitless = 0;
        }
        if self.skips > 0 {
            self.skips -= 1;
        } else if !self.max.is_zero() {
            (self.until, self.looked) = (Some(now + self.max), now);
        }
    }

    /// Whether the thread looks for the frame again at once. Otherwise it sleeps.
    pub fn polls(&mut self, now: Duration) -> bool {
        let Some(until) = self.until else { return false };
        let lost = now.saturating_sub(std::mem::replace(&mut self.looked, now)) >= CORE_LOST;
        if now < until && !lost {
            return true;
        }
        self.until = None;
        self.fruitless = (self.fruitless + 1).min(SPIN_SKIPS_LOG_MAX);
        self.skips = (1 << self.fruitless) - 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_micros(50);
    const LOOK: Duration = Duration::from_micros(1);

    /// A wait for a frame that comes after `comes`. Returns how long the thread polled.
    fn wait(spin: &mut Spin, now: &mut Duration, comes: Duration, look: Duration) -> Duration {
        let begun = *now;
        spin.begin(begun);
        while *now < begun + comes && spin.polls(*now) {
            *now += look;
        }
        let polled = *now - begun;
        *now = begun + comes;
        polled
    }

    #[test]
    fn frames_that_come_soon_are_polled_for() {
        let (mut spin, mut now) = (Spin::new(MAX), Duration::from_secs(1));
        for _ in 0..1_000 {
            assert_eq!(wait(&mut spin, &mut now, 20 * LOOK, LOOK), 20 * LOOK);
        }
    }

    #[test]
    fn frames_that_come_late_soon_cost_nothing_and_are_noticed_when_they_come_early_again() {
        let (mut spin, mut now) = (Spin::new(MAX), Duration::from_secs(1));
        let polled: Duration = (0..10_000).map(|_| wait(&mut spin, &mut now, 10 * MAX, LOOK)).sum();
        assert!(polled < 60 * MAX, "{polled:?} of 10,000 waits");
        let until_polled = (0..).find(|_| wait(&mut spin, &mut now, 20 * LOOK, LOOK) == 20 * LOOK);
        assert!(until_polled < Some(1 << SPIN_SKIPS_LOG_MAX));
        assert_eq!(wait(&mut spin, &mut now, 20 * LOOK, LOOK), 20 * LOOK);
    }

    #[test]
    fn a_thread_that_loses_its_core_does_not_poll() {
        let (mut spin, mut now) = (Spin::new(MAX), Duration::from_secs(1));
        let polled: Duration = (0..10_000).map(|_| wait(&mut spin, &mut now, 40 * LOOK, CORE_LOST)).sum();
        assert!(polled < 60 * MAX, "{polled:?} of 10,000 waits");
    }

    #[test]
    fn no_time_is_no_poll() {
        let (mut spin, mut now) = (Spin::new(Duration::ZERO), Duration::from_secs(1));
        assert_eq!(wait(&mut spin, &mut now, 20 * LOOK, LOOK), Duration::ZERO);
    }
}
