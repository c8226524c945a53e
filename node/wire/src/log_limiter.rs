//! Limits warnings that a peer can cause at any rate: a few are logged, the others counted.

use crate::limits::{FAILURE_LOGGED, WARNINGS_MAX, WARNINGS_TIME};
use std::num::NonZeroU64;
use std::time::Duration;

/// How many warnings were suppressed since the last logged one. A log line omits `None`.
pub type Suppressed = Option<NonZeroU64>;

/// Counts warnings that were logged lately, and those that were suppressed.
#[derive(Debug, Default)]
pub struct LogLimiter {
    from: Duration,
    logged: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// Decides whether to log a warning now. If so, returns how many were suppressed since the last one.
    pub fn allow(&mut self, now: Duration) -> Option<Suppressed> {
        if now >= self.from + WARNINGS_TIME {
            (self.from, self.logged) = (now, 0);
        }
        if self.logged == WARNINGS_MAX {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(NonZeroU64::new(std::mem::take(&mut self.suppressed)))
    }
}

/// A failure that is tried again and again: it is logged when its reason changes, and once in a while.
#[derive(Debug, Default)]
pub struct RepeatedFailure {
    logged: Option<(String, Duration)>,
}

impl RepeatedFailure {
    /// Whether to log this reason now.
    pub fn is_news(&mut self, reason: &str, now: Duration) -> bool {
        let is_known = |(known, at): &(String, Duration)| known == reason && now < *at + FAILURE_LOGGED;
        let is_news = !self.logged.as_ref().is_some_and(is_known);
        if is_news {
            self.logged = Some((reason.to_owned(), now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_a_few_times_and_counted() {
        let mut log_limiter = LogLimiter::default();
        let at = |second| Duration::from_secs(100) + WARNINGS_TIME * second;
        let logged = (0..1000).filter(|_| log_limiter.allow(at(0)).is_some()).count();
        assert_eq!(logged as u32, WARNINGS_MAX);
        assert_eq!(log_limiter.allow(at(1)), Some(NonZeroU64::new(1000 - u64::from(WARNINGS_MAX))));
        assert_eq!(log_limiter.allow(at(1)), Some(None), "nothing is said of none");
    }

    /// A backup that cannot be filled was logged each 1.2 s, for as long as it was away.
    #[test]
    fn a_failure_that_stayed_was_logged_at_each_try() {
        let mut failures = RepeatedFailure::default();
        let every = Duration::from_millis(1_200);
        let tries = |failures: &mut RepeatedFailure, reason: &str, from: u32| {
            (from..from + 500).filter(|&at| failures.is_news(reason, every * at)).count()
        };
        // 500 tries take ten minutes.
        assert_eq!(tries(&mut failures, "it is away", 0), 10);
        assert_eq!(tries(&mut failures, "it has no memory", 500), 10, "another reason is said at once");
        assert!(failures.is_news("it is away", every * 1_000));
        assert!(!failures.is_news("it is away", every * 1_001));
    }
}
