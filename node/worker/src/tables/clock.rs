//! A worker's clock over a table.

use gannet_wire::sync::SyncConfig;

/// How a worker keeps step over one table.
pub(crate) struct TableClock {
    pub(crate) sync: SyncConfig,
    /// The step that the worker is in.
    pub(crate) clock: u64,
    /// Pushes of a synchronous step have begun, and the step has not ended.
    pub(crate) open: bool,
    /// Pushes that arrived too late for their step, until a call takes them.
    pub(crate) late: Vec<u64>,
}
