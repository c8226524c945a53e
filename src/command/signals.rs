//! SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once.

use super::failure::{Failure, SYSTEM};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first SIGINT or SIGTERM sets; a second one exits with 130.
///
/// # Errors
/// The handlers cannot be set.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: a second signal finds the flag set and exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Failure::new(SYSTEM, format!("setting the handler of signal {signal}: {e}")))?;
    }
    Ok(stop)
}
