//! Cuts of batches, in memory that is used again: one for each pull and its push.

use crate::backend::BackendError;
use crate::batch::BatchKeys;
use gannet_node::{ShardedKeys, TableId, Worker};
use gannet_transport::Net;
use std::sync::Arc;

/// Cuts that pulls and pushes have ended with, or will.
pub(crate) struct CutPool {
    cuts: Vec<Arc<ShardedKeys>>,
    kept_max: usize,
}

impl CutPool {
    /// Keeps at most `kept_max` cuts.
    pub(crate) fn new(kept_max: usize) -> CutPool {
        CutPool { cuts: Vec::new(), kept_max }
    }

    /// A cut of these keys, in the memory of one that no request uses any more, if there is one.
    ///
    /// # Errors
    /// The keys have starts, and are not in shard order.
    pub(crate) fn cut<N: Net>(
        &mut self,
        worker: &Worker<N>,
        table: TableId,
        BatchKeys { keys, starts }: BatchKeys<'_>,
    ) -> Result<Arc<ShardedKeys>, BackendError> {
        let free = self.cuts.iter_mut().position(|cut| Arc::get_mut(cut).is_some());
        let mut cut = free.map(|at| self.cuts.swap_remove(at)).unwrap_or_default();
        // Nobody else has it: this makes no copy.
        let own = Arc::make_mut(&mut cut);
        match starts {
            Some(starts) => worker.cut_sorted_into(table, keys, starts, own)?,
            None => worker.cut_into(table, keys, own),
        }
        Ok(cut)
    }

    /// Keeps a cut whose push has begun, for its memory.
    pub(crate) fn keep(&mut self, cut: Arc<ShardedKeys>) {
        if self.cuts.len() < self.kept_max {
            self.cuts.push(cut);
        }
    }
}
