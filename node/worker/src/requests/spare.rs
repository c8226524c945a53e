//! Memory of requests that have ended, for the next ones.

use crate::requests::push_rows::PushRows;
use gannet_wire::sharded_keys::ShardedKeys;
use std::sync::Arc;

/// Buffers of finished pushes that are kept.
const SPARE_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct SpareMemory {
    rows: Vec<Vec<f32>>,
    /// The cut of the last simple call.
    pub(crate) cut: Arc<ShardedKeys>,
}

impl SpareMemory {
    /// Memory for rows: with old content, or new and empty.
    pub(crate) fn take(&mut self) -> Vec<f32> {
        self.rows.pop().unwrap_or_default()
    }

    /// Keeps the memory of rows that have come to the caller.
    pub(crate) fn keep(&mut self, rows: Vec<f32>) {
        self.rows.push(rows);
    }

    /// Keeps the memory of a push that has ended, unless it was lent, or there is enough.
    pub(crate) fn keep_pushed(&mut self, rows: PushRows) {
        if let PushRows::Owned(rows) = rows
            && self.rows.len() < SPARE_MAX
        {
            self.rows.push(rows);
        }
    }
}
