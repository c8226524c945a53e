//! The life of a server thread, and how it closes its tables in order.

use crate::error::ServerError;
use crate::thread::event_loop::ShardThread;
use crate::thread::thread_health::ThreadHealth;
use gannet_transport::Net;
use gannet_wire::limits::TICK;

/// Serves until the server ends. Closes the images in order only if no thread has died: a thread that panicked may have
/// applied half of a step.
pub(crate) fn run_thread<N: Net>(
    mut thread: ShardThread<N>,
    health: &ThreadHealth,
) -> Result<u64, ServerError> {
    while !health.is_ending() {
        thread.run_once(TICK)?;
    }
    if health.is_dead() {
        return Ok(0);
    }
    thread.stop(|| health.is_dead())
}
