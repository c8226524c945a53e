//! When a request must have its answer.

use crate::error::RequestError;
use std::time::{Duration, Instant};

/// The end of a request's time.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    time: Duration,
}

impl Deadline {
    /// So long from now.
    pub fn after(time: Duration) -> Deadline {
        Deadline { at: Instant::now() + time, time }
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// That the time is over.
    pub fn error(&self) -> RequestError {
        RequestError::TooSlow { seconds: self.time.as_secs_f64() }
    }

    /// # Errors
    /// The time is over.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.left().is_zero() { Err(self.error()) } else { Ok(()) }
    }
}
