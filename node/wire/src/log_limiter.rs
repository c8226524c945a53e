//! Limits warnings that a peer can cause at any rate: a few are logged, the others counted.

use crate::limits::{WARNINGS_MAX, WARNINGS_TIME};
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
}
