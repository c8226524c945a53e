//! Keys of batches in shard order, for a pull and its push. The memory is reused.

use crate::backend::error::BackendError;
use crate::batch::BatchKeys;
use gannet_transport::Net;
use gannet_wire::ShardedKeys;
use gannet_worker::{TableId, Worker};
use std::sync::Arc;

/// The buffers of earlier pulls and pushes. Requests in flight may still use some of them.
pub(crate) struct CutPool {
    cuts: Vec<Arc<ShardedKeys>>,
    kept_max: usize,
}

impl CutPool {
    /// Keeps at most `kept_max` buffers.
    pub(crate) fn new(kept_max: usize) -> CutPool {
        CutPool { cuts: Vec::new(), kept_max }
    }

    /// Puts keys in shard order, in a buffer that no request uses any more, if there is one.
    ///
    /// # Errors
    /// `starts` is given, and the keys are not in shard order.
    pub(crate) fn cut<N: Net>(
        &mut self,
        worker: &Worker<N>,
        table: TableId,
        BatchKeys { keys, starts, .. }: BatchKeys<'_>,
    ) -> Result<Arc<ShardedKeys>, BackendError> {
        let free = self.cuts.iter_mut().position(|cut| Arc::get_mut(cut).is_some());
        let mut cut = free.map(|at| self.cuts.swap_remove(at)).unwrap_or_default();
        // Nothing else uses this buffer, so this makes no copy.
        let own = Arc::make_mut(&mut cut);
        match starts {
            Some(starts) => worker.cut_sorted_into(table, keys, starts, own)?,
            None => worker.cut_into(table, keys, own),
        }
        Ok(cut)
    }

    /// Keeps a buffer whose push has begun, to reuse its memory later.
    pub(crate) fn keep(&mut self, cut: Arc<ShardedKeys>) {
        if self.cuts.len() < self.kept_max {
            self.cuts.push(cut);
        }
    }
}
