//! The life of a server thread, and how it closes its tables in order.

use crate::error::ServerError;
use crate::limits::{CLOSED_ALONE, CLOSERS};
use crate::tables::server_tables::ServerTables;
use crate::thread::event_loop::ShardThread;
use crate::thread::thread_health::ThreadHealth;
use gannet_core::Shards;
use gannet_transport::Net;
use gannet_wire::limits::TICK;
use std::panic::resume_unwind;

impl ServerTables {
    /// Marks every image as closed in order.
    pub(crate) fn close(&mut self) -> Result<(), ServerError> {
        let mut open: Vec<&mut Shards> =
            self.all.iter_mut().filter_map(|table| table.shards.as_mut()).collect();
        // Before any image is closed: a worker that reads the images itself stops trusting them.
        open.iter().for_each(|shards| shards.stop_serving());
        if open.len() <= CLOSED_ALONE {
            return close(&mut open);
        }
        // The disk writes several images at once.
        let part = open.len().div_ceil(CLOSERS);
        std::thread::scope(|scope| {
            let closers: Vec<_> = open.chunks_mut(part).map(|part| scope.spawn(|| close(part))).collect();
            let ended =
                closers.into_iter().map(|closer| closer.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ended.fold(Ok(()), Result::and)
        })
    }
}

/// Marks the images of these tables as closed in order.
fn close(open: &mut [&mut Shards]) -> Result<(), ServerError> {
    open.iter_mut().try_for_each(|shards| {
        let closed = shards.mark_clean();
        closed.map_err(|source| ServerError::Close { table: shards.schema().name.clone(), source })
    })
}

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
