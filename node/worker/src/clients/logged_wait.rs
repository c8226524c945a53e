//! Waits for others: one that is logged now and then, and threads that wait for a server.

use crate::limits::{WAIT_LOGGED, WAITS_LOGGED};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A wait that is logged now and then.
pub(crate) struct LoggedWait {
    pub(crate) since: Instant,
    logged: Duration,
}

impl LoggedWait {
    pub(crate) fn begin() -> LoggedWait {
        LoggedWait { since: Instant::now(), logged: Duration::ZERO }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    pub(crate) fn is_to_be_logged(&mut self) -> bool {
        let waited = self.since.elapsed();
        let due = waited >= WAIT_LOGGED.max(self.logged + WAITS_LOGGED);
        self.logged = if due { waited } else { self.logged };
        due
    }
}

/// A thread waits for a server.
pub(crate) struct Asking<'a>(&'a AtomicU32);

impl Asking<'_> {
    pub(crate) fn begin(count: &AtomicU32) -> Asking<'_> {
        count.fetch_add(1, Relaxed);
        Asking(count)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
