//! A request that a server refuses because its disk or memory is full is sent again for a while, as pushes are:
//! somebody may make space.

use crate::error::WorkerError;
use crate::limits::{SPACE_ASKED_EVERY, WAIT_LOGGED};
use gannet_wire::refusal::Refusal;
use std::time::{Duration, Instant};

/// Sends a request that may be repeated, until the server has space for what it must keep, or `patience` is over.
/// `ask` sends it once.
pub(crate) fn until_space<T>(
    patience: Duration,
    mut ask: impl FnMut() -> Result<T, WorkerError>,
) -> Result<T, WorkerError> {
    let (begun, mut logged) = (Instant::now(), false);
    loop {
        let error = match ask() {
            Err(error @ WorkerError::Refused { refusal: Refusal::NoSpace, .. }) => error,
            other => return other,
        };
        let waited = begun.elapsed();
        if waited >= patience {
            return Err(waited_for(error, waited));
        }
        if waited >= WAIT_LOGGED && !std::mem::replace(&mut logged, true) {
            tracing::warn!(%error, "waiting for space at a server");
        }
        std::thread::sleep(SPACE_ASKED_EVERY);
    }
}

/// The refusal, with the time that the worker has waited.
fn waited_for(error: WorkerError, waited: Duration) -> WorkerError {
    match error {
        WorkerError::Refused { peer, what, refusal, text } => {
            let seconds = waited.as_secs_f64();
            let text = format!("{text}; it stayed so for {seconds:.1} s (--peer-timeout): make space there");
            WorkerError::Refused { peer, what, refusal, text }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> WorkerError {
        let (peer, what, text) = ("a:1".into(), "a request".to_owned(), "RUNS: no space left".to_owned());
        WorkerError::Refused { peer, what, refusal: Refusal::NoSpace, text }
    }

    #[test]
    fn a_request_is_repeated_until_there_is_space_and_only_then() {
        let mut asked = 0;
        let answer = until_space(Duration::from_secs(60), || {
            asked += 1;
            if asked < 4 { Err(full()) } else { Ok(asked) }
        });
        assert_eq!((answer.unwrap(), asked), (4, 4));
        let other = || WorkerError::Call("a wrong call".into());
        let mut asked = 0;
        let answer = until_space(Duration::from_secs(60), || -> Result<(), _> {
            asked += 1;
            Err(other())
        });
        assert!(matches!(answer, Err(WorkerError::Call(_))) && asked == 1);
        let never = until_space(Duration::from_millis(30), || -> Result<(), _> { Err(full()) });
        let text = never.unwrap_err().to_string();
        assert!(text.contains("RUNS: no space left") && text.contains("--peer-timeout"), "{text}");
    }
}
