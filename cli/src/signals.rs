//! SIGINT and SIGTERM: the first one requests an orderly end, the second one ends the process at once. SIGXFSZ: a file
//! is full.

use crate::failure::{Failure, SYSTEM};
use gannet::Server;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The flag of this process.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// A flag that the first SIGINT or SIGTERM sets. A second one exits with 130. Every call returns the same flag, so a
/// signal that came before a call is not lost.
///
/// # Errors
/// The handlers cannot be set.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(stop.clone());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: a second signal finds the flag set and exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Failure::new(SYSTEM, format!("setting the handler of signal {signal}: {e}")))?;
    }
    *known = Some(stop.clone());
    Ok(stop)
}

/// Makes a file that reaches the limit on the size of files (`ulimit -f`) an error of the call that writes it. Without
/// a handler the signal SIGXFSZ ends the process.
///
/// # Errors
/// The handler cannot be set.
pub fn report_full_files() -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(SYSTEM, format!("setting the handler of SIGXFSZ: {e}"));
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(failed)
}

/// Sleeps, without using CPU, until one of these signals arrives.
///
/// # Errors
/// The handlers cannot be set.
pub fn wait_for_signal(stop: &AtomicBool) -> Result<(), Failure> {
    sleep(stop, |_| {}, &|| true)
}

/// Sleeps, without using CPU, until one of these signals arrives or a thread of the server dies.
///
/// # Errors
/// The handlers cannot be set.
pub fn wait(stop: &AtomicBool, server: &Server) -> Result<(), Failure> {
    // The stream has space for this byte: the only other bytes are those of signals.
    let wake = |waker: UnixStream| server.on_death(move |_| drop((&waker).write_all(&[0])));
    sleep(stop, wake, &|| server.is_running())
}

/// Sleeps until a signal arrives, or `goes_on` is false after a byte was written to the stream that `wake` gets.
fn sleep(
    stop: &AtomicBool,
    wake: impl FnOnce(UnixStream),
    goes_on: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(SYSTEM, format!("waiting for a signal: {e}"));
    let (mut woken, waker) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, waker.try_clone().map_err(failed)?).map_err(failed)?;
    }
    wake(waker);
    // An earlier signal has set the flag. A later one writes a byte.
    while !stop.load(Relaxed) && goes_on() {
        match woken.read(&mut [0]) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker whose data grows waits for the first file with the flag. A signal that came after that wait, and before
    /// the training took a flag of its own, was lost: the training went on for ever.
    #[test]
    fn a_signal_between_two_calls_is_not_lost() {
        let first = stop_flag().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(first.load(Relaxed) && stop_flag().unwrap().load(Relaxed));
        first.store(false, Relaxed);
    }
}
