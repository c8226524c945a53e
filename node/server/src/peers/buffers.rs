//! Memory that requests use again.

use gannet_core::{CachedVersion, ChangedKeys, NewerRow};

/// Buffers that requests reuse.
#[derive(Default)]
pub(crate) struct RequestBuffers {
    pub(crate) keys: Vec<u64>,
    pub(crate) rows: Vec<f32>,
    /// The slots that a push names or a pull finds.
    pub(crate) found: Vec<u32>,
    /// The rows of a pull that the worker has cached, and what the answer reports of each.
    pub(crate) cached: Vec<CachedVersion>,
    pub(crate) changes: Vec<NewerRow>,
    /// The subscribed rows that have changed.
    pub(crate) changed: ChangedKeys,
}
